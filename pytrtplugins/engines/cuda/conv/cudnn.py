"""Convolutions by cuDNN: the epilogue in the same kernel where cuDNN can, else the sums alone and then a kernel of the epilogue."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import BuildError
from ....tensor import DType
from ..device.device import CudaDevice, Tensor
from ..device.fence import Fence
from ..device.layout import FP8, Format
from .cudnn_frontend import load_frontend, loaded_versions
from .cudnn_plan import BuiltPlan, kept_plan
from .problem import ConvLaunch, ConvProblem, Operands, Scratch, finishing
from .search_time import SearchTime

__all__ = ["CudnnProvider"]

_X, _W, _SCALE, _BIAS, _RESIDUAL, _RESIDUAL_SCALE, _Y_SCALE, _Y = range(1, 9)
_Plan = tuple[Any, int, Callable[[], Any]]
"""A cuDNN graph, the index of one of its plans, and a function that returns the plan's workspace."""
_Graph = tuple[Any, dict[str, list[int]]]
"""A cuDNN graph, and name → indices of its plans, which are not built yet, the most promising first."""
_MAX_PLANS = {"fused": 10, "plain": 4}
"""Plans that are built and timed, by form: the epilogue in the kernel, or the sums alone."""
_FEW_PLANS = {"fused": 3, "plain": 1}
"""The same in INT8, where plans are slow to build and seldom the fastest, and in FP32 without TF32 beside handwritten kernels, which took
0.27 to 0.57 of the best plan's time in the convolutions of YOLOv2 that docs/explanation/cuda_engine_convolutions.md lists."""


