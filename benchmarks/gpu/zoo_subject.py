"""A network of the zoo that is ready to be raced: by PyTorch, by engine ``cuda`` and by onnxruntime, on the same images."""

from __future__ import annotations

import contextlib
import copy
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import torch

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda import CudaEngine

from ..pages.runners import TORCH_EAGER, TORCH_GRAPH
from . import onnxruntime_peer
from .ceilings import kernels
from .clock import Clock
from .running import Running
from .subject import calibration_engine
from .torch_peer import captured, warm_up
from .zoo import Network, exported

_CALIBRATED = 4  # images


class ZooSubject:
    """A network with its inputs, and what it has to give for them.

    Args:
        network: Which.
        made: Its module and its ONNX model; without them they are made here.
        exporting: How many other networks worker processes were still exporting then.

    Attributes:
        network: The same.
        module: PyTorch's, float32 on the CPU.
        model: The same as ONNX, for any batch.
        exporting: As it was given; it may have made the builds slower.
    """

    def __init__(
        self, network: Network, made: tuple[torch.nn.Module, onnx.ModelProto] | None = None, exporting: int = 0
    ) -> None:
        self.network, self.exporting = network, exporting
        self.module = made[0] if made else network.make()
        self.model: onnx.ModelProto = made[1] if made else exported(network, self.module)

    @functools.cache  # noqa: B019 - subjects live as long as the session
    def wanted(self, batch: int) -> np.ndarray:
        """PyTorch's output in float32, computed on the GPU without TF32."""
        with exact_products(), torch.inference_mode():
            module = copy.deepcopy(self.module).cuda()
            return module(torch.from_numpy(self.network.inputs(batch)).cuda()).cpu().numpy()

    def error(self, found: np.ndarray) -> float:
        """Distance of an output from PyTorch's in float32, relative to the norm of that."""
        wanted = self.wanted(len(found))
        return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))

    @functools.cached_property
    def table(self) -> CalibrationTable:
        """Scales by min-max."""
        images = self.network.inputs(_CALIBRATED)
        batches = [{self.model.graph.input[0].name: image[None]} for image in images]
        return calibrate(self.model, MinMaxCalibrator(batches), engine=calibration_engine(), progress=False)

    def build(self, precision: str, batch: int, disable: tuple[str, ...] = ()) -> tuple[CudaEngine, float]:
        """Engine ``cuda``, and how many seconds its build took."""
        table = self.table if precision == "int8" else None
        settings = {"batch": [batch], "disable": list(disable)}
        begin = time.perf_counter()
        engine = ptp.build(
            self.model, engine="cuda", precision=precision, calibration=table, settings=settings, progress=False
        )
        assert isinstance(engine, CudaEngine)
        return engine, time.perf_counter() - begin

    def pytorch(self, how: str, batch: int, clock: Clock) -> Running:
        """PyTorch in FP16 in one CUDA graph, with channels last and folded batch norms.

        A module that does not run with FP16 weights runs under autocast; one that cannot be captured runs eagerly. The facts of
        what runs say so: ``peer``, the runner's name, and ``peer_note``.

        Args:
            how: ``graph``, as it is; ``compile``, by torch.compile as it comes; or ``max-autotune``, which also times kernels.
            batch: Images of a run.
            clock: Whose stream it runs on.
        """
        torch.backends.cudnn.benchmark = True
        given = torch.from_numpy(self.network.inputs(batch)).cuda()
        stream = torch.cuda.ExternalStream(clock.stream.ptr)
        mode = "default" if how == "compile" else f"{how}-no-cudagraphs"
        wrap = (lambda module: module) if how == "graph" else functools.partial(compiled, mode=mode)
        net, note = half_precision(folded(self.module).cuda(), given, wrap)
        found = torch.empty(self.wanted(batch).shape, device="cuda")

        def run() -> None:
            with torch.inference_mode():
                found.copy_(net(given))

        replay, graph, failure = graph_or_eager(stream, run)

        def whole(x: np.ndarray) -> np.ndarray:
            with torch.cuda.stream(stream):
                given.copy_(torch.from_numpy(x))
                replay()
            stream.synchronize()
            return found.cpu().numpy()

        facts = {"peer": TORCH_GRAPH if graph is not None else TORCH_EAGER}
        if notes := "; ".join(filter(None, (note, failure))):
            facts["peer_note"] = notes
        count = None if graph is None else kernels(graph.raw_cuda_graph())
        return Running(whole, on_stream(stream, replay), count, facts=facts, close=torch.cuda.empty_cache)

    def onnxruntime(self, batch: int, clock: Clock) -> Running:
        """onnxruntime's CUDA provider in FP16, in one CUDA graph."""
        ends = self.network.inputs(batch), np.zeros_like(self.wanted(batch))
        return onnxruntime_peer.session(copy.deepcopy(self.model), "FP16", *ends, clock)


