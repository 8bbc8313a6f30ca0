"""Make the function that queues a planned step."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....cuda import launches_kernels
from ....errors import BuildError, ExecutionError
from ....plugin.runner import PluginRunner
from ....tensor import DType, TensorDesc
from ...base.failures import as_error
from ..conv.problem import ConvLaunch
from ..device.activation import PLAIN
from ..device.attention import AttentionMaker, AttentionProblem, attention
from ..device.device import Device, Tensor, bytes_of, rows_of
from ..device.elements import decoded, encoded, from_stored, to_stored
from ..device.indexed import INDEXED
from ..device.layout import Format, linear
from ..device.nhwc import Launch, patches
from ..device.pool import pool
from ..device.recurrent import RecurrentKernel, RecurrentProblem
from ..device.reformat import reformat
from ..device.source import nhwc_kernel
from ..device.window import Window
from ..naming import naming
from ..operators import HOST_INPUTS, OPS, RAW, computed
from ..operators.index_flags import IN_RANGE, IndexFlags, noting
from ..plan.plan import Plan, Step
from .generated import GeneratedSteps
from .interpreter import Interpreter

__all__ = ["StepBuilder"]

_ACTIVATION = nhwc_kernel("activation")
_CHECKED = frozenset(name for name, row in INDEXED.items() if row.checks)
"""Operators whose values of input 1 may be out of range."""


@dataclass
class StepBuilder:
    """Makes the launches of one context and one plan.

    Attributes:
        device: Where arrays live.
        plan: The plan.
        tensors: The plan's tensors in memory.
        conv: A convolution's launch, with the tactic that was chosen.
        indices: Flags of steps whose indices may be out of range.
        attention: Makes an attention's launch.
        runners: Of the plugins made so far, to be closed with the context.
        product: The launch of a product of two computed tensors, a, b and y; None: arrays' own products, which are not part
            of a CUDA graph.
        interpreter: What runs the plan's tail, if it has one.
    """

    device: Device
    plan: Plan
    tensors: Mapping[str, Tensor]
    conv: Callable[[Step], ConvLaunch]
    runners: list[PluginRunner]
    indices: IndexFlags
    attention: AttentionMaker = attention
    product: Callable[[Step, Tensor, Tensor, Tensor], Launch] | None = None
    interpreter: Interpreter | None = None

    def build(self, step: Step) -> Launch:
        """The function that queues a step.

        What a library raises, here and when the function runs, becomes an error that names the step's node.
        """
        makers: dict[str, Callable[[Step], Launch]] = {
            "conv": self._conv,
            "pool": self._pool,
            "activation": self._activation,
            "attention": self._attention,
            "pointwise": self._generated.launch,
            "indexed": self._indexed,
            "reformat": self._reformat,
            "zero": self._zero,
            "matmul": self._matmul,
            "recurrent": self._recurrent,
            "squeeze-excite": self._generated.launch_squeeze_excite,
            "plugin": self._plugin,
            "generic": self._generic,
            "tail": self._tail,
        }
        what = f"engine 'cuda' cannot compute node {step.name!r} ({step.op})"
        with naming(step.name, step.op):
            launch = makers[step.kind](step)

        def explained(stream: Any) -> None:
            with as_error(what, "cuda", ExecutionError):
                launch(stream)

        return (
            explained if step.kind == "generic" else launch
        )  # the others launch kernels, which raise nothing of their own

    def _conv(self, step: Step) -> Launch:
        launch, names = self.conv(step), step.inputs
        x, y = self.tensors[names[0]], self.tensors[step.outputs[0]]
        residual = self.tensors[names[3]] if len(names) > 3 and names[3] else None
        if step.attributes["rows"]:
            x, y = (rows_of(self.device.xp, tensor) for tensor in (x, y))
            residual = None if residual is None else rows_of(self.device.xp, residual)
        return lambda stream: launch(x, y, residual, stream)

    def _pool(self, step: Step) -> Launch:
        x, y = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]]
        launch = pool(self.device, x.format, y.format, Window.of(step.op, step.attributes))
        return lambda stream: launch(x, y, stream)

    def _activation(self, step: Step) -> Launch:
        x, y = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]]
        n, c, h, w = y.format.dims
        groups = -(-c // y.format.vector)
        numbers = (n * h * w, c, groups, x.format.pitch, y.format.pitch, int(PLAIN[step.op]))
        return lambda stream: _ACTIVATION.launch(x.flat, y.flat, *numbers, threads=n * h * w * groups, stream=stream)

    def _attention(self, step: Step) -> Launch:
        q, k, v, y = (self.tensors[name] for name in (*step.inputs[:3], step.outputs[0]))
        bias = None
        if len(step.inputs) > 3:
            name = step.inputs[3]
            bias = self.tensors[name].flat if name in self.tensors else self._constant(name, y.format.dtype)
        kind = None if bias is None else DType.of(bias.dtype)
        return self.attention(AttentionProblem.of(step.attributes, y.format.dtype, kind), q, k, v, y, bias)

    def _constant(self, name: str, dtype: DType) -> Any:
        with np.errstate(over="ignore"):  # a mask may hold the smallest number of float32
            return self.device.upload(np.ravel(self.plan.constants[name]).astype(dtype.numpy))

    @functools.cached_property
    def _generated(self) -> GeneratedSteps:
        return GeneratedSteps(self.device, self.plan, self.tensors)

    def _indexed(self, step: Step) -> Launch:
        """A kernel whose indices may be out of range: on the host its flag is looked at behind each run."""
        if step.op not in _CHECKED or 1 in step.attributes["known"]:
            return self._generated.launch_indexed(step, None)
        if self.device.xp is not np:
            return self._generated.launch_indexed(step, self.indices.add(step.name, step.op))
        flag = np.zeros(1, np.bool_)
        launch = self._generated.launch_indexed(step, flag)

        def look(stream: Any) -> None:
            with _naming(step, [self.tensors[name].view for name in step.inputs if name in self.tensors]):
                launch(stream)
                if flag.any():
                    flag[...] = False
                    raise IndexError("an index is out of range")

        return look

    def _reformat(self, step: Step) -> Launch:
        x, y, at = self.tensors[step.inputs[0]], self.tensors[step.outputs[0]], step.attributes
        if step.op == "Patches":
            return patches(x, y, at)
        x = rows_of(self.device.xp, x) if "rows" in at else x
        scales = float(at.get("x_scale", 1.0)), float(at.get("y_scale", 1.0))
        launch = reformat(self.device, x.format, y.format, *scales, "part" not in at)
        return lambda stream: launch(x, y, stream)

    def _matmul(self, step: Step) -> Launch:
        a, b, y = self._factor(step, 0), self._factor(step, 1), self.tensors[step.outputs[0]]
        if step.capturable and self.product is not None:
            return self.product(step, a, b, y)
        xp, kind = self.device.xp, np.dtype(np.float32)

        def launch(stream: Any) -> None:
            with _naming(step, (a.view, b.view)):
                y.view[...] = xp.matmul(a.view.astype(kind, copy=False), b.view.astype(kind, copy=False))

        return launch

    def _factor(self, step: Step, index: int) -> Tensor:
        """A factor of a product: a tensor, part of one, or a constant."""
        name, result = step.inputs[index], self.tensors[step.outputs[0]].format
        if name not in self.tensors:
            flat, dims = self._constant(name, result.dtype), self.plan.constants[name].shape
            return Tensor(flat, linear(dims, result.dtype), flat.reshape(dims))
        tensor = self.tensors[name]
        if index not in step.attributes["factors"]:
            return tensor
        offset, form = step.attributes["factors"][index]
        flat, strides = tensor.flat[offset:], [stride * form.dtype.itemsize for stride in form.strides]
        return Tensor(flat, form, self.device.xp.lib.stride_tricks.as_strided(flat, form.dims, strides))

    def _recurrent(self, step: Step) -> Launch:
        x_name, weights, added, *states = (*step.inputs, *[""] * 4)[:6]
        x, types = self.tensors[x_name], (DType.INT32, *[self.tensors[x_name].format.dtype] * 2)
        problem = RecurrentProblem.of(step.attributes, x.format.dims, x.format.dtype)
        read = [
            None if not name else self.tensors[name].flat if name in self.tensors else self._constant(name, dtype)
            for name, dtype in zip((added, *states), (DType.FLOAT32, *types), strict=True)
        ]
        written = [self.tensors[name].flat if name else None for name in (*step.outputs, *[""] * 2)[:3]]
        kernel = RecurrentKernel(self.device, problem, self.plan.constants[weights])
        return kernel.bound([x.flat, *read, *written])

    def _zero(self, step: Step) -> Launch:
        y, begin = self.tensors[step.outputs[0]], step.attributes["from"]
        padding = _with_padding(self.device.xp, y)[..., begin:]

        def launch(stream: Any) -> None:
            padding[...] = 0

        return launch

    def _plugin(self, step: Step) -> Launch:
        if step.plugin is None:
            raise BuildError(f"engine 'cuda': step {step.name!r} has no plugin")
        form = "enqueue" if step.capturable else "compute"
        scales = step.attributes.get("scales", ())
        runner = PluginRunner(step.plugin.clone(), step.name, form=form, allocate=self.device.allocate, scales=scales)
        inputs, outputs = ([bytes_of(self.tensors[name]) for name in names] for names in (step.inputs, step.outputs))
        ins, outs = (
            [
                TensorDesc(f"{step.name}.{kind}{index}", t.format.dims, t.format.dtype, _layout(t.format))
                for index, t in enumerate(tensors)
            ]
            for kind, tensors in (("input", inputs), ("output", outputs))
        )
        runner.prepare(ins, outs)
        self.runners.append(runner)
        if step.capturable and launches_kernels(type(runner.plugin)):
            runner.compile()
        arrays = [[t.flat.reshape(t.format.dims) for t in tensors] for tensors in (inputs, outputs)]
        return lambda stream: runner.enqueue(arrays[0], arrays[1], stream)

    def _tail(self, step: Step) -> Launch:
        if self.plan.tail is None:
            raise BuildError(f"engine 'cuda': step {step.name!r} has no nodes")
        self.interpreter = Interpreter(self.device, self.plan.tail, self.plan.constants, self.tensors)
        return self.interpreter.run

    def _index_flag(self, step: Step) -> Any:
        """The flag for indices out of range; None on the host, where they raise, and for other operators."""
        if step.op not in _CHECKED or self.device.xp is np:
            return None
        return IN_RANGE if step.inputs[1] in self.plan.constants else self.indices.add(step.name, step.op)

    def _generic(self, step: Step) -> Launch:
        function, decodes = OPS[step.op], step.op not in RAW
        fetched, kept = computed(step.op, step.inputs, self.plan.constants), HOST_INPUTS.get(step.op, ())
        xp: Any = self.device.xp if fetched else _Uploads(self.device.xp)
        operands: list[tuple[Any, DType | None]] = []
        """Arrays, and the types of those that are there as they are stored."""
        for index, name in enumerate(step.inputs):
            if not name or name in self.tensors:
                operands.append((self.tensors[name].view, self.tensors[name].format.dtype) if name else (None, None))
            elif index in kept:
                operands.append((self.plan.constants[name], None))
            else:
                array = self.plan.constants[name]
                operands.append((self.device.upload(to_stored(array)), DType.of(array)))
        outputs = [self.tensors[name] if name else None for name in step.outputs]
        dims = [output.format.dims if output else None for output in outputs]
        paddings = [
            _with_padding(self.device.xp, output)[..., output.format.dims[1] :]
            for output in outputs
            if output and output.format.nhwc and output.format.dims[1] % output.format.vector
        ]

        def given(index: int) -> Any:
            value, dtype = operands[index]
            if dtype is not None and index in fetched:
                return from_stored(self.device.download(value), dtype)
            return value if dtype is None or not decodes else decoded(self.device.xp, value, dtype)

        flag = self._index_flag(step)

        def launch(stream: Any) -> None:
            if not fetched:
                xp.begin()
            arrays = [given(index) for index in range(len(operands))]
            with _naming(step, arrays), noting(flag):
                result = function(xp, step.attributes, dims, *arrays)
                results = result if isinstance(result, (list, tuple)) else [result]
                if fetched:
                    _check_dims(dims, results)
            for output, value in zip(outputs, results, strict=True):
                if output:
                    output.view[...] = encoded(self.device.xp, value, output.format.dtype, step.attributes, not decodes)
            for padding in paddings:
                padding[...] = 0

        return launch


@contextlib.contextmanager
def _naming(step: Step, arrays: Iterable[Any]) -> Iterator[None]:
    """Raise what arrays raise that a step cannot run on as an error that names its node."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ExecutionError(
            f"engine 'cuda': node {step.name!r} ({step.op}) cannot run on tensors of the dims "
            f"{', '.join(str(np.shape(array)) for array in arrays if array is not None)}: {error}",
            node=step.name,
            op=step.op,
        ) from error


