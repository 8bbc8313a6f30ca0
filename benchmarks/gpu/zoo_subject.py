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

from . import onnxruntime_peer
from .ceilings import kernels
from .clock import Clock
from .running import Running
from .subject import cpu_engine
from .torch_peer import captured
from .zoo import Network, exported

_CALIBRATED = 4  # images


class ZooSubject:
    """A network with its inputs, and what it has to give for them.

    Args:
        network: Which.

    Attributes:
        network: The same.
        module: PyTorch's, float32 on the CPU.
        model: The same as ONNX, for any batch.
    """

    def __init__(self, network: Network) -> None:
        self.network, self.module = network, network.make()
        self.model: onnx.ModelProto = exported(network, self.module)

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
        return calibrate(self.model, MinMaxCalibrator(batches), engine=cpu_engine(), progress=False)

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

        Args:
            how: ``graph``, as it is; ``compile``, by torch.compile as it comes; or ``max-autotune``, which also times kernels.
            batch: Images of a run.
            clock: Whose stream it runs on.
        """
        torch.backends.cudnn.benchmark = True
        module = folded(self.module).cuda()
        given = torch.from_numpy(self.network.inputs(batch)).cuda()
        images, floats = given.dim() == 4, given.is_floating_point()
        module = module.to(torch.float16, memory_format=torch.channels_last) if images else module.half()
        net = module if how == "graph" else compiled(module, "default" if how == "compile" else f"{how}-no-cudagraphs")
        found = torch.empty(self.wanted(batch).shape, device="cuda")
        stream = torch.cuda.ExternalStream(clock.stream.ptr)

        def run() -> None:
            with torch.inference_mode():
                x = (
                    given.to(torch.float16, memory_format=torch.channels_last)
                    if images
                    else given.half()
                    if floats
                    else given
                )
                found.copy_(net(x))

        graph = captured(stream, run)

        def whole(x: np.ndarray) -> np.ndarray:
            with torch.cuda.stream(stream):
                given.copy_(torch.from_numpy(x))
                graph.replay()
            stream.synchronize()
            return found.cpu().numpy()

        return Running(
            whole, on_stream(stream, graph.replay), kernels(graph.raw_cuda_graph()), close=torch.cuda.empty_cache
        )

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
