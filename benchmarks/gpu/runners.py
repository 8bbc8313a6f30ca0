"""One function per runner: what takes photos and gives the region layer's values, from the host to the host and on the GPU."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.decompose import inline_plugins

from .ceilings import kernels
from .clock import Clock
from .subject import Subject


@dataclass(frozen=True)
class Running:
    """A network ready to run.

    Attributes:
        run: Photos → head, NumPy to NumPy.
        queue: Queues the network alone on the clock's stream: from float32 photos on the GPU to the float32 head there. None
            where a library's interface goes from the host to the host only.
        kernels: That one run launches; None where it is unknown.
        bytes: Of the activations' memory; None likewise.
        facts: What else the record keeps.
        close: Frees it.
    """

    run: Callable[[np.ndarray], np.ndarray]
    queue: Callable[[], object] | None = None
    kernels: int | None = None
    bytes: int | None = None
    facts: dict[str, Any] | None = None
    close: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Runner:
    """A way to run the network.

    Attributes:
        name: What stands in the table.
        precision: Of the products.
        make: Subject, clock, batch → what runs.
        most: Largest batch.
        slow: Whether it takes a minute or more to make ready; such rows come last.
    """

    name: str
    precision: str
    make: Callable[[Subject, Clock, int], Running]
    most: int = 32
    slow: bool = False


def build(subject: Subject, precision: str, batch: int, without: tuple[str, ...] = ()) -> ptp.Engine:
    """Engine ``cudnn``, perhaps without some of its steps; the first of a problem chooses its kernels by timing."""
    return ptp.build(
        subject.model,
        engine="cudnn",
        precision=precision,
        calibration=subject.table if precision == "int8" else None,
        settings={"batch": [batch], "without": list(without)},
        progress=False,
    )


def network(engine: Any, batch: int, clock: Clock) -> Running:
    """An engine ``cudnn`` whose network has one input, one output and a free batch."""
    context, (given,), (found,) = engine.create_context(), engine.inputs, engine.outputs
    execution = engine.execution({dim.name: batch for dim in given.dims if not isinstance(dim, int)})
    if "graph" not in engine.without:
        execution.capture(clock.stream)

    def close() -> None:
        execution.close()
        context.close()

    graphs = [segment.graph for segment in execution.segments]
    return Running(
        lambda x: context.run({given.name: x})[found.name],
        lambda: execution.queue(clock.stream),
        None if None in graphs else sum(kernels(graph.graph) for graph in graphs),
        execution.plan.memory.bytes,
        close=close,
    )


def ours(precision: str, without: tuple[str, ...] = ()) -> Callable[[Subject, Clock, int], Running]:
    """This package."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        begin = time.perf_counter()
        engine = build(subject, precision, batch, without)
        seconds = time.perf_counter() - begin
        return replace(network(engine, batch, clock), facts={"build_s": seconds})

    return make


def pytorch(precision: str, how: str) -> Callable[[Subject, Clock, int], Running]:
    """PyTorch: ``eager``, one CUDA ``graph``, or ``compile`` with max-autotune in one CUDA graph."""

    def make(subject: Subject, clock: Clock, batch: int) -> Running:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA")
        return _pytorch(torch, precision, how, subject, clock, batch)

    return make


