"""Images by URL: what is fetched, from where, and what is refused. All servers are on loopback, allowed by their origins."""

import asyncio
import http.server
import json
import socket
import ssl
import threading

import pytest

from pytrtplugins.errors import RequestError, UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.urls import Budget, UrlFetcher, check_origin, is_public
from tests.serving.conftest import Client
from tests.serving.served import Double


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        status, headers, parts = self.server.answers.get(self.path, (404, {}, [b"none"]))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        for part in parts:
            if part is None:
                self.server.stopping.wait(20)
            else:
                self.wfile.write(part)

    def log_message(self, *arguments):
        pass


class Site(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, context=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.stopping, self.seen = threading.Event(), []
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.origin = f"{scheme}://127.0.0.1:{self.server_port}"
        self.answers = {
            "/photo": (200, {"Content-Length": 3}, [b"1 2"]),
            "/parts": (200, {}, [b"1", b" 2"]),
            "/query?a=1&b": (200, {}, [b"3 ", b"4"]),
            "/moved": (302, {"Location": "/photo"}, []),
            "/circle": (301, {"Location": "/circle"}, []),
            "/nowhere": (302, {}, []),
            "/inside": (302, {"Location": f"http://127.0.0.1:{self.server_port + 1}/photo"}, []),
            "/file": (302, {"Location": "file:///etc/passwd"}, []),
            "/large": (200, {"Content-Length": 1 << 40}, []),
            "/grows": (200, {}, [b"1" * 60_000] * 20),
            "/cut": (200, {"Content-Length": 100}, [b"1 2"]),
            "/short": (200, {"Content-Length": 4}, [b"1 2"]),
            "/slow": (200, {"Content-Length": 100}, [b"1", None]),
            "/broken": (500, {}, [b"secret"]),
        }
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def handle_error(self, *arguments):
        pass

    def close(self):
        self.stopping.set()
        self.shutdown()
        self.server_close()


@pytest.fixture(scope="module")
def site():
    made = Site()
    yield made
    made.close()


def fetched(fetcher, url, most=1 << 20):
    return asyncio.run(fetcher.fetch(url, Budget(most)))


def refused(fetcher, url, status, most=1 << 20):
    with pytest.raises(RequestError) as caught:
        fetched(fetcher, url, most)
    assert caught.value.status == status, str(caught.value)
    return str(caught.value)


def test_what_a_url_names_is_fetched_without_credentials(site):
    fetcher = UrlFetcher([site.origin])
    assert fetched(fetcher, f"{site.origin}/photo") == b"1 2"
    assert fetched(fetcher, f"{site.origin}/query?a=1&b#part") == b"3 4"
    assert fetched(fetcher, f"{site.origin}/moved") == b"1 2"
    sent = site.seen[-1][1]
    assert sent["User-Agent"].startswith("pytrtplugins/")
    assert set(sent) == {"Host", "Accept", "Accept-Encoding", "Connection", "User-Agent"}


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/large", 413, "may have 100,000 bytes"),
        ("/grows", 413, "may have 100,000 bytes"),
        ("/cut", 502, "IncompleteRead"),
        ("/short", 502, "IncompleteRead"),
        ("/broken", 502, "answers with status 500"),
        ("/none", 502, "answers with status 404"),
        ("/circle", 502, "more than 3 redirects"),
        ("/nowhere", 502, "redirects"),
        ("/inside", 403, "does not fetch from"),
        ("/file", 400, "expected https"),
    ],
)
def test_bodies_that_are_too_large_or_fail_and_redirects_to_other_places_are_refused(site, path, status, text):
    said = refused(UrlFetcher([site.origin, "https"]), site.origin + path, status, 100_000)
    assert text in said
    assert "secret" not in said


@pytest.mark.parametrize("path", ["/photo", "/parts"])
def test_a_body_of_exactly_the_most_bytes_is_fetched(site, path):
    assert fetched(UrlFetcher([site.origin]), site.origin + path, 3) == b"1 2"
    assert "may have 2 bytes" in refused(UrlFetcher([site.origin]), site.origin + path, 413, 2)


def test_a_server_that_does_not_go_on_is_cut_off(site):
    assert "not there within 0.3 s" in refused(UrlFetcher([site.origin], 0.3), f"{site.origin}/slow", 504)


def test_nobody_there_is_an_error_of_one_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        origin = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert "cannot be fetched" in refused(UrlFetcher([origin]), origin, 502)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a.jpg",
        "https://example.org:8443/a.jpg",
        "https://localhost/a.jpg",
        "https://127.0.0.1/a.jpg",
        "https://[::1]/a.jpg",
        "https://[::ffff:127.0.0.1]/a.jpg",
        "https://2130706433/a.jpg",
        "https://0x7f.1/a.jpg",
        "https://0/a.jpg",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/a.jpg",
    ],
)
def test_other_schemes_ports_and_addresses_that_are_not_public_are_refused(url):
    refused(UrlFetcher(["https"]), url, 403)


