"""Attention by cuDNN in float16, where it has a kernel; else by this engine's own."""

from __future__ import annotations

import functools
import threading
from typing import Any

from ....tensor import DType
from ..conv.cudnn_frontend import load_frontend
from ..conv.cudnn_plan import BuiltPlan, kept_plan
from ..device.attention import AttentionMaker, AttentionProblem, Operand, attention
from ..device.device import CudaDevice, Tensor
from ..device.nhwc import Launch

__all__ = ["CudnnAttention", "fits_one_tile", "suits_cudnn"]

_Q, _K, _V, _BIAS, _Y = range(1, 6)
_OLDEST, _MAX_HEAD, _VECTOR = 80, 256, 8
"""Compute capability and values of a head that cuDNN's documentation names, and how many float16 fill 16 bytes."""
_TILE, _BIASED_HEAD = 64, 32
"""Rows and keys of a tile of attention_mma.cu; values of a head up to which it is faster than cuDNN with a bias, too."""
Dims = tuple[int, ...]


class CudnnAttention:
    """Makes what queues an attention, as `attention` does.

    A plan of cuDNN's is built or read from the disk for each problem that differs while a run is planned, never in the run.

    Args:
        device: The GPU.
        other: Makes what cuDNN does not.
        has_tiles: Whether ``other`` makes what one tile of attention_mma.cu holds, too, where that is faster.
    """

    def __init__(self, device: CudaDevice, other: AttentionMaker = attention, has_tiles: bool = False) -> None:
        self.device, self._else, self._has_tiles = device, other, has_tiles
        self._lock = threading.RLock()
        self._plans: dict[AttentionProblem, BuiltPlan | None] = {}

    @functools.cached_property
    def cudnn(self) -> Any:
        """The frontend, imported where it is needed."""
        return load_frontend()

    @functools.cached_property
    def _handle(self) -> Any:
        return self.cudnn.create_handle()

    def __call__(self, problem: AttentionProblem, q: Tensor, k: Tensor, v: Tensor, y: Tensor, bias: Any) -> Launch:
        """Make a function that queues the attention, by cuDNN if it has a kernel."""
        suits = suits_cudnn(problem) and not (self._has_tiles and fits_one_tile(problem))
        plan = self._plan(problem) if self.device.capability >= _OLDEST and suits else None
        if plan is None:
            return self._else(problem, q, k, v, y, bias)
        graph, index = plan
        operands = {_Q: (problem.q, q.flat), _K: (problem.k, k.flat), _V: (problem.v, v.flat), _Y: (problem.y, y.flat)}
        if problem.bias is not None:
            operands[_BIAS] = problem.bias, bias
        arrays = {uid: operand.begins_at(flat) for uid, (operand, flat) in operands.items()}
        pack = {uid: int(array.data.ptr) for uid, array in arrays.items()}
        workspace = self.device.allocate(int(graph.get_workspace_size_plan_at_index(index)))

        def launch(stream: Any) -> None:
            with self._lock:
                self.cudnn.set_stream(handle=self._handle, stream=stream.ptr)
                graph.execute_plan_at_index(pack, int(workspace.data.ptr), index, handle=self._handle)

        launch.kept = arrays  # type: ignore[attr-defined]
        return launch

    # -- inside --------------------------------------------------------------------------------------------------------

    def _plan(self, problem: AttentionProblem) -> BuiltPlan | None:
        with self._lock:
            if problem not in self._plans:
                key, build = f"attention {problem}", functools.partial(self._build, problem)
                try:
                    self._plans[problem] = kept_plan(self.cudnn, self._handle, self.device, key, build)
                except (RuntimeError, ValueError, self.cudnn.cudnnGraphNotSupportedError):
                    self._plans[problem] = None
            return self._plans[problem]

    def _build(self, problem: AttentionProblem) -> BuiltPlan:
        """Build cuDNN's first plan that can be built.

        Raises:
            RuntimeError: there is none.
        """
        cudnn, types = self.cudnn, self.cudnn.data_type
        graph = cudnn.pygraph(
            io_data_type=types.HALF,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )

        def tensor(name: str, uid: int, operand: Operand, dims: Dims) -> Any:
            strides = list(_filled(operand.strides, dims))
            return graph.tensor(name=name, dim=list(dims), stride=strides, data_type=types.HALF, uid=uid)

        batch, heads, rows, keys, head, values = problem.dims
        more: dict[str, Any] = {}
        if problem.bias is not None:
            sizes, strides = (problem.period, heads, rows, keys), problem.bias.strides
            dims = tuple(size if stride else 1 for size, stride in zip(sizes, strides, strict=True))
            more["bias"] = tensor("bias", _BIAS, problem.bias, dims)
        y, _ = graph.sdpa(
            q=tensor("q", _Q, problem.q, (batch, heads, rows, head)),
            k=tensor("k", _K, problem.k, (batch, heads, keys, head)),
            v=tensor("v", _V, problem.v, (batch, heads, keys, values)),
            attn_scale=problem.scale,
            generate_stats=False,
            **more,
        )
        y.set_output(True).set_uid(_Y).set_data_type(types.HALF)
        dims = (batch, heads, rows, values)
        y.set_dim(list(dims)).set_stride(list(_filled(problem.y.strides, dims)))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        for index in range(graph.get_execution_plan_count()):
            try:
                graph.build_plan_at_index(index)
            except (RuntimeError, cudnn.cudnnGraphNotSupportedError):  # heuristics name plans that cannot be built
                continue
            return graph, index
        raise RuntimeError("no plan can be built")