def _pytorch(torch: Any, precision: str, how: str, subject: Subject, clock: Clock, batch: int) -> Running:
    from .torch_net import TorchNet

    begin = time.perf_counter()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != "FP32"
    kind = torch.float16 if precision == "FP16" else torch.float32
    net = TorchNet(subject.one).eval().cuda().to(kind, memory_format=torch.channels_last)
    body = torch.compile(net, mode="max-autotune-no-cudagraphs") if how == "compile" else net
    pinned = torch.empty(subject.photos[:batch].shape).pin_memory()
    pinned.copy_(torch.from_numpy(subject.photos[:batch]))
    given, stream = pinned.cuda(), torch.cuda.ExternalStream(clock.stream.ptr)
    result = torch.empty((batch, *subject.head.shape[1:])).pin_memory()

    def network() -> Any:
        with torch.inference_mode():
            return body(given.to(kind, memory_format=torch.channels_last)).float().contiguous()

    def whole() -> None:
        given.copy_(pinned, non_blocking=True)
        result.copy_(network(), non_blocking=True)

    def captured(function: Callable[[], Any]) -> Callable[[], object]:
        with torch.cuda.stream(stream):
            for _ in range(3):
                function()
        stream.synchronize()
        if how == "eager":
            return function
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, stream=stream):
            function()
        graph.instantiate()
        graphs.append(graph)
        return graph.replay  # type: ignore[no-any-return]

    graphs: list[Any] = []
    core, both = captured(network), captured(whole)

    def run(x: np.ndarray) -> np.ndarray:
        np.copyto(pinned.numpy(), x)
        with torch.cuda.stream(stream):
            both()
        stream.synchronize()
        return result.numpy().copy()

    def queue() -> None:
        with torch.cuda.stream(stream):
            core()

    count = kernels(graphs[0].raw_cuda_graph()) if graphs else None
    return Running(run, queue, count, facts={"build_s": time.perf_counter() - begin}, close=torch.cuda.empty_cache)


def darknet(subject: Subject, clock: Clock, batch: int) -> Running:
    """darknet through the library at DARKNET_LIBRARY, if that was built for a GPU."""
    from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet

    try:
        library = LibDarknet()
    except DarknetUnavailableError as error:
        pytest.skip(str(error))
    if not library.on_gpu:
        pytest.skip(f"{library.path} was built without a GPU; build darknet with GPU=1 and set DARKNET_LIBRARY")
    cfg = subject.folder / f"batch-{batch}.cfg"
    text = (subject.folder / "yolov2-voc.cfg").read_text()
    cfg.write_text(
        re.sub(
            r"^subdivisions *=.*",
            "subdivisions=1",
            re.sub(r"^batch *=.*", f"batch={batch}", text, flags=re.M),
            flags=re.M,
        )
    )
    network = library.load(cfg, subject.folder / "yolov2-voc.weights", batch)
    return Running(
        lambda x: network.predict(x, quiet=False).reshape(batch, *subject.head.shape[1:]), close=network.close
    )


def onnxruntime(subject: Subject, clock: Clock, batch: int) -> Running:
    """onnxruntime's CUDA provider as a careful user drives it: plugins written out with standard operators."""
    ort = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        pytest.skip("onnxruntime has no CUDA provider (pip install onnxruntime-gpu)")
    data = inline_plugins(subject.model).SerializeToString()
    session = ort.InferenceSession(data, providers=["CUDAExecutionProvider"])
    name = session.get_inputs()[0].name
    return Running(lambda x: session.run(None, {name: x})[0])


NAME = "pytrtplugins"
BASELINE = Runner(NAME, "FP16", ours("fp16"))
RUNNERS = (
    BASELINE,
    Runner(NAME, "INT8", ours("int8")),
    Runner("darknet", "TF32", darknet, most=8),
    Runner("PyTorch, CUDA graph", "FP16", pytorch("FP16", "graph")),
    Runner("PyTorch", "FP16", pytorch("FP16", "eager")),
)
SINGLES = (
    Runner(NAME, "TF32", ours("tf32")),
    Runner("PyTorch, CUDA graph", "TF32", pytorch("TF32", "graph")),
    Runner(NAME, "FP32", ours("fp32")),
    Runner("PyTorch, CUDA graph", "FP32", pytorch("FP32", "graph")),
    Runner("onnxruntime, CUDA", "TF32", onnxruntime),
    Runner("PyTorch, max-autotune", "FP16", pytorch("FP16", "compile"), slow=True),
)
"""Raced with batch 1 only."""