@pytest.mark.parametrize(
    "url",
    ["", "a.jpg", "//host/a", "file:///etc/passwd", "ftp://host/a", "https://user@host/", "https://host:99999/", "https:///a",
     "https://host/a b", "https://host/\r\nX: 1", "https://h\u00f6st/", "https://[::1/", "https://host/" + "a" * 2100],
)  # fmt: skip
def test_what_is_no_url_is_refused(url):
    refused(UrlFetcher(["https"]), url, 400)


def test_the_address_that_was_looked_at_is_the_one_that_is_asked(monkeypatch):
    """A name whose address changes between two looks finds nothing inside."""
    asked, addresses = [], iter(["93.184.215.14", "127.0.0.1"])

    def look_up(host, port, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(addresses), port))]

    def connect(address, timeout):
        asked.append(address)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", connect)
    refused(UrlFetcher(["https"]), "https://rebinding.example/a.jpg", 502)
    refused(UrlFetcher(["https"]), "https://rebinding.example/a.jpg", 403)
    assert asked == [("93.184.215.14", 443)]


def test_a_name_with_one_address_inside_is_refused(monkeypatch):
    both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("93.184.215.14", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: both)
    assert "not public" in refused(UrlFetcher(["https"]), "https://example.org/a.jpg", 403)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True), ("2606:4700::1111", True), ("127.0.0.1", False), ("10.1.2.3", False), ("172.16.0.1", False),
        ("192.168.1.1", False), ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("255.255.255.255", False),
        ("224.0.0.1", False), ("240.0.0.1", False), ("::1", False), ("::", False), ("fe80::1%eth0", False), ("fd00:ec2::254", False),
        ("ff02::1", False), ("::ffff:10.0.0.1", False), ("::ffff:93.184.215.14", True), ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False), ("2001:0:a00:1::", False), ("::10.0.0.1", False),
    ],
)  # fmt: skip
def test_which_addresses_are_public(address, public):
    assert is_public(address) is public


def test_certificates_are_checked(certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server.crt"], certificates["server.key"])
    site = Site(context)
    try:
        origin = site.origin.replace("127.0.0.1", "localhost")
        assert "certificate" in refused(UrlFetcher([origin]), f"{origin}/photo", 502)
        trusting = ssl.create_default_context(cafile=certificates["server.crt"])
        assert fetched(UrlFetcher([origin], context=trusting), f"{origin}/photo") == b"1 2"
    finally:
        site.close()


@pytest.mark.parametrize("text", ["http", "camera.lan", "http://camera.lan/path", "ftp://camera.lan", ""])
def test_what_is_no_origin_is_refused_at_the_start(text):
    with pytest.raises(UsageError, match="--allow-urls: expected https, or an origin"):
        Limits(urls=(text,))
    assert check_origin("http://Camera.lan") == "http://camera.lan:80"


class Detecting(Double):
    detects = True


@pytest.fixture(scope="module")
def client(site):
    limits = Limits(body_bytes=1 << 20, urls=(site.origin,))
    with Client([ModelSpec("double", f"{__name__}:Detecting")], limits) as made:
        yield made


def detect(client, body, kind="application/json"):
    return client.post("/v1/detect", body, headers={"Content-Type": kind})


def test_a_url_has_the_answer_of_what_it_names_and_several_a_list(client, site):
    photo, moved, none = (f"{site.origin}/{name}" for name in ("photo", "moved", "none"))
    single = detect(client, {"url": photo})
    assert single.json == client.post("/v1/detect", b"1 2").json
    assert detect(client, {"urls": [photo]}).json == single.json
    found = detect(client, {"urls": [photo, none, moved]}).json
    assert (found[0], found[2]) == (single.json, single.json)
    assert found[1] == {"error": f"{site.origin}: answers with status 404", "status": 502}
    assert detect(client, {"url": none}).status == 502


@pytest.mark.parametrize("body", [b"{", b"\xff", [], {}, {"url": 1}, {"urls": []}, {"urls": [1]}, {"urls": ["a"] * 65}])
def test_a_body_without_urls_is_refused(client, body):
    assert detect(client, body).status == 400


def test_urls_are_refused_unless_they_are_allowed(site):
    with Client([ModelSpec("double", f"{__name__}:Detecting")]) as client:
        answer = detect(client, json.dumps({"url": f"{site.origin}/photo"}).encode())
    assert answer.status == 403
    assert "pytrt serve --allow-urls" in answer.json["error"]


def test_json_for_a_model_of_ones_own_is_its_body(client):
    answer = client.post("/v1/models/double:predict", b"1 2", headers={"Content-Type": "application/json"})
    assert answer.json["rows"] == [[2.0, 4.0]]
