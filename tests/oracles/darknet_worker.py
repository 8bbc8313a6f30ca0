"""libdarknet in a process of its own: darknet ends its process on errors, and a network that it reads past crashes it.

`DarknetWorker` starts the process, and another one after a crash; `serve` is what the process runs.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from tests.oracles.libdarknet import FloatArray, LibDarknet

_ROOT = Path(__file__).parents[2]
_LIMIT_SECONDS = 60.0
_MAX_RUNS = 500  # free_network forgets some arrays
_LAST_WORDS = 500  # bytes


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
        self._words: IO[bytes] | None = None
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
        if self._runs >= _MAX_RUNS:
            self.close()
        self._runs += 1
        if self._process is None:
            self._words = tempfile.TemporaryFile()  # noqa: SIM115
            self._process = _start(self._words)
        process, words = self._process, self._words
        words.seek(0)  # the process shares the place
        words.truncate()
        timer = threading.Timer(_LIMIT_SECONDS, process.kill)
        timer.start()
        try:
            _send(process.stdin, cfg=str(cfg), weights=str(weights or ""), images=images)
            answer = _receive(process.stdout)
        except (EOFError, BrokenPipeError) as error:
            status = process.wait()
            words.seek(0)
            last = words.read()[-_LAST_WORDS:].decode(errors="replace")
            self.close()
            raise DarknetCrashError(f"darknet ended with status {status} on {cfg}: {last}") from error
        finally:
            timer.cancel()
        if "error" in answer:
            raise RuntimeError(str(answer["error"]))
        layers = range(len(answer) // 2)
        shapes = tuple(tuple(map(int, answer[f"shape{index}"])) for index in layers)
        return DarknetRun(shapes, tuple(answer[f"output{index}"] for index in layers))

    def close(self) -> None:
        """End the process; a second call does nothing."""
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
            self._process.kill()
            self._process.wait()
        if self._words is not None:
            self._words.close()
        self._process, self._words, self._runs = None, None, 0


def _start(words: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", "from tests.oracles.darknet_worker import serve; serve()"]
    return subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words)


def _send(stream: IO[bytes] | None, **arrays: Any) -> None:
    """One message: its length in eight bytes, then an .npz of its arrays."""
    if stream is None:
        raise ValueError("the process has no pipe")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    stream.write(len(buffer.getbuffer()).to_bytes(8, "little"))
    stream.write(buffer.getbuffer())
    stream.flush()


def _receive(stream: IO[bytes] | None) -> dict[str, Any]:
    """The other end of `_send`; EOFError when the sender has ended."""
    if stream is None:
        raise ValueError("the process has no pipe")
    header = stream.read(8)
    length = int.from_bytes(header, "little")
    message = stream.read(length)
    if len(header) < 8 or len(message) < length:
        raise EOFError("the message ends early")
    with np.load(io.BytesIO(message), allow_pickle=False) as arrays:
        return dict(arrays)


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
    """Answer requests until the input ends. Answers get a descriptor of their own; what darknet prints is standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    library = LibDarknet(prints_to=2)
    while True:
        try:
            request = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            run = _predict(library, str(request["cfg"]), str(request["weights"]) or None, request["images"])
        except Exception as error:  # the other process raises it
            _send(answers, error=f"{type(error).__name__}: {error}")
            continue
        shapes = {f"shape{index}": np.array(shape, np.int64) for index, shape in enumerate(run.shapes)}
        _send(answers, **shapes, **{f"output{index}": out for index, out in enumerate(run.outputs)})