class CudnnProvider:
    """cuDNN's plans, through its frontend.

    A tactic is ``fused:NAME`` or ``plain:NAME``, where NAME is cuDNN's own name of the plan.

    Args:
        device: The GPU.
        has_rivals: Whether handwritten kernels are candidates too.
        search_time: How long plans may be built and timed; None: as long as that takes.
    """

    name = "cudnn"

    def __init__(self, device: CudaDevice, has_rivals: bool = False, search_time: SearchTime | None = None) -> None:
        self.device, self._has_rivals = device, has_rivals
        self._search_time = SearchTime(math.inf) if search_time is None else search_time
        self._lock = threading.RLock()
        self._graphs: dict[tuple[str, str], _Graph] = {}
        self._built: dict[tuple[str, str, str], BuiltPlan] = {}
        self._kept: set[tuple[str, str, str]] = set()

    @functools.cached_property
    def cudnn(self) -> Any:
        """The frontend, imported when it is first used.

        Raises:
            UnavailableError: it finds no cuDNN.
        """
        frontend = load_frontend()
        loaded_versions(frontend)
        return frontend

    @functools.cached_property
    def _handle(self) -> Any:
        """The handle of cuDNN, created when it is first used: this loads its libraries."""
        return self.cudnn.create_handle()

    @functools.cached_property
    def _fence(self) -> Fence | None:
        """Queued before kernels that add a residual: on Hopper those of cuDNN 9.19 read it before it is written; None on older GPUs."""
        return Fence(self.device.capability) if self.device.capability >= 90 else None

    def tactics(self, problem: ConvProblem) -> Iterator[str]:
        """Yield the plans that cuDNN's heuristics name and that can be built, those with a fused epilogue first; none for FP8.

        Each plan is built when the iterator reaches it. In INT8 there are no plans of the sums alone: the only one gave wrong
        numbers on an H200 (cuDNN 9.19).
        """
        if problem.fused or FP8 in (problem.x.dtype, problem.y.dtype, problem.residual and problem.residual.dtype):
            return
        max_plans, has_fused = _FEW_PLANS if self._wants_few(problem) else _MAX_PLANS, False
        for form in ("fused",) if problem.x.dtype is DType.INT8 else ("fused", "plain"):
            if (
                has_fused and problem.x.dtype is DType.FLOAT16
            ):  # sums alone need one more pass over the output: never the fastest
                break
            try:
                names = self._graph(problem, form)[1]
            except (RuntimeError, self.cudnn.cudnnGraphNotSupportedError):
                continue
            candidates = self._search_time.within(problem.title, names)
            tactics = (f"{form}:{name}" for name in candidates if self._can_build(problem, form, name))
            for tactic in itertools.islice(tactics, max_plans[form]):
                has_fused = True
                yield tactic

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Make the launch of a tactic; weights are (K, R, S, C), their channels padded as the input's.

        Raises:
            BuildError: cuDNN has no such plan.
        """
        form, _, name = tactic.partition(":")
        try:
            graph, index = self._plan(problem, form, name)
        except (KeyError, RuntimeError, self.cudnn.cudnnGraphNotSupportedError) as error:
            raise BuildError(f"engine 'cuda': cuDNN has no plan {tactic!r} here: {error}", engine="cuda") from error
        workspace = scratch.region("cudnn", int(graph.get_workspace_size_plan_at_index(index)))
        size = _filters(problem) * math.prod(problem.kernel) * _channels(problem) // problem.groups
        weights = operands.on_device(
            self.device,
            ("krsc", problem.x.dtype, _filters(problem), _channels(problem)),
            size * problem.x.dtype.itemsize,
            lambda: _pack_weights(problem, operands),
        )
        addresses = {_W: weights.data.ptr}
        if form == "plain":
            return self._plain(problem, operands, (graph, index, workspace), addresses, scratch)
        kept: list[Any] = [weights]
        for uid, key, values in self._epilogue_vectors(problem, operands):
            array = operands.on_device(
                self.device,
                (key, _filters(problem)),
                values.nbytes,
                lambda values=values: values,  # type: ignore[misc]
            )
            addresses[uid] = array.data.ptr
            kept.append(array)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            variant_pack = {**addresses, _X: x.flat.data.ptr, _Y: y.flat.data.ptr}
            if residual is not None:
                variant_pack[_RESIDUAL] = residual.flat.data.ptr
                if self._fence is not None:
                    self._fence.queue(int(stream.ptr))
            self._execute((graph, index, workspace), variant_pack, stream)

        launch.kept = kept  # type: ignore[attr-defined]
        return launch

    def keep(self, problem: ConvProblem, tactic: str) -> None:
        """Keep the plan of a tactic, which is built, on the disk: a search has built it among others."""
        form, _, name = tactic.partition(":")
        with self._lock:
            if (problem.key, form, name) not in self._kept:
                self._kept_plan(problem, form, name)

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _wants_few(self, problem: ConvProblem) -> bool:
        """Whether only `_FEW_PLANS` are tried: in INT8, and in FP32 without TF32 where handwritten kernels compete.

        Those have no groups in FP32, except depthwise convolutions.
        """
        has_rivals = self._has_rivals and problem.groups in (1, problem.x.dims[1])
        return problem.x.dtype is DType.INT8 or (has_rivals and not problem.tensor_cores)

    def _plain(
        self, problem: ConvProblem, operands: Operands, plan: _Plan, weights: dict[int, int], scratch: Scratch
    ) -> ConvLaunch:
        """The launch of a plan of the sums alone, and of the epilogue behind it."""
        filters, kind = _filters(problem), _sum_type(problem).numpy
        size = problem.y.dims[0] * problem.y.dims[2] * problem.y.dims[3] * filters * kind.itemsize
        region, finish = scratch.region("sums", size), finishing(self.device, problem, operands, filters)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            sums = region()[:size].view(kind)
            self._execute(plan, {**weights, _X: x.flat.data.ptr, _Y: sums.data.ptr}, stream)
            finish(sums, y, residual, stream)

        return launch

    def _execute(self, plan: _Plan, variant_pack: dict[int, int], stream: Any) -> None:
        """Queue a plan; ``variant_pack`` has the address of each tensor by its uid."""
        graph, index, workspace = plan
        with self._lock:
            self.cudnn.set_stream(handle=self._handle, stream=stream.ptr)
            graph.execute_plan_at_index(variant_pack, int(workspace().data.ptr), index, handle=self._handle)

    def _can_build(self, problem: ConvProblem, form: str, name: str) -> bool:
        """Whether the plan of a name can be built; it is built then."""
        try:
            self._plan(problem, form, name)
        except (KeyError, RuntimeError, self.cudnn.cudnnGraphNotSupportedError):
            return False
        return True

    def _plan(self, problem: ConvProblem, form: str, name: str) -> BuiltPlan:
        """The plan of this name for a problem; where its graph is not there, as in a search, it may come from the disk."""
        if form not in _MAX_PLANS:
            raise KeyError(form)
        key = (problem.key, form, name)
        with self._lock:
            if key not in self._built:
                in_search = (problem.key, form) in self._graphs
                self._built[key] = (self._build if in_search else self._kept_plan)(problem, form, name)
            return self._built[key]

    def _kept_plan(self, problem: ConvProblem, form: str, name: str) -> BuiltPlan:
        """Read a plan from the disk, or build it and keep it there."""
        self._kept.add((problem.key, form, name))
        key, build = f"{form}:{name} {problem}", functools.partial(self._build, problem, form, name)
        return kept_plan(self.cudnn, self._handle, self.device, key, build)

    def _build(self, problem: ConvProblem, form: str, name: str) -> BuiltPlan:
        """Build the first plan of a name that can be built."""
        graph, names = self._graph(problem, form)
        for index in names[name]:
            try:
                graph.build_plan_at_index(index)
            except (RuntimeError, self.cudnn.cudnnGraphNotSupportedError):  # heuristics name plans that cannot be built
                continue
            return graph, index
        raise RuntimeError("the plan cannot be built")

    def _graph(self, problem: ConvProblem, form: str) -> _Graph:
        """The graph of a problem with its plans, made once."""
        key = (problem.key, form)
        with self._lock:
            if key not in self._graphs:
                self._graphs[key] = self._make_graph(problem, form)
            return self._graphs[key]

    def _make_graph(self, problem: ConvProblem, form: str) -> _Graph:
        """Describe a problem to cuDNN, and ask its heuristics for plans.

        Raises:
            RuntimeError: cuDNN has no such convolution, or no such epilogue.
        """
        cudnn, types = self.cudnn, self.cudnn.data_type
        if form == "fused" and not _can_fuse(problem):
            raise RuntimeError("cuDNN does not have this epilogue")
        if problem.x.dtype is DType.INT8 and problem.x.pitch % 4:
            raise RuntimeError("channels of int8 are not padded to a multiple of 4")
        if problem.x.dtype is DType.INT8 and problem.groups > 1:
            raise RuntimeError("cuDNN has no int8 convolutions with groups")
        is_int8 = problem.x.dtype is DType.INT8
        io = self._type(problem.x.dtype)
        graph = cudnn.pygraph(
            io_data_type=io,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )
        sums = self._convolution(graph, problem, types.INT32 if is_int8 else types.FLOAT)
        if form == "fused":
            y = self._fused_epilogue(graph, problem, sums)
            form_of_y, kind = problem.y, self._type(problem.y.dtype)
        else:
            y, kind = sums, self._type(_sum_type(problem))
            form_of_y = Format(problem.y.dims, problem.y.dtype, _filters(problem))
        n, _, h, width = problem.y.dims
        y.set_output(True).set_uid(_Y).set_data_type(kind)
        y.set_dim([n, _filters(problem), h, width]).set_stride(list(form_of_y.strides))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        notes = cudnn.numerical_note
        graph.deselect_numeric_notes([notes.NONDETERMINISTIC] + ([] if problem.tensor_cores else [notes.TENSOR_CORE]))
        names: dict[str, list[int]] = {}
        for index in range(graph.get_execution_plan_count()):
            names.setdefault(str(graph.get_plan_name_at_index(index)), []).append(index)
        return graph, names

    def _convolution(self, graph: Any, problem: ConvProblem, compute: Any) -> Any:
        """Add the convolution to a graph, computed in a type of cuDNN's, and return its output: the sums."""
        (n, _, h, w), channels, (r, s) = problem.x.dims, _channels(problem), problem.kernel
        io = self._type(problem.x.dtype)
        x = graph.tensor(name="x", dim=[n, channels, h, w], stride=list(problem.x.strides), data_type=io, uid=_X)
        per_group = channels // problem.groups
        weights = graph.tensor(
            name="w",
            dim=[_filters(problem), per_group, r, s],
            stride=[r * s * per_group, 1, s * per_group, per_group],
            data_type=io,
            uid=_W,
        )
        sums = graph.conv_fprop(
            image=x,
            weight=weights,
            pre_padding=list(problem.pads[:2]),
            post_padding=list(problem.pads[2:]),
            stride=list(problem.strides),
            dilation=list(problem.dilations),
            compute_data_type=compute,
        )
        if problem.x.dtype is DType.INT8:
            sums.set_data_type(self.cudnn.data_type.INT32)
        return sums

    def _fused_epilogue(self, graph: Any, problem: ConvProblem, sums: Any) -> Any:
        """Add the epilogue to a graph: scale, bias, activation, residual, activation, scale; and return the last tensor."""
        types, filters = self.cudnn.data_type, _filters(problem)

        def vector(name: str, uid: int) -> Any:
            """A tensor with one float32 for each filter."""
            return graph.tensor(
                name=name, dim=[1, filters, 1, 1], stride=[filters, 1, filters, filters], data_type=types.FLOAT, uid=uid
            )

        y = sums
        if problem.x.dtype is DType.INT8:
            y = graph.mul(a=y, b=vector("scale", _SCALE))
        y = self._activate(graph, graph.add(a=y, b=vector("bias", _BIAS)), problem.activation, problem.bounds)
        if problem.residual is not None:
            n, _, h, w = problem.y.dims
            residual = graph.tensor(
                name="residual",
                dim=[n, filters, h, w],
                stride=list(problem.residual.strides),
                data_type=self._type(problem.residual.dtype),
                uid=_RESIDUAL,
            )
            if problem.residual.dtype is DType.INT8:
                residual = graph.mul(a=residual, b=vector("residual_scale", _RESIDUAL_SCALE))
            y = self._activate(graph, graph.add(a=y, b=residual), problem.residual_activation, problem.residual_bounds)
        if problem.y.dtype is DType.INT8:
            y = graph.mul(a=y, b=vector("y_scale", _Y_SCALE))
        return y

    def _activate(self, graph: Any, y: Any, activation: str, bounds: tuple[float, float]) -> Any:
        """Add an activation to a graph, ``"leaky"`` or none, and return its output."""
        if activation == "leaky":
            return graph.relu(input=y, negative_slope=bounds[0]) if bounds[0] else graph.relu(input=y)
        return y

    def _epilogue_vectors(
        self, problem: ConvProblem, operands: Operands
    ) -> list[tuple[int, str, npt.NDArray[np.float32]]]:
        """The epilogue's constants, one value for each filter: uid of the tensor, key of its copy on the device, values."""
        filters = _filters(problem)
        vectors = [(_BIAS, "bias padded", _pad(operands.bias, filters))]
        if operands.scale is not None:
            vectors.append((_SCALE, "scale padded", _pad(operands.scale, filters)))
        if problem.y.dtype is DType.INT8:
            vectors.append((_Y_SCALE, "1 / y_scale", np.full(filters, 1 / operands.y_scale, np.float32)))
        if problem.residual is not None and problem.residual.dtype is DType.INT8:
            vectors.append((_RESIDUAL_SCALE, "residual_scale", np.full(filters, operands.residual_scale, np.float32)))
        return vectors

    def _type(self, dtype: DType) -> Any:
        """The type of cuDNN's for an element type."""
        types = self.cudnn.data_type
        return {
            DType.FLOAT32: types.FLOAT,
            DType.FLOAT16: types.HALF,
            DType.INT8: types.INT8,
            DType.INT32: types.INT32,
        }[dtype]


