"""CPU time of a tiny request within the server, without sockets, begun at once and in a task: ``python -m benchmarks.serving.tiny``.

The two ways take turns. Connections get requests as if they had come from sockets. What the kernel takes for a request and its answer, and
the client, is not in the figures. The least of many short rounds is the main one, since other programs change it little.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.backends.local import LocalBackend
from pytrtplugins.serving.processes.server import make_server
from pytrtplugins.serving.protocol.app import App
from pytrtplugins.utils.numbers import Whole
from pytrtplugins.utils.optional import require

from .servers import post

_CONNECTIONS = 16
_REQUEST = post("/v2/models/tiny/infer", bytes(64), Inference_Header_Content_Length=0)
_NAMES = {"sockname": ("127.0.0.1", 1), "peername": ("127.0.0.1", 2)}


class Wire(asyncio.Transport):
    """Takes answers of one connection, and tells of each."""

    def __init__(self, answered: Callable[[Wire], None]) -> None:
        super().__init__(_NAMES)
        self.answered, self.connection = answered, cast(Any, None)

    def set_protocol(self, protocol: Any) -> None:
        self.connection = protocol

    def write(self, data: Any) -> None:
        if not data.startswith(b"HTTP/1.1 200 OK"):
            raise SystemExit(f"expected status 200, found {bytes(data[:300])!r}")
        self.answered(self)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Load:
    """Connections that ask again once they are answered, as those of `closed`.

    Args:
        server: Of uvicorn.
    """

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


async def measure(rounds: int, requests: int) -> dict[str, list[float]]:
    """Microseconds of CPU of a request in each round, by way."""
    limits, backend = Limits(), LocalBackend([ModelSpec("tiny", "benchmarks.serving.models:Tiny")], Limits())
    await backend.start()
    app = App(backend, limits)
    ways = {"in a task": make_server(app, limits), "at once": make_server(app, limits, at_once=app.at_once)}
    loads = {name: Load(server) for name, server in ways.items()}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, load in loads.items():
            taken = await load.cpu_us(requests)
            if number:  # the first warms up
                found[name].append(taken)
    await backend.stop()
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving.tiny", description=__doc__)
    parser.add_argument("--rounds", type=Whole(1, 10_000), default=200, help="(default: %(default)s)")
    parser.add_argument(
        "--requests", type=Whole(_CONNECTIONS, 1_000_000), default=800, help="of a round (default: %(default)s)"
    )
    given = parser.parse_args()
    loop = require("uvloop", extra="serve").new_event_loop()
    found = loop.run_until_complete(measure(given.rounds, given.requests))
    print(
        f"load of the machine: {os.getloadavg()[0]:.1f}\n\n| a request is begun | least CPU µs | median |\n|---|---:|---:|"
    )
    for name, taken in found.items():
        print(f"| {name} | {min(taken):.1f} | {statistics.median(taken):.1f} |")


if __name__ == "__main__":
    main()
