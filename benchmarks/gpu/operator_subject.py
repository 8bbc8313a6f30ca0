"""A single operator that is ready to be raced: by engine ``cuda`` and by PyTorch, on the same arrays on the GPU."""

from __future__ import annotations

import copy
import time

import numpy as np
import torch

import pytrtplugins as ptp
from pytrtplugins.engines.cuda import CudaEngine

from .ceilings import kernels
from .clock import Clock
from .operator_cases import Case, exported
from .operator_int8 import quantized, quantized_values, round_weights
from .ours import step_facts
from .running import Running
from .torch_peer import captured
from .zoo_subject import compiled, exact_products, on_stream

_TYPES = {"FP32": torch.float32, "FP16": torch.float16, "INT8": torch.float16}


class OperatorSubject:
    """An operator in one precision: its inputs are linear arrays of that type on the GPU, and so is its result.

    Args:
        case: Which.
        precision: FP32, FP16 or INT8, whose arrays are float16, as are PyTorch's products.

    Attributes:
        module: PyTorch's, on the GPU.
        inputs: Of it; whole numbers are int64.
        wanted: What PyTorch gives for them in float32.
        wanted_of_codes: For INT8, what PyTorch gives in float32 for weights and an input rounded by the scales of the engine's
            model; None for others.
    """

    def __init__(self, case: Case, precision: str) -> None:
        kind, self._precision = _TYPES[precision], precision
        drawn = [each.cuda() for each in case.arrays()]
        self.inputs = [each.to(kind) if each.is_floating_point() else each for each in drawn]
        self.module = case.module().cuda().to(kind)
        exact = case.module().cuda()
        exact.load_state_dict({name: value.float() for name, value in self.module.state_dict().items()})
        floats = [each.float() if each.is_floating_point() else each for each in self.inputs]
        with exact_products(), torch.inference_mode():
            self.wanted = exact(*floats)
        self.wanted_of_codes: torch.Tensor | None = None
        if precision != "INT8":
            self._model = exported(self.module, self.inputs)
            return
        round_weights(exact)
        self._model = quantized(case, copy.deepcopy(exact).cpu(), [each.cpu() for each in floats])
        with exact_products(), torch.inference_mode():
            self.wanted_of_codes = exact(quantized_values(self._model, floats[0]))

    def error(self, found: np.ndarray) -> float:
        """Distance of a result from PyTorch's in float32, relative to the norm of that."""
        return relative_error(found, self.wanted)

    @property
    def ignored(self) -> np.ndarray:
        """What a call of :class:`Running` gets, which reads the subject's own arrays."""
        return np.empty(0)

    def ours(self, clock: Clock) -> Running:
        """Engine ``cuda``, bound to the arrays."""
        begin = time.perf_counter()
        engine = ptp.build(self._model, engine="cuda", precision=self._precision.lower(), progress=False)
        seconds = time.perf_counter() - begin
        assert isinstance(engine, CudaEngine)
        context, found = (
            engine.create_context(),
            torch.full(self.wanted.shape, 77, dtype=self._result_type(), device="cuda"),
        )
        given = {f"x{index}": each for index, each in enumerate(self.inputs)}
        bound = context.bind(given, {"y": found})
        bound.launch(clock.stream)
        clock.stream.synchronize()
        execution = engine.execution({})
        facts = {**step_facts(execution.plan), "build_s": seconds}
        execution.close()

        def close() -> None:
            bound.close()
            context.close()

        return Running(
            lambda _: found.float().cpu().numpy(), lambda: bound.launch(clock.stream), facts=facts, close=close
        )

    def pytorch(self, clock: Clock, fused: bool = False) -> Running:
        """PyTorch in one CUDA graph, with the kernels that cuDNN's benchmark finds, without TF32 in FP32."""
        torch.backends.cudnn.benchmark = True
        module = compiled(self.module, "default") if fused else self.module
        stream = torch.cuda.ExternalStream(clock.stream.ptr)
        results: list[torch.Tensor] = []

        def run() -> None:
            with torch.inference_mode():
                results[:] = [module(*self.inputs)]

        with exact_products():
            graph = captured(stream, run)
        queue = on_stream(stream, graph.replay)
        queue()
        stream.synchronize()
        return Running(
            lambda _: results[0].float().cpu().numpy(),
            queue,
            kernels(graph.raw_cuda_graph()),
            close=torch.cuda.empty_cache,
        )

    def _result_type(self) -> torch.dtype:
        return _TYPES[self._precision] if self.wanted.is_floating_point() else self.wanted.dtype


def relative_error(found: np.ndarray, wanted: torch.Tensor) -> float:
    """Distance of an array from a tensor, relative to the norm of that."""
    values = wanted.cpu().numpy().astype(np.float64)
    return float(np.linalg.norm(found - values)) / max(float(np.linalg.norm(values)), 1e-30)