def _can_fuse(problem: ConvProblem) -> bool:
    """Whether cuDNN has kernels with the whole epilogue of a problem: on tensor cores, with leaky ReLU or no activation."""
    simple = ("linear", "leaky")
    return problem.activation in simple and problem.residual_activation in simple and problem.tensor_cores


def _sum_type(problem: ConvProblem) -> DType:
    """Element type of the output of a plan of the sums alone."""
    return DType.INT32 if problem.x.dtype is DType.INT8 else problem.x.dtype


def _channels(problem: ConvProblem) -> int:
    """Channels of the input for cuDNN, padded to 16 bytes unless there are groups."""
    c = problem.x.dims[1]
    return c if problem.groups > 1 or c % problem.x.vector == 0 else -(-c // problem.x.vector) * problem.x.vector


def _filters(problem: ConvProblem) -> int:
    """Filters for cuDNN, padded unless there are groups."""
    return problem.y.dims[1] if problem.groups > 1 else problem.filters


def _pack_weights(problem: ConvProblem, operands: Operands) -> npt.NDArray[Any]:
    """Weights as (K, R, S, C / group), padded to `_filters` and `_channels`, in the type of the input."""
    weights = operands.channels_last(problem.x.dtype)
    k, _, c = weights.shape
    padding = [(0, _filters(problem) - k), (0, 0), (0, _channels(problem) // problem.groups - c)]
    padded = np.pad(weights, padding)
    return padded.reshape(len(padded), *problem.kernel, -1)


def _pad(values: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.float32]:
    """A vector with zeros behind it, up to a size."""
    return np.pad(values, (0, size - len(values)))
