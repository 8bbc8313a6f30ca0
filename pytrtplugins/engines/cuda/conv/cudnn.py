"""Convolutions by cuDNN: with their epilogue in one kernel where cuDNN can, else the sums alone and our epilogue behind."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import BuildError, UnavailableError
from ....tensor import DType
from ....utils.optional import installed_version, require
from ..device.device import CudaDevice, Tensor
from ..device.fence import Fence
from ..device.layout import FP8, Format
from .problem import ConvLaunch, ConvProblem, Operands, Scratch, finishing
from .search_time import SearchTime

__all__ = ["CudnnProvider", "check_cudnn", "cudnn_versions", "load_frontend"]

_FRONTEND, _LIBRARIES = "nvidia-cudnn-frontend", ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")
_X, _W, _SCALE, _BIAS, _RESIDUAL, _RESIDUAL_SCALE, _Y_SCALE, _Y = range(1, 9)
_Plan = tuple[Any, int, Callable[[], Any]]
"""A graph, the number of one of its plans, and what gives its workspace."""
_Graph = tuple[Any, dict[str, list[int]]]
"""A graph, and by name the numbers of its plans, which are not built yet, the most promising first."""
_MAX_PLANS = {"fused": 10, "plain": 4}
_FEW_PLANS = {"fused": 3, "plain": 1}
"""In INT8, where they are slow to build and seldom the fastest, and in FP32 without TF32 beside handwritten kernels, which took
0.27 to 0.57 of the best plan's time in the convolutions of YOLOv2 that docs/explanation/cuda_engine_convolutions.md lists."""