def folded(module: torch.nn.Module) -> torch.nn.Module:
    """A copy with batch norms inside the convolutions, where PyTorch's tracer can follow the module; else the copy alone."""
    from torch.fx.experimental.optimization import fuse

    try:
        return fuse(module).eval()
    except Exception:  # of whatever kind the module's own code raises on a traced value
        return copy.deepcopy(module)


def half_precision(
    module: torch.nn.Module, given: torch.Tensor, wrap: Callable[[Any], Any] = lambda module: module
) -> tuple[Callable[[torch.Tensor], torch.Tensor], str]:
    """A function of the input that computes in FP16, and a note on how; images are in channels-last order.

    Args:
        module: It is converted to FP16; where it cannot run so, a copy stays in float32 and runs under autocast.
        given: An input of it on the same device, float32 or integers.
        wrap: Applied to the module that runs, such as `compiled`.
    """
    images, floats, exact = given.dim() == 4, given.is_floating_point(), copy.deepcopy(module)
    half = module.to(torch.float16, memory_format=torch.channels_last) if images else module.half()

    def to_half(x: torch.Tensor) -> torch.Tensor:
        if images:
            return x.to(torch.float16, memory_format=torch.channels_last)
        return x.half() if floats else x

    try:
        with torch.inference_mode():
            half(to_half(given))
    except (RuntimeError, TypeError, ValueError) as error:
        note, net = f"autocast, since FP16 weights fail: {first_line(error)}", wrap(exact)

        def with_autocast(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(given.device.type, torch.float16):
                return net(x.contiguous(memory_format=torch.channels_last) if images else x)

        return with_autocast, note
    net = wrap(half)
    return lambda x: net(to_half(x)), ""


def graph_or_eager(stream: Any, run: Callable[[], None]) -> tuple[Callable[[], object], Any, str]:
    """What queues a run on PyTorch's current stream, the CUDA graph that it replays, and why there is none where capture fails."""
    with torch.cuda.stream(stream):  # a capture that fails leaves its own stream the current one
        warm_up(stream, run)
        try:
            graph = captured(stream, run)
        except RuntimeError as error:
            return run, None, f"no CUDA graph: {first_line(error)}"
    return graph.replay, graph, ""


def first_line(error: Exception) -> str:
    """The first line of an error's text, or its type where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def compiled(module: torch.nn.Module, mode: str) -> Any:
    """A module as torch.compile makes it, for the shapes of its inputs alone, whatever was compiled before in this process."""
    torch._dynamo.reset()  # modules of one class share a limit, behind which nothing is compiled, without an error
    return torch.compile(module, mode=mode, dynamic=False)


def on_stream(stream: Any, call: Callable[[], object]) -> Callable[[], None]:
    def queue() -> None:
        with torch.cuda.stream(stream):
            call()

    return queue


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """Within it, PyTorch computes products of float32 without TF32."""
    kinds = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [kind.allow_tf32 for kind in kinds]
    for kind in kinds:
        kind.allow_tf32 = False
    try:
        yield
    finally:
        for kind, allowed in zip(kinds, before, strict=True):
            kind.allow_tf32 = allowed
