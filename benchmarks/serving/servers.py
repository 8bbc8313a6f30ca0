"""Servers that are started for a measurement, and ended after it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .load import Exchange
from .processes import cpu_s, pss_bytes, tree

ROOT = Path(__file__).parents[2]
_START_S = 120.0


class StartError(Exception):
    """A server did not answer."""


@dataclass(frozen=True)
class Command:
    """How a server is started.

    Attributes:
        name: In tables.
        arguments: Of the process, for a port.
        environment: In addition.
        folder: Where it runs.
    """

    name: str
    arguments: Callable[[int], Sequence[str | Path]]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path = ROOT


def own(name: str, models: Sequence[str], *options: object) -> Command:
    """This project's server; ``options`` are those of ``pytrt serve``."""
    start = [sys.executable, "-m", "pytrtplugins", "serve", *models]
    return Command(name, lambda port: [*start, "--port", str(port), *map(str, options)])


class Server:
    """A server that runs.

    Args:
        command: Starts it.
        first: Asked until it is answered as expected; from then on the server is ready.

    Attributes:
        port: Where it listens.
        cold_s: From its start to the first answer.

    Raises:
        StartError: it ended, or did not answer in two minutes.
    """

    def __init__(self, command: Command, first: Exchange) -> None:
        self.command, self.port = command, free_port()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [*map(str, command.arguments(self.port))], stdout=self._output, stderr=subprocess.STDOUT, cwd=command.folder,
            env={**os.environ, **command.environment}, start_new_session=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            self._wait(first)
        except BaseException:
            self.close()
            raise
        self.cold_s = time.perf_counter() - begun

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, exchange: Exchange, seconds: float = 30.0) -> bytes:
        """The body of the answer to one request."""
        return ask(self.port, exchange.request, seconds)

    def pids(self) -> list[int]:
        """Of all its processes."""
        return tree(self.process.pid)

    def cpu_s(self) -> float:
        """That its processes have taken."""
        return sum(map(cpu_s, self.pids()))

    def pss_bytes(self) -> int:
        """Memory of all its processes."""
        return sum(map(pss_bytes, self.pids()))

    def output(self) -> str:
        """What it has printed."""
        self._output.seek(0)
        return self._output.read().decode("utf-8", "replace")

    def close(self) -> None:
        """End it; what is left of its processes after ten seconds is killed."""
        pids = self.pids()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in pids[1:]:
            _kill(pid)
        self._output.close()

    def _wait(self, first: Exchange) -> None:
        until = time.monotonic() + _START_S
        reason = "it did not listen"
        while time.monotonic() < until:
            if self.process.poll() is not None:
                last = " / ".join(self.output().strip().splitlines()[-6:]) or "no output"
                raise StartError(f"it ended with code {self.process.returncode}: {last[-600:]}")
            try:
                found = self.ask(first, 10.0)
                if first.body is None or found == first.body:
                    return
                reason = f"it answered {found[:200]!r}"
            except (OSError, ValueError) as error:
                reason = f"{type(error).__name__}: {error}"
            time.sleep(0.02)
        raise StartError(f"not ready after {_START_S:.0f} s: {reason}")


def end_servers_on_sigterm() -> None:
    """Take SIGTERM, such as that of timeout(1), as Ctrl-C: servers that were started are ended on the way out."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        found: int = sock.getsockname()[1]
        return found


def post(path: str, body: bytes, **headers: object) -> bytes:
    """A request over HTTP; names of headers have _ for -."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def ask(port: int, request: bytes, seconds: float = 30.0) -> bytes:
    """The body of the answer to one request, on a connection of its own.

    Raises:
        OSError: there is no answer.
        ValueError: it is an error, with the answer's beginning.
    """
    with socket.create_connection(("127.0.0.1", port), seconds) as sock:
        sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data or len(data) < _whole(data):
            more = sock.recv(1 << 18)
            if not more:
                raise ConnectionError("closed")
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    if head[9:12] != b"200":
        raise ValueError(f"{head[:15].decode('latin-1')}: {body[:200]!r}")
    return body


def _whole(data: bytes) -> int:
    head, _, _ = data.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line[15:])
    raise ValueError(f"an answer without Content-Length: {head[:200]!r}")