def check_cudnn() -> str:
    """Require the frontend, but do not import it: versions before 1.27 import PyTorch where that is installed.

    Returns:
        Its version.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("cudnn") is None:
        load_frontend()  # which says what to install
    return installed_version(_FRONTEND) or "of unknown version"


def cudnn_versions() -> dict[str, str]:
    """Versions of the frontend and of the library: of the packages that are installed, or as the frontend tells them.

    Raises:
        MissingExtraError: the frontend is not installed.
        UnavailableError: it finds no cuDNN.
    """
    frontend = installed_version(_FRONTEND)
    for library in _LIBRARIES:
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", installed_version(library))
        if frontend and numbers:
            major, minor, patch = map(int, numbers.groups())
            return {"cudnn-frontend": frontend, "cudnn": str(10000 * major + 100 * minor + patch)}
    return _told_versions(load_frontend())


def load_frontend() -> Any:
    """The frontend.

    Raises:
        MissingExtraError: it is not installed.
    """
    return require("cudnn", extra="cuda", package=_FRONTEND, feature="engine 'cuda'")


def _told_versions(cudnn: Any) -> dict[str, str]:
    try:
        return {"cudnn-frontend": str(cudnn.__version__), "cudnn": str(cudnn.backend_version())}
    except RuntimeError as error:
        raise UnavailableError(
            f"engine 'cuda': NVIDIA's library cuDNN cannot be loaded ({error}).\nDo: pip install nvidia-cudnn-cu13"
        ) from error


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
        self._built: dict[tuple[str, str, str], int] = {}

    @functools.cached_property
    def cudnn(self) -> Any:
        """The frontend, imported where it is needed.

        Raises:
            UnavailableError: it finds no cuDNN.
        """
        frontend = load_frontend()
        _told_versions(frontend)
        return frontend

    @functools.cached_property
    def _handle(self) -> Any:
        """cuDNN's, made where it is needed: that loads its libraries."""
        return self.cudnn.create_handle()

    @functools.cached_property
    def _fence(self) -> Fence | None:
        """Stands in front of kernels that add a residual: on Hopper those of cuDNN read it before it is written (9.19)."""
        return Fence(self.device.capability) if self.device.capability >= 90 else None

    def tactics(self, problem: ConvProblem) -> Iterator[str]:
        """The plans that cuDNN's heuristics name and that can be built, those in one kernel first; none for FP8.

        Each is built when it is asked for. In INT8 there are none for the sums alone: the only one gave wrong numbers on an
        H200 (cuDNN 9.19).
        """
        if problem.fused or FP8 in (problem.x.dtype, problem.y.dtype, problem.residual and problem.residual.dtype):
            return
        max_plans, fused = _FEW_PLANS if self._wants_few(problem) else _MAX_PLANS, False
        for form in ("fused",) if problem.x.dtype is DType.INT8 else ("fused", "plain"):
            if fused and problem.x.dtype is DType.FLOAT16:  # a pass more over the output: never the fastest there
                break
            try:
                names = self._graph(problem, form)[1]
            except (RuntimeError, self.cudnn.cudnnGraphNotSupportedError):
                continue
            tried = self._search_time.within(problem.title, names)
            works = (f"{form}:{name}" for name in tried if self._builds(problem, form, name))
            for tactic in itertools.islice(works, max_plans[form]):
                fused = True
                yield tactic

    def prepare(self, problem: ConvProblem, tactic: str, operands: Operands, scratch: Scratch) -> ConvLaunch:
        """Weights as [k][r][s][c], channels padded as the input's.

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
            lambda: _packed(problem, operands),
        )
        addresses = {_W: weights.data.ptr}
        if form == "plain":
            return self._plain(problem, operands, (graph, index, workspace), addresses, scratch)
        kept: list[Any] = [weights]
        for uid, form_name, values in self._epilogue(problem, operands):
            array = operands.on_device(
                self.device,
                (form_name, _filters(problem)),
                values.nbytes,
                lambda values=values: values,  # type: ignore[misc]
            )
            addresses[uid] = array.data.ptr
            kept.append(array)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            pack = {**addresses, _X: x.flat.data.ptr, _Y: y.flat.data.ptr}
            if residual is not None:
                pack[_RESIDUAL] = residual.flat.data.ptr
                if self._fence is not None:
                    self._fence.queue(int(stream.ptr))
            self._execute((graph, index, workspace), pack, stream)

        launch.kept = kept  # type: ignore[attr-defined]
        return launch

    # -- inside ----------------------------------------------------------------------------------------------------------

    def _wants_few(self, problem: ConvProblem) -> bool:
        """Handwritten kernels in FP32 have no groups, but depthwise convolutions."""
        has_rivals = self._has_rivals and problem.groups in (1, problem.x.dims[1])
        return problem.x.dtype is DType.INT8 or (has_rivals and not problem.tensor_cores)

    def _plain(
        self, problem: ConvProblem, operands: Operands, plan: _Plan, weights: dict[int, int], scratch: Scratch
    ) -> ConvLaunch:
        filters, kind = _filters(problem), _sums(problem).numpy
        size = problem.y.dims[0] * problem.y.dims[2] * problem.y.dims[3] * filters * kind.itemsize
        region, finish = scratch.region("sums", size), finishing(self.device, problem, operands, filters)

        def launch(x: Tensor, y: Tensor, residual: Tensor | None, stream: Any) -> None:
            sums = region()[:size].view(kind)
            self._execute(plan, {**weights, _X: x.flat.data.ptr, _Y: sums.data.ptr}, stream)
            finish(sums, y, residual, stream)

        return launch

    def _execute(self, plan: _Plan, pack: dict[int, int], stream: Any) -> None:
        graph, index, workspace = plan
        with self._lock:
            self.cudnn.set_stream(handle=self._handle, stream=stream.ptr)
            graph.execute_plan_at_index(pack, int(workspace().data.ptr), index, handle=self._handle)

    def _builds(self, problem: ConvProblem, form: str, name: str) -> bool:
        try:
            self._plan(problem, form, name)
        except (KeyError, RuntimeError, self.cudnn.cudnnGraphNotSupportedError):
            return False
        return True

    def _plan(self, problem: ConvProblem, form: str, name: str) -> tuple[Any, int]:
        """A graph and the number of its plan of a name, built."""
        if form not in _MAX_PLANS:
            raise KeyError(form)
        key = (problem.key, form, name)
        with self._lock:
            graph, names = self._graph(problem, form)
            if key not in self._built:
                self._built[key] = self._first_built(graph, names[name])
            return graph, self._built[key]

    def _first_built(self, graph: Any, numbers: Sequence[int]) -> int:
        for number in numbers:
            try:
                graph.build_plan_at_index(number)
            except (RuntimeError, self.cudnn.cudnnGraphNotSupportedError):  # heuristics name plans that cannot be built
                continue
            return number
        raise RuntimeError("it cannot be built")

    def _graph(self, problem: ConvProblem, form: str) -> _Graph:
        key = (problem.key, form)
        with self._lock:
            if key not in self._graphs:
                self._graphs[key] = self._build(problem, form)
            return self._graphs[key]

    def _build(self, problem: ConvProblem, form: str) -> _Graph:
        cudnn, types = self.cudnn, self.cudnn.data_type
        if form == "fused" and not _can_fuse(problem):
            raise RuntimeError("this epilogue is none of cuDNN's")
        if problem.x.dtype is DType.INT8 and problem.x.pitch % 4:
            raise RuntimeError("int8 channels must be padded")
        if problem.x.dtype is DType.INT8 and problem.groups > 1:
            raise RuntimeError("cuDNN has no int8 convolutions of groups")
        integers = problem.x.dtype is DType.INT8
        io = self._type(problem.x.dtype)
        graph = cudnn.pygraph(
            io_data_type=io,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=self._handle,
        )
        x, w, y_sums = self._operation(graph, problem, types.INT32 if integers else types.FLOAT)
        del x, w
        if form == "fused":
            y = self._fused_epilogue(graph, problem, y_sums)
            dense, kind = problem.y, self._type(problem.y.dtype)
        else:
            y, kind = y_sums, self._type(_sums(problem))
            dense = Format(problem.y.dims, problem.y.dtype, _filters(problem))
        n, _, h, width = problem.y.dims
        y.set_output(True).set_uid(_Y).set_data_type(kind)
        y.set_dim([n, _filters(problem), h, width]).set_stride(list(dense.strides))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        notes = cudnn.numerical_note
        graph.deselect_numeric_notes([notes.NONDETERMINISTIC] + ([] if problem.tensor_cores else [notes.TENSOR_CORE]))
        names: dict[str, list[int]] = {}
        for index in range(graph.get_execution_plan_count()):
            names.setdefault(str(graph.get_plan_name_at_index(index)), []).append(index)
        return graph, names

    def _operation(self, graph: Any, problem: ConvProblem, compute: Any) -> tuple[Any, Any, Any]:
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
        return x, weights, sums

    def _fused_epilogue(self, graph: Any, problem: ConvProblem, sums: Any) -> Any:
        types, filters = self.cudnn.data_type, _filters(problem)

        def vector(name: str, uid: int) -> Any:
            return graph.tensor(
                name=name, dim=[1, filters, 1, 1], stride=[filters, 1, filters, filters], data_type=types.FLOAT, uid=uid
            )

        y = sums
        if problem.x.dtype is DType.INT8:
            y = graph.mul(a=y, b=vector("scale", _SCALE))
        y = self._activated(graph, graph.add(a=y, b=vector("bias", _BIAS)), problem.activation, problem.bounds)
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
            y = self._activated(graph, graph.add(a=y, b=residual), problem.residual_activation, problem.residual_bounds)
        if problem.y.dtype is DType.INT8:
            y = graph.mul(a=y, b=vector("y_scale", _Y_SCALE))
        return y

    def _activated(self, graph: Any, y: Any, activation: str, bounds: tuple[float, float]) -> Any:
        if activation == "leaky":
            return graph.relu(input=y, negative_slope=bounds[0]) if bounds[0] else graph.relu(input=y)
        return y

    def _epilogue(self, problem: ConvProblem, operands: Operands) -> list[tuple[int, str, npt.NDArray[np.float32]]]:
        filters = _filters(problem)
        found = [(_BIAS, "bias padded", _padded(operands.bias, filters))]
        if operands.scale is not None:
            found.append((_SCALE, "scale padded", _padded(operands.scale, filters)))
        if problem.y.dtype is DType.INT8:
            found.append((_Y_SCALE, "1 / y_scale", np.full(filters, 1 / operands.y_scale, np.float32)))
        if problem.residual is not None and problem.residual.dtype is DType.INT8:
            found.append((_RESIDUAL_SCALE, "residual_scale", np.full(filters, operands.residual_scale, np.float32)))
        return found

    def _type(self, dtype: DType) -> Any:
        types = self.cudnn.data_type
        return {
            DType.FLOAT32: types.FLOAT,
            DType.FLOAT16: types.HALF,
            DType.INT8: types.INT8,
            DType.INT32: types.INT32,
        }[dtype]


def _can_fuse(problem: ConvProblem) -> bool:
    simple = ("linear", "leaky")
    return problem.activation in simple and problem.residual_activation in simple and problem.tensor_cores


def _sums(problem: ConvProblem) -> DType:
    """Element type of the sums alone."""
    return DType.INT32 if problem.x.dtype is DType.INT8 else problem.x.dtype


def _channels(problem: ConvProblem) -> int:
    c = problem.x.dims[1]
    return c if problem.groups > 1 or c % problem.x.vector == 0 else -(-c // problem.x.vector) * problem.x.vector


def _filters(problem: ConvProblem) -> int:
    return problem.y.dims[1] if problem.groups > 1 else problem.filters


def _packed(problem: ConvProblem, operands: Operands) -> npt.NDArray[Any]:
    k, c, _, _ = operands.weights.shape
    room = [(0, _filters(problem) - k), (0, 0), (0, 0), (0, _channels(problem) // problem.groups - c)]
    return np.pad(operands.weights.transpose(0, 2, 3, 1), room).astype(problem.x.dtype.numpy)


def _padded(values: npt.NDArray[np.float32], size: int) -> npt.NDArray[np.float32]:
    return np.pad(values, (0, size - len(values)))
