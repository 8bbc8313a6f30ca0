"""Photos over gRPC: streams with several on their way, each on a connection of its own.

Messages are made before, and are sent and received as bytes: the client takes no more of the cores that the server has too than it must.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from pytrtplugins.serving.model.tensors import to_bytes
from pytrtplugins.utils.optional import require

from .load import Outcome

_WAIT_S = 30.0
_OWN = [("grpc.use_local_subchannel_pool", 1)]  # without it, all channels of a process share one connection


def stream(
    port: int, jpegs: Sequence[bytes], seconds: float, ahead: int, model: str = "animals", connections: int = 1
) -> Outcome:
    """Send photos on streams, ``ahead`` of them on their way at a time.

    Args:
        port: Of gRPC.
        jpegs: Taken in turn.
        seconds: How long.
        ahead: Photos that are on their way, on all streams together.
        model: That they are for.
        connections: With a stream each; a server of several processes has each of them in one.
    """
    protocol: Any = require("tritonclient.grpc.service_pb2", extra="grpc", package="tritonclient")
    messages, cpu = [_message(protocol, model, jpeg) for jpeg in jpegs], time.process_time()
    one = partial(_one, port, messages, seconds, protocol)
    with ThreadPoolExecutor(connections) as threads:
        found = Outcome.joined(list(threads.map(one, _shares(ahead, connections))))
    found.cpu_s = time.process_time() - cpu
    return found


def _shares(ahead: int, connections: int) -> list[int]:
    """Photos that are on their way on each connection: one at least."""
    less, more = divmod(ahead, connections)
    return [max(1, less + (number < more)) for number in range(connections)]


def _one(port: int, messages: Sequence[bytes], seconds: float, protocol: Any, ahead: int) -> Outcome:
    grpc: Any = require("grpc", extra="grpc", package="grpcio")
    outcome, latencies, begun = Outcome(), [], deque()  # type: ignore[var-annotated]
    room, start = threading.Semaphore(ahead), time.perf_counter()

    def sent() -> Iterator[bytes]:
        while time.perf_counter() - start < seconds and room.acquire(timeout=_WAIT_S):
            begun.append(time.perf_counter())
            outcome.sent += 1
            yield messages[outcome.sent % len(messages)]

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=_OWN) as channel:
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
    outcome.seconds = time.perf_counter() - start
    outcome.lost, outcome.latencies_s = len(begun), np.array(latencies)
    return outcome


def _message(protocol: Any, model: str, jpeg: bytes) -> bytes:
    request = protocol.ModelInferRequest(model_name=model, raw_input_contents=[to_bytes(np.array([jpeg], object))])
    request.inputs.add(name="image", datatype="BYTES", shape=[1])
    made: bytes = request.SerializeToString()
    return made
