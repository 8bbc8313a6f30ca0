"""A mixed load: tiny tensors, images as tensors, photos, gRPC, and requests that are wrong."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytrtplugins.utils.optional import require

from . import photos
from .load import Clients, Exchange, Load, Outcome
from .servers import Server, own, post

_GRPC_WAIT_S = 60


@dataclass(frozen=True)
class Mixed:
    """What is sent, with requests a second of each kind.

    Attributes:
        kinds: Requests with their answers over HTTP, by the names of kinds.
        rates: Of each kind; ``gRPC`` is one of them.
        connections: Of each kind.
    """

    kinds: Mapping[str, Sequence[Exchange]]
    rates: Mapping[str, float]
    connections: int = 8

    def begin(self, clients: Clients, server: Server, grpc_port: int, seconds: float) -> dict[str, Future[Outcome]]:
        """Send it; each kind from a process of its own."""
        begun = {
            kind: clients.begin(Load(server.port, exchanges, seconds, self.connections, self.rates[kind], seed))
            for seed, (kind, exchanges) in enumerate(self.kinds.items(), 1)
        }
        begun["gRPC"] = clients.call(_grpc, grpc_port, seconds, self.rates["gRPC"])
        return begun


def start(folder: Path, grpc_port: int, cpu: int, gpu: int, *options: object) -> Server:
    """The server that gets it: two trivial models and the detector."""
    models = [
        "benchmarks.serving.models:Tiny",
        "benchmarks.serving.models:Raw",
        f"animals={photos.animals_engine(folder)}",
    ]
    command = own("soak", models, "--cpu", cpu, "--gpu", gpu, "--grpc-port", grpc_port, *options)
    return Server(command, Exchange(post("/v2/models/tiny/infer", bytes(64), Inference_Header_Content_Length=0)))


def mixed(folder: Path, jpegs: Sequence[bytes], rates: dict[str, float]) -> Mixed:
    """The load; what is expected comes from NumPy and from the library, not from the server."""
    rows = [np.arange(16, dtype=np.float32) + number for number in range(50)]
    images = [np.full((416, 416, 3), number, np.uint8) for number in range(3)]
    kinds = {
        "tiny tensors": [_tensor("tiny", row, float(row.sum())) for row in rows],
        "images as tensors": [_tensor("raw", image, 16.0 * image[0, 0, 0]) for image in images],
        "photos": photos.exchanges(photos.animals_engine(folder), jpegs),
        "wrong requests": list(_wrong(jpegs[0])),
    }
    return Mixed(kinds, rates)


def _tensor(model: str, array: np.ndarray, total: float) -> Exchange:
    request = post(f"/v2/models/{model}/infer", array.tobytes(), Inference_Header_Content_Length=0)
    output = {"name": "y", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}
    said = {"model_name": model, "model_version": "1", "outputs": [output]}
    return Exchange(request, json.dumps(said, separators=(",", ":")).encode() + np.float32(total).tobytes())


def _wrong(jpeg: bytes) -> Sequence[Exchange]:
    tiny = "/v2/models/tiny/infer"
    return [
        Exchange(post(tiny, b"{"), None, 400),
        Exchange(post(tiny, bytes(63), Inference_Header_Content_Length=0), None, 400),
        Exchange(post(tiny, b'{"inputs":[{"name":"z"}]}'), None, 400),
        Exchange(post(tiny, bytes(10), Content_Encoding="gzip"), None, 400),
        Exchange(post("/v2/models/nothing/infer", bytes(64)), None, 404),
        Exchange(post("/v1/detect", jpeg[: len(jpeg) // 4], Content_Type="image/jpeg"), None, 400),
        Exchange(post("/v1/detect", b"no image", Content_Type="image/jpeg"), None, 400),
        Exchange(b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n", None, 404),
    ]


def _grpc(port: int, seconds: float, rate: float) -> Outcome:
    """Tiny tensors over gRPC at planned times, one after the other."""
    library = require("tritonclient.grpc", extra="grpc", package="tritonclient")
    client = library.InferenceServerClient(f"127.0.0.1:{port}")
    outcome, latencies = Outcome(), []
    begun, cpu, number = time.perf_counter(), time.process_time(), 0
    while number / rate < seconds:
        planned = begun + number / rate
        time.sleep(max(0.0, planned - time.perf_counter()))
        row = np.arange(16, dtype=np.float32)[None] + number % 1000
        given = library.InferInput("x", row.shape, "FP32")
        given.set_data_from_numpy(row)
        outcome.sent += 1
        number += 1
        try:
            answer = client.infer("tiny", [given], client_timeout=_GRPC_WAIT_S).as_numpy("y")
        except library.InferenceServerException:
            outcome.lost += 1
            continue
        if answer.tolist() == [[float(row.sum())]]:
            latencies.append(time.perf_counter() - planned)
        else:
            outcome.wrong[200] += 1
    client.close()
    outcome.latencies_s, outcome.seconds = np.array(latencies), time.perf_counter() - begun
    outcome.cpu_s = time.process_time() - cpu
    return outcome
