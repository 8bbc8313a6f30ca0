"""libdarknet in a process of its own: darknet ends its process on errors, and a network that it reads past crashes it.

`DarknetWorker` starts the process, and another one after a crash; `serve` is what the process runs.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from tests.oracles.libdarknet import FloatArray, LibDarknet

_ROOT = Path(__file__).parents[2]
_LIMIT_SECONDS = 60.0
_MOST_RUNS = 500  # free_network forgets some arrays


@dataclass(frozen=True)
class DarknetRun:
    """What darknet makes of a network.

    Attributes:
        shapes: Of each layer: (C, H, W), or (values,) where darknet keeps no map.
        outputs: Of each layer: images x values.
    """

    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[FloatArray, ...]


class DarknetCrashError(Exception):
    """Darknet ended, or did not end in time; the message has the exit status and its last words."""


class DarknetWorker:
    """Runs networks in another process; use it as a context manager, or `close` it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._runs = 0

    def __enter__(self) -> DarknetWorker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def run(self, cfg: Path, weights: Path | None, images: FloatArray) -> DarknetRun:
        """Load a network and predict each of the (C, H, W) images.

        Raises:
            DarknetCrashError: the process ended, by itself or after a minute.
        """
        if self._runs >= _MOST_RUNS:
            self.close()
        self._runs += 1
        process = self._process = self._process or _start()
        timer = threading.Timer(_LIMIT_SECONDS, process.kill)
        timer.start()
        try:
            _send(process.stdin, (str(cfg), weights and str(weights), images))
            answer = pickle.load(process.stdout)  # type: ignore[arg-type]
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            status = process.wait()
            self.close()
            raise DarknetCrashError(f"darknet ended with status {status} on {cfg}") from error
        finally:
            timer.cancel()
        if isinstance(answer, Exception):
            raise answer
        run: DarknetRun = answer
        return run

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.kill()
            self._process.wait()
        self._process, self._runs = None, 0


def _start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tests.oracles.darknet_worker import serve; serve()"]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _send(stream: IO[bytes] | None, message: Any) -> None:
    if stream is None:
        raise ValueError("the process has no pipe")
    pickle.dump(message, stream, protocol=pickle.HIGHEST_PROTOCOL)
    stream.flush()


def _predict(library: LibDarknet, cfg: str, weights: str | None, images: FloatArray) -> DarknetRun:
    with library.load(cfg, weights) as network:
        layers = range(len(network))
        rows = []
        for image in images:
            network.predict(image)
            rows.append([network.layer_output(index) for index in layers])
        return DarknetRun(
            tuple(network.layer_shape(index) for index in layers), tuple(map(np.stack, zip(*rows, strict=True)))
        )


def serve() -> None:
    """Answer requests until the input ends. What darknet prints goes nowhere, so answers get a descriptor of their own."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    library = LibDarknet()
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = _predict(library, *request)
        except Exception as error:  # the other process raises it
            answer = error
        _send(answers, answer)
