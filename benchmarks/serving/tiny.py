"""CPU time of a tiny request within the server, without sockets, begun at once and in a task: ``python -m benchmarks.serving.tiny``.

The two ways take turns with the floor: uvicorn with an application that answers four bytes whatever it is asked. Connections get requests
as if they had come from sockets. What the kernel takes for a request and its answer, and the client, is not in the figures. The least of
many short rounds is the main one, since other programs change it little.

With ``--peers`` a second table has the rates over sockets of this server, in one process and in one for each core, of bare uvicorn and of
Triton's core, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.backends.local import LocalBackend
from pytrtplugins.serving.processes.server import make_server
from pytrtplugins.serving.protocol.app import App
from pytrtplugins.utils.numbers import FloatRange, IntRange
from pytrtplugins.utils.optional import require

from . import kinds
from .closed import saturated
from .load import Clients
from .peers import PEERS
from .servers import Server, end_servers_on_sigterm, own, post

_CONNECTIONS = 16
_REQUEST = post("/v2/models/tiny/infer", bytes(64), Inference_Header_Content_Length=0)
_FOUR = b"four"
_TRITON = "Triton's core, Python backend"
_OWN = {
    "pytrt serve, one process": ("Tiny", "--local"),
    "pytrt serve, one process, an immediate model": ("Immediate", "--local"),
    "pytrt serve, a process with the model for each core": ("Tiny", "--gpu", "0"),
    "pytrt serve, a process with an immediate model for each core": ("Immediate", "--gpu", "0"),
}
_BESIDE = (_TRITON, "uvicorn, bare ASGI")
_NAMES = {"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)}


class Wire(asyncio.Transport):
    """Takes answers of one connection, and tells of each."""

    def __init__(self, answered: Callable[[Wire], None]) -> None:
        super().__init__(_NAMES)
        self.answered, self.connection = answered, cast(Any, None)

    def set_protocol(self, protocol: Any) -> None:
        self.connection = protocol

    def write(self, data: Any) -> None:
        if data.startswith(b"HTTP/1.1 200 OK"):
            self.answered(self)
        elif data != _FOUR:  # which uvicorn writes by itself
            raise SystemExit(f"expected status 200, found {bytes(data[:300])!r}")

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Load:
    """Connections that ask again once they are answered, as those of `closed`."""

    def __init__(self, server: Any) -> None:
        self._loop, config = asyncio.get_running_loop(), server.config
        config.load()
        self._wires: list[Wire] = []
        self._ready: list[Wire] = []
        self._left = 0
        self._done = asyncio.Event()
        for _ in range(_CONNECTIONS):
            wire = Wire(self._answered)
            wire.connection = config.http_protocol_class(
                config=config, server_state=server.server_state, app_state={}, _loop=self._loop
            )
            wire.connection.connection_made(wire)
            self._wires.append(wire)

    async def cpu_us(self, requests: int) -> float:
        """Microseconds of CPU of a request, of all threads."""
        self._left, self._ready = requests, list(self._wires)
        self._done.clear()
        begun = time.process_time()
        self._send()
        await self._done.wait()
        return 1e6 * (time.process_time() - begun) / requests

    def _send(self) -> None:
        ready, self._ready = self._ready, []
        for wire in ready:
            wire.connection.data_received(_REQUEST)

    def _answered(self, wire: Wire) -> None:
        self._left -= 1
        if self._left >= _CONNECTIONS:  # the others are on their way
            self._ready.append(wire)
            if len(self._ready) == 1:
                self._loop.call_soon(self._send)
        elif not self._left:
            self._done.set()


async def floor(scope: Any, receive: Any, send: Any) -> None:
    """The least that an application under uvicorn can do."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": _FOUR})


async def measure(rounds: int, requests: int) -> dict[str, list[float]]:
    """Microseconds of CPU of a request in each round, by way."""
    limits, backend = Limits(), LocalBackend([ModelSpec("tiny", "benchmarks.serving.models:Tiny")], Limits())
    await backend.start()
    app, uvicorn = App(backend, limits), require("uvicorn", extra="serve")
    plain = uvicorn.Config(
        floor, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, proxy_headers=False,
        server_header=False, date_header=False,
    )  # fmt: skip
    ways = {
        "not at all: uvicorn alone": uvicorn.Server(plain),
        "in a task": make_server(app, limits),
        "at once": make_server(app, limits, at_once=app.at_once),
    }
    loads = {name: Load(server) for name, server in ways.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, load in loads.items():
            taken = await load.cpu_us(requests)
            if number:  # the first warms up
                found[name].append(taken)
    await backend.stop()
    return found


def over_sockets(peers: Path, rounds: int, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Requests a second and microseconds of the server's CPU of a request, in each round, by server."""
    tiny = kinds.own_kinds([])[kinds.TINY]
    commands = {
        name: (own(name, [f"tiny=benchmarks.serving.models:{model}"], *options), tiny.exchanges)
        for name, (model, *options) in _OWN.items()
    }
    for peer in PEERS:
        if peer.name in _BESIDE:
            commands[peer.name] = peer.command(peers), kinds.peer_kinds(peer)[kinds.TINY].exchanges
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with ExitStack() as stack:
        clients = stack.enter_context(Clients(1))
        servers = {name: stack.enter_context(Server(command, asked[0])) for name, (command, asked) in commands.items()}
        for number in range(rounds + 1):
            for name, server in servers.items():
                before = server.cpu_s()
                done = saturated(server.port, commands[name][1], clients, seconds)
                if number:  # the first warms up
                    found[name].append((done.answers / done.seconds, 1e6 * (server.cpu_s() - before) / done.answers))
    return found


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """Of rates over sockets, in Markdown."""
    lines = [
        "| server | requests/s, median | best | of Triton's, round by round | CPU µs, median | least |",
        "|---|" + 5 * "---:|",
    ]
    for name, rounds in found.items():
        rates, cpu = zip(*rounds, strict=True)
        part = statistics.median(rate / other for rate, (other, _) in zip(rates, found[_TRITON], strict=True))
        lines.append(
            f"| {name} | {statistics.median(rates):,.0f} | {max(rates):,.0f} | {part:.2f} | {statistics.median(cpu):.0f} | {min(cpu):.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.tiny", description=__doc__)
    parser.add_argument("--rounds", type=IntRange(1, 10_000), default=200, help="(default: %(default)s)")
    parser.add_argument(
        "--requests", type=IntRange(_CONNECTIONS, 1_000_000), default=800, help="of a round (default: %(default)s)"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="FOLDER",
        help="also measure rates over sockets beside servers that python -m benchmarks.serving.peers FOLDER installs",
    )
    parser.add_argument(
        "--seconds", type=FloatRange(1, 3600), default=2.0, help="of a round over sockets (default: %(default)s)"
    )
    given = parser.parse_args()
    end_servers_on_sigterm()
    loop = require("uvloop", extra="serve").new_event_loop()
    found = loop.run_until_complete(measure(given.rounds, given.requests))
    print(
        f"load of the machine: {os.getloadavg()[0]:.1f}\n\n| a request is begun | least CPU µs | median |\n|---|---:|---:|"
    )
    for name, taken in found.items():
        print(f"| {name} | {min(taken):.1f} | {statistics.median(taken):.1f} |")
    if given.peers:
        print("\n" + table(over_sockets(given.peers, max(1, given.rounds // 10), given.seconds)))


if __name__ == "__main__":
    main()