def _check_dims(planned: Sequence[tuple[int, ...] | None], results: Sequence[Any]) -> None:
    """Refuse results of other dims than the plan has, which a model may declare wrongly where values tell them."""
    for dims, result in zip(planned, results, strict=True):
        if dims is not None and np.shape(result) != dims:
            raise ValueError(f"the result has the dims {np.shape(result)}, and the model declares {dims}")


class _Uploads:
    """A module of arrays that copies an array of the host to the device in a step's first run only.

    Every run of a step asks for the same arrays in the same order; a CUDA graph would hold the copy, and the host's memory.
    """

    def __init__(self, xp: Any) -> None:
        self._xp, self._kept, self._next = xp, list[Any](), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)

    def begin(self) -> None:
        """The step runs again."""
        self._next = 0

    def asarray(self, value: Any) -> Any:
        """The array on the device."""
        if not isinstance(value, np.ndarray) or self._xp is np:  # of the device, which may be the host
            return self._xp.asarray(value)
        if self._next == len(self._kept):
            self._kept.append(self._xp.array(value))
        self._next += 1
        return self._kept[self._next - 1]


def _with_padding(xp: Any, tensor: Tensor) -> Any:
    """The view (N, H, W, pitch) of an NHWC tensor, padding included."""
    n, _, h, w = tensor.format.dims
    pitch, size = tensor.format.pitch, tensor.format.dtype.itemsize
    strides = tuple(stride * size for stride in (h * w * pitch, w * pitch, pitch, 1))
    return xp.lib.stride_tricks.as_strided(tensor.flat, (n, h, w, pitch), strides)


def _layout(form: Format) -> str:
    return "nhwc" if form.nhwc else "linear"
