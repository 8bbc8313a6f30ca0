"""Fetch images by URL: within limits, and from public addresses only unless an origin is allowed by name."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

from ..errors import RequestError, UsageError
from ..version import __version__

__all__ = ["PUBLIC", "Budget", "UrlFetcher", "check_origin", "is_public"]

PUBLIC = "https"
"""What allows each URL of ``https`` whose host has public addresses alone."""

_PORTS = {"https": 443, "http": 80}
_MOST_REDIRECTS, _LONGEST_URL, _CHUNK_BYTES = 3, 2048, 1 << 16
_THREADS, _MOST_WAITING = 16, 256
_REDIRECTS = (301, 302, 303, 307, 308)
_TRANSLATED = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))


class _ParsedUrl(NamedTuple):
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class Budget:
    """Bytes that the URLs of one request may fetch in total.

    Args:
        most: So many.
    """

    def __init__(self, most: int) -> None:
        self._most, self._left, self._lock = most, most, threading.Lock()

    def take(self, size: int) -> None:
        """Count bytes.

        Raises:
            RequestError: they are too many (413).
        """
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise RequestError(f"what the URLs bring may have {self._most:,} bytes", status=413)


class UrlFetcher:
    """Fetches the contents of URLs.

    Args:
        allowed: `PUBLIC`, and origins such as ``http://camera.lan:8080``, which may have private addresses.
        seconds: That a URL may take, redirects included.
        context: For TLS; None: certificates of public authorities are accepted.

    Raises:
        UsageError: an origin is none.
    """

    def __init__(self, allowed: Sequence[str], seconds: float = 10.0, context: ssl.SSLContext | None = None) -> None:
        self._public = PUBLIC in allowed
        self._origins = {check_origin(origin) for origin in allowed if origin != PUBLIC}
        self._seconds, self._context = seconds, context or ssl.create_default_context()
        self._threads, self._waiting = ThreadPoolExecutor(_THREADS, "fetch"), 0

    async def fetch(self, url: str, budget: Budget) -> bytes:
        """Fetch the content of a URL.

        Raises:
            RequestError: it is no URL (400), may not be fetched (403), brings too much (413) or too late (504), or fails (502).
        """
        if self._waiting >= _MOST_WAITING:
            raise RequestError(f"{self._waiting} URLs are being fetched already", status=503, retry_after=1)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._fetch, url, budget)
        finally:
            self._waiting -= 1

    def _fetch(self, url: str, budget: Budget) -> bytes:
        until = time.monotonic() + self._seconds
        try:
            for _ in range(_MOST_REDIRECTS + 1):
                answer = self._answer(self._check_url(url), until, budget)
                if isinstance(answer, bytes):
                    return answer
                url = urljoin(url, answer)
            raise RequestError(f"{_shown(url)}: more than {_MOST_REDIRECTS} redirects", status=502)
        except RequestError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() >= until:
                raise RequestError(f"{_shown(url)}: not there within {self._seconds:g} s", status=504) from None
            reason = type(error).__name__ if isinstance(error, http.client.HTTPException) else error
            raise RequestError(f"{_shown(url)}: cannot be fetched ({reason})", status=502) from None

    def _check_url(self, url: str) -> _ParsedUrl:
        place = _parse_url(url)
        public = self._public and place.scheme == "https" and place.port == _PORTS["https"]
        if place.origin not in self._origins and not public:
            raise RequestError(f"{_shown(url)}: this server does not fetch from {place.origin}", status=403)
        return place

    def _answer(self, place: _ParsedUrl, until: float, budget: Budget) -> bytes | str:
        """The body, or where a redirect leads."""
        with contextlib.ExitStack() as stack:
            sock = stack.enter_context(self._connect(place, until))
            stack.enter_context(_cut_off(sock, until))
            if place.scheme == "https":
                sock = stack.enter_context(self._context.wrap_socket(sock, server_hostname=place.host))
                stack.enter_context(_cut_off(sock, until))
                connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                    place.host, place.port, context=self._context
                )
            else:
                connection = http.client.HTTPConnection(place.host, place.port)
            connection.sock = sock  # so that nobody looks the name up again
            headers = {"User-Agent": f"pytrtplugins/{__version__}", "Accept": "image/*", "Connection": "close"}
            connection.request("GET", place.target, headers=headers)
            answer = stack.enter_context(contextlib.closing(connection.getresponse()))
            if answer.status in _REDIRECTS:
                return answer.headers.get("Location") or ""
            if answer.status != 200:
                raise RequestError(f"{place.origin}: answers with status {answer.status}", status=502)
            return _body(answer, budget)

    def _connect(self, place: _ParsedUrl, until: float) -> socket.socket:
        """Connect to an address that was checked: a second lookup of the name could return another one."""
        addresses = [info[4] for info in socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)]
        if place.origin not in self._origins and not all(is_public(str(address[0])) for address in addresses):
            raise RequestError(f"{place.origin}: has an address that is not public", status=403)
        failed: OSError = OSError("no address")
        for address in addresses:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            try:
                return socket.create_connection((str(address[0]), place.port), left)
            except OSError as error:
                failed = error
        raise failed


def check_origin(text: str) -> str:
    """An origin with its port, such as ``http://camera.lan:8080`` for itself."""
    try:
        place = _parse_url(text)
    except RequestError as error:
        place, reason = None, str(error)
    if place is None or place.target != "/":
        why = reason if place is None else f"has a path, {place.target[:40]}"
        raise UsageError(f"--allow-urls: expected https, or an origin such as http://camera.lan:8080: {why}")
    return place.origin


def is_public(address: str) -> bool:
    """Whether an IP address is one of the whole internet: no private network, no loopback, and no other address in disguise."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if any(ip in network for network in _TRANSLATED):
            return False
        ip = ip.ipv4_mapped or ip
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


def _parse_url(url: str) -> _ParsedUrl:
    """Parse a URL into origin, host, port and target."""
    if len(url) > _LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise RequestError(f"{_shown(url)}: expected a URL of at most {_LONGEST_URL} printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise RequestError(f"{_shown(url)}: no URL ({error})") from None
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc:
        raise RequestError(f"{_shown(url)}: expected https://HOST/..., without a user's name")
    target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    return _ParsedUrl(parts.scheme, host, port or _PORTS[parts.scheme], target)


def _body(answer: http.client.HTTPResponse, budget: Budget) -> bytes:
    expected, parts, size = answer.length, [], 0
    if expected is not None:
        budget.take(expected)
    while part := answer.read(_CHUNK_BYTES):
        parts.append(part)
        size += len(part)
        if expected is None:
            budget.take(len(part))
    if expected is not None and size < expected:
        raise http.client.IncompleteRead(b"", expected - size)
    return b"".join(parts)


@contextlib.contextmanager
def _cut_off(sock: socket.socket, until: float) -> Iterator[None]:
    """End a connection at a time: its own timeout begins anew with each byte."""

    def end() -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which says goodbye first

    timer = threading.Timer(max(0.0, until - time.monotonic()), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shown(url: str) -> str:
    return repr(url if len(url) <= 100 else f"{url[:100]}...")
