"""Photos over gRPC: a stream with several on their way."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from pytrtplugins.utils.optional import require

from .load import Outcome

_WAIT_S = 30.0


def stream(port: int, jpegs: Sequence[bytes], seconds: float, ahead: int) -> Outcome:
    """Send photos on one stream, ``ahead`` of them on their way at a time.

    Args:
        port: Of gRPC.
        jpegs: Taken in turn; the model is named animals.
        seconds: How long.
        ahead: Photos that are on their way.
    """
    library: Any = require("tritonclient.grpc", extra="grpc", package="tritonclient")
    outcome, latencies, begun = Outcome(), [], deque()  # type: ignore[var-annotated]
    room = threading.Semaphore(ahead)

    def answered(result: Any, error: Any) -> None:
        sent = begun.popleft()
        if error is None:
            latencies.append(time.perf_counter() - sent)
        else:
            outcome.wrong[500] += 1
        room.release()

    inputs = []
    for jpeg in jpegs:
        given = library.InferInput("image", [1], "BYTES")
        given.set_data_from_numpy(np.array([jpeg], object))
        inputs.append([given])
    client = library.InferenceServerClient(f"127.0.0.1:{port}")
    client.start_stream(answered)
    start, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        if not room.acquire(timeout=_WAIT_S):
            break
        begun.append(time.perf_counter())
        client.async_stream_infer("animals", inputs[outcome.sent % len(inputs)])
        outcome.sent += 1
    until = time.perf_counter() + _WAIT_S
    while begun and time.perf_counter() < until:
        time.sleep(0.001)
    outcome.seconds, outcome.cpu_s = time.perf_counter() - start, time.process_time() - cpu
    outcome.lost, outcome.latencies_s = len(begun), np.array(latencies)
    client.stop_stream()
    client.close()
    return outcome