def suits_cudnn(problem: AttentionProblem) -> bool:
    """Whether cuDNN may be asked for a problem.

    It says nothing about rows of which nothing is left, which have to be zeros where the model says so; so it does no problem
    with a mask then. Each row begins at 16 bytes, and what is added has one matrix or one for each of the batch.
    """
    batch, heads, rows, keys, head, values = problem.dims
    operands, bias = [problem.q, problem.k, problem.v, problem.y], problem.bias
    if bias is not None and (problem.zero or problem.period not in (1, batch) or not _is_half(bias)):
        return False
    repeated = any(
        size > 1 and not stride
        for operand, length in zip(operands, (rows, keys, keys, rows), strict=True)
        for size, stride in zip((batch, heads, length), operand.strides, strict=False)
    )
    fits = not any(size % _VECTOR or size > _MAX_HEAD for size in (head, values)) and min(problem.dims) > 0
    return fits and not repeated and all(map(_is_half, operands))


def fits_one_tile(problem: AttentionProblem) -> bool:
    """Whether a problem that suits cuDNN is faster in one tile of attention_mma.cu.

    Measured on an H200 in CUDA graphs, in microseconds of cuDNN 9.19 and of the tile: 49 rows with a bias, 64 windows, 3 heads of 32
    values 10.6 and 6.9; 16 windows, 6 heads 7.0 and 6.3; 64 rows likewise 10.8 and 7.2; 50 rows, 12 heads of 64 values without a bias
    6.0 and 5.0; 64 rows with one 7.1 and 7.5.
    """
    *_, rows, keys, head, values = problem.dims
    most = _TILE if problem.bias is None else _BIASED_HEAD
    return max(rows, keys) <= _TILE and max(head, values) <= most


def _is_half(operand: Operand) -> bool:
    """Whether values are float16, lie side by side, and begin at 16 bytes in each row."""
    return operand.dtype is DType.FLOAT16 and operand.has_vectors(_VECTOR)


def _filled(strides: Dims, dims: Dims) -> Dims:
    """Strides with such along axes of one, where they mean nothing, as a tensor of its own has them."""
    extent = max(size * stride for size, stride in zip(dims, strides, strict=True))
    return tuple(stride or extent for stride in strides)
