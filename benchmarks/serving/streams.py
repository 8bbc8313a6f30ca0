"""Photos over gRPC: a stream with several on their way.

Messages are made before, and are sent and received as bytes: the client takes no more of the cores that the server has too than it must.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pytrtplugins.serving.model.tensors import to_bytes
from pytrtplugins.utils.optional import require

from .load import Outcome

_WAIT_S = 30.0


def stream(port: int, jpegs: Sequence[bytes], seconds: float, ahead: int, model: str = "animals") -> Outcome:
    """Send photos on one stream, ``ahead`` of them on their way at a time.

    Args:
        port: Of gRPC.
        jpegs: Taken in turn.
        seconds: How long.
        ahead: Photos that are on their way.
        model: That they are for.
    """
    grpc: Any = require("grpc", extra="grpc", package="grpcio")
    protocol: Any = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
    outcome, latencies, begun = Outcome(), [], deque()  # type: ignore[var-annotated]
    room, messages = threading.Semaphore(ahead), [_message(protocol, model, jpeg) for jpeg in jpegs]
    start, cpu = time.perf_counter(), time.process_time()

    def sent() -> Iterator[bytes]:
        while time.perf_counter() - start < seconds and room.acquire(timeout=_WAIT_S):
            begun.append(time.perf_counter())
            outcome.sent += 1
            yield messages[outcome.sent % len(messages)]

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
        try:
            for answer in call(sent(), timeout=seconds + _WAIT_S):
                latencies.append(time.perf_counter() - begun.popleft())
                room.release()
                if protocol.ModelStreamInferResponse.FromString(answer).error_message:
                    latencies.pop()
                    outcome.wrong[500] += 1
        except grpc.RpcError:  # what has no answer is lost
            pass
    outcome.seconds, outcome.cpu_s = time.perf_counter() - start, time.process_time() - cpu
    outcome.lost, outcome.latencies_s = len(begun), np.array(latencies)
    return outcome


def _message(protocol: Any, model: str, jpeg: bytes) -> bytes:
    request = protocol.ModelInferRequest(model_name=model, raw_input_contents=[to_bytes(np.array([jpeg], object))])
    request.inputs.add(name="image", datatype="BYTES", shape=[1])
    made: bytes = request.SerializeToString()
    return made
