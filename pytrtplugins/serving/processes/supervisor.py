"""Start CPU processes and engine processes, connect them, and replace those that die."""

from __future__ import annotations

import json
import logging
import mmap
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from ...errors import UnavailableError, UsageError
from ..access.access import Access
from ..model.spec import Limits, ModelSpec
from ..shared.anonymous_memory import anonymous_memory
from ..shared.control import Control
from ..shared.rate_limiter import RateLimiter
from ..shared.settings import SharedSettings
from ..shared.slots import Block
from ..shared.statistics import ROLES, Counts, Statistics
from .placement import Place

__all__ = ["CPU", "ENGINE", "Supervisor"]

CPU, ENGINE = ROLES
_log = logging.getLogger(__name__)
_DRAIN_S = 30.0
_WATCH_S = 0.5  # between looks whether processes hang
_YOUNG_S, _LONGEST_WAIT_S = 5.0, 10.0
_UNITS = 4096  # of each CPU process's memory: 256 MiB, if all are ever used at a time


@dataclass
class _Child:
    """A running child process."""

    role: str
    index: int
    process: subprocess.Popen[bytes]
    control: Control
    started: float
    ready: bool = False


class Supervisor:
    """Starts the processes of a server, and keeps them running.

    Args:
        specs: The models.
        limits: Of requests.
        sockets: One for each CPU process, all on one port; they stay open here, so that connections that wait for a process that dies are
            taken by the one that replaces it.
        places: What each engine process has.
        modules: Modules with plugins, which each process imports.
        grpc_address: Where all CPU processes serve gRPC, as host:port.
        access: Who may connect, and what is recorded.
        whole: What each CPU process has itself, where there are no engine processes.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        limits: Limits,
        sockets: Sequence[socket.socket],
        places: Sequence[Place],
        modules: Sequence[str] = (),
        grpc_address: str | None = None,
        access: Access | None = None,
        models_in_cpu_processes: Place | None = None,
    ) -> None:
        if not hasattr(os, "memfd_create"):
            raise UnavailableError("several processes need Linux (memfd).\nDo: pytrt serve --local ...")
        self._specs, self._limits, self._sockets, self._modules = specs, limits, sockets, modules
        self._grpc_address, self._access = grpc_address, access or Access()
        self._places, self._whole = places, models_in_cpu_processes
        self._wanted = [(ENGINE, index) for index in range(len(places))] + [
            (CPU, index) for index in range(len(sockets))
        ]
        self._blocks = [] if models_in_cpu_processes else [Block.create(_UNITS) for _ in sockets]
        self._board = SharedSettings.create()
        self._processes = (len(sockets), len(places))
        size = Counts.size(len(specs), *self._processes)
        self._memory = anonymous_memory("pytrt-counts", size)
        self._counts = Counts(len(specs), *self._processes, memoryview(mmap.mmap(self._memory, size)))
        self._meter = RateLimiter.create(len(sockets)) if self._access.keys else None
        self._shared = [self._memory, self._board, *([] if self._meter is None else [self._meter])]
        self._children: dict[tuple[str, int], _Child] = {}
        self._again: dict[tuple[str, int], float] = {}  # when to start those that ended
        self._waits: dict[tuple[str, int], float] = {}  # how long that took the last time
        self._selector = selectors.DefaultSelector()
        self._draining = False

    def run(self, announce: Callable[[], object]) -> None:
        """Serve until SIGTERM or SIGINT; what was accepted until then is answered.

        Raises:
            UsageError: a model cannot be loaded.
        """
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        woken.setblocking(False)
        handlers = {number: signal.signal(number, self._stop) for number in (signal.SIGTERM, signal.SIGINT)}
        if self._access.has_files:
            handlers[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        before = signal.set_wakeup_fd(woken.fileno())
        self._selector.register(wake, selectors.EVENT_READ, None)
        try:
            self._start_all(ENGINE)
            self._start_all(CPU)
            if not self._draining:
                announce()
            while not self._draining:
                self._step()
        finally:
            self._end()
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            wake.close()
            woken.close()

    @property
    def statistics(self) -> Sequence[Statistics]:
        """Request counts of each model."""
        return self._counts.statistics

    def _stop(self, number: int, frame: Any) -> None:
        self._draining = True

    def _start_all(self, role: str) -> None:
        """Start all processes of a kind, and wait until they are ready."""
        keys = [key for key in self._wanted if key[0] == role]
        for key in keys:
            self._start(*key)
        while not self._draining and not all(key in self._children and self._children[key].ready for key in keys):
            self._step(starting=True)

    def _start(self, role: str, index: int) -> None:
        ours, theirs = Control.pair()
        listening = [self._sockets[index].fileno()] if role == CPU else []
        blocks = self._blocks[index : index + 1] if role == CPU else self._blocks
        place = self._places[index] if role == ENGINE else self._whole
        arguments = {
            "role": role,
            "index": index,
            "specs": [asdict(spec) for spec in self._specs],
            "limits": asdict(self._limits),
            "modules": list(self._modules),
            "control": theirs.fileno(),
            "blocks": blocks,
            "counts": self._memory,
            "board": self._board,
            "processes": self._processes,
            "listening": listening,
            "grpc": self._grpc_address,
            "access": asdict(self._access),
            "meter": self._meter,
            "place": None if place is None else astuple(place),
        }
        if role == ENGINE:
            self._counts.signs.begin(index)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytrtplugins.serving", json.dumps(arguments)],
            pass_fds=[theirs.fileno(), *blocks, *self._shared, *listening],
            start_new_session=True,  # Ctrl-C is for the supervisor, which ends the others in order
        )
        theirs.close()
        child = _Child(role, index, process, ours, time.monotonic())
        self._children[role, index] = child
        self._selector.register(ours.sock, selectors.EVENT_READ, child)
        for other in list(self._children.values()):
            if other.role != role:
                _connect(child, other)

    def _step(self, starting: bool = False) -> None:
        """Wait for the next event, and handle it."""
        now = time.monotonic()
        for key in [key for key, when in self._again.items() if when <= now]:
            del self._again[key]
            self._start(*key)
        self._end_those_that_hang(now)
        soonest = min([now + _WATCH_S, *self._again.values()])
        for event, _ in self._selector.select(max(0.0, soonest - time.monotonic())):
            if event.data is None:
                event.fileobj.recv(4096)  # type: ignore[union-attr]  # the socket that signals wake
            else:
                self._hear(event.data, starting)

    def _end_those_that_hang(self, now: float) -> None:
        """End engine processes that do not give the sign of life that they announced; `_hear` replaces them."""
        for child in self._children.values():
            if child.role == ENGINE and self._counts.signs.is_late(child.index, now):
                _log.error("engine process %d hangs, and is ended: a run took longer than run_seconds", child.index)
                self._counts.signs.end(child.index)
                child.process.kill()

    def _hear(self, child: _Child, starting: bool) -> None:
        received = child.control.receive()
        if received is not None:
            message, _ = received
            child.ready = child.ready or "ready" in message
            self._count()
            if "failed" in message and starting:
                raise UsageError(message["failed"])
            if "failed" in message:
                _log.error("%s process %d: %s", child.role, child.index, message["failed"])
            return
        self._forget(child)
        self._count()
        code = child.process.wait()
        if starting and not self._draining:
            raise UsageError(
                f"a process of the server ended with code {code} while it started.\nDo: pytrt serve --local ..."
            )
        _log.error("%s process %d ended with code %d; another one is started", child.role, child.index, code)
        young = time.monotonic() - child.started < _YOUNG_S
        waited = self._waits.get((child.role, child.index), 0.0)
        wait = min(_LONGEST_WAIT_S, max(0.1, 2 * waited)) if young else 0.0
        self._waits[child.role, child.index] = wait
        self._again[child.role, child.index] = time.monotonic() + wait
        self._counts.processes.restarted(child.role)

    def _count(self) -> None:
        self._counts.processes.runs(Counter(child.role for child in self._children.values() if child.ready))

    def _forget(self, child: _Child) -> None:
        self._selector.unregister(child.control.sock)
        child.control.close()
        del self._children[child.role, child.index]

    def _end(self) -> None:
        """End the CPU processes, once they have answered, then the engine processes."""
        for role in (CPU, ENGINE):
            children = [child for child in self._children.values() if child.role == role]
            for child in children:
                child.control.send({"drain": True})
            until = time.monotonic() + _DRAIN_S
            for child in children:
                try:
                    child.process.wait(max(0.0, until - time.monotonic()))
                except subprocess.TimeoutExpired:
                    child.process.kill()
                    child.process.wait()
                self._forget(child)
        for descriptor in (*self._blocks, *self._shared):
            os.close(descriptor)


def _connect(child: _Child, other: _Child) -> None:
    """Send two processes the two ends of a stream."""
    one, two = socket.socketpair()
    with one, two:
        child.control.send({"peer": other.index}, one)
        other.control.send({"peer": child.index}, two)
