"""Trace a plugin class: record its methods as trees of conditions with dims, types and launches at their ends."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..cuda.record import Constant, LaunchRecord, SymbolicArray, record_launches
from ..cuda.source import CompileUnit
from ..errors import ExportError, FieldError, KernelError, UsageError
from ..plugin.base import Plugin
from ..plugin.fields import MISSING, FieldSpec
from ..plugin.policy import has_enqueue
from ..plugin.runner import PluginRunner
from ..tensor import PLUGIN_DTYPES, DType, SymbolicDim, TensorDesc
from ._arrays import TracedArray
from ._explore import OtherError, Tree, ends, explore, leaves, map_ends, unreachable_where_refused
from ._traced import Case, Format, Launch, Pointer, TracedPlugin
from ._values import Expr, Opaque, TracedInt, as_expr, traced_field, traced_scale

__all__ = ["trace_plugin"]

LAYOUTS = ("linear", "nhwc")
_RANKS = (4, 3, 2, 1, 5, 6, 7, 8, 0)  # the usual ones first, since messages show the first that is wrong
_MAX_FORMATS = 128
_Descs: TypeAlias = tuple[list[TensorDesc], list[TensorDesc]]


def trace_plugin(plugin: type[Plugin], fixed: Mapping[str, Any] | None = None) -> TracedPlugin:
    """Follow each method of a plugin class through all of its branches, with fields and dims that have no values yet.

    ``fixed`` has the values of fields that tracing must know, such as one that says how often a loop runs.

    Raises:
        ExportError: the class does what cannot be written down; ``.path`` and ``.line`` say where.
        UsageError: there is no such field.
        FieldError: a value does not fit its field.
    """
    tracer = _Tracer(plugin, fixed or {})
    tracer.trace_rules()
    tracer.trace_work()
    return tracer.traced


class _Tracer:
    """Traces one plugin class."""

    def __init__(self, plugin: type[Plugin], fixed: Mapping[str, Any]) -> None:
        if not has_enqueue(plugin):
            raise ExportError(
                f"{plugin.__name__} has no enqueue of its own, so there is nothing to run where there is no Python.\n"
                "Do: write a kernel for it, and enqueue, which launches it (docs/how-to/custom_layer.md)"
            )
        inputs = plugin.__new__(plugin).num_inputs
        if inputs is None:
            raise ExportError(f"{plugin.__name__} takes any number of inputs; an exported plugin has a fixed number")
        self._values = _stored_values(plugin, fixed)
        self.traced = TracedPlugin(plugin, self._values, inputs)
        self._numbers: dict[tuple[int, str | None], int] = {}

    # -- rules ---------------------------------------------------------------------------------------------------------

    def trace_rules(self) -> None:
        """Follow validate, output_dims, output_dtypes and supports_format."""
        traced = self.traced
        traced.validate = self._explored("validate", lambda: self._instance().validate())
        self._trace_dims()
        traced.types = self._explored("output_dtypes", self._types)
        numbers: dict[Format, int] = {}

        def formats() -> tuple[int, ...]:
            return tuple(numbers.setdefault(one, len(numbers)) for one in self._formats())

        traced.supports = self._explored("supports_format", formats)
        traced.formats = list(numbers)
        if not numbers:
            raise ExportError(f"{traced.name}: supports_format accepts no types and layouts")

    def _trace_dims(self) -> None:
        first: OtherError | None = None
        traced, allowed = self.traced, _RANKS if self.traced.inputs <= 3 else _RANKS[:4]
        refused = ""
        for ranks in itertools.product(allowed, repeat=traced.inputs):
            try:
                tree = self._explored("output_dims", lambda ranks=ranks: self._dims(self._valid(), ranks)[1])
            except OtherError as error:
                first = first or error
                continue
            outputs_dims = ends(tree)
            if not outputs_dims:
                refused = refused or str(leaves(tree)[0])
                continue
            counts = {len(dims) for dims in outputs_dims} | ({traced.outputs} if traced.outputs else set())
            if len(counts) > 1:
                raise ExportError(f"{traced.name}.output_dims gives now {min(counts)}, now {max(counts)} outputs")
            traced.outputs = counts.pop()
            traced.dims[ranks] = map_ends(tree, _exprs)
        if traced.dims:
            return
        if first is not None:
            raise first
        raise ExportError(f"{traced.name}.output_dims accepts no dims: {refused}")

    def _dims(self, plugin: Plugin, ranks: Sequence[int]) -> tuple[list[Any], tuple[Any, ...]]:
        inputs = [
            tuple(TracedInt(Expr("dim", (index, axis), "i")) for axis in range(rank))
            for index, rank in enumerate(ranks)
        ]
        result = plugin.output_dims(*inputs)
        several = bool(result) and isinstance(result[0], (tuple, list))
        outputs = tuple(tuple(dims) for dims in (result if several else (result,)))
        free = [dim for dim in itertools.chain(*outputs) if isinstance(dim, SymbolicDim)]
        if free:
            raise ExportError(
                f"dim '{free[0]}' is not made of the inputs' dims: the output's size depends on the inputs' values.\n"
                "Do: give the output its largest size, and the number of valid entries as a second output"
            )
        return inputs, outputs

    def _types(self) -> tuple[Any, ...]:
        every = list(itertools.product(PLUGIN_DTYPES, repeat=self.traced.inputs))
        if len(every) > 5000:
            every = [(dtype,) * self.traced.inputs for dtype in PLUGIN_DTYPES]
        plugin = self._valid()
        dtypes = [plugin.all_output_dtypes(types, self.traced.outputs) for types in every]
        return tuple(
            tuple((types, outputs[index]) for types, outputs in zip(every, dtypes, strict=True))
            for index in range(self.traced.outputs)
        )

    def _formats(self) -> list[Format]:
        plugin, count = self._valid(), self.traced.inputs + self.traced.outputs
        hidden = Opaque("the dims that supports_format gets")
        chosen: list[Format] = [()]
        for position in range(count):
            longer: list[Format] = []
            for begin, dtype, layout in itertools.product(chosen, PLUGIN_DTYPES, LAYOUTS):
                pairs = [*begin, (dtype, layout)]
                pairs += [(DType.FLOAT32, "linear")] * (count - len(pairs))
                descs = [
                    TensorDesc(f"tensor{index}", hidden, one, kind)  # type: ignore[arg-type]
                    for index, (one, kind) in enumerate(pairs)
                ]
                if plugin.supports_format(position, descs):
                    longer.append((*begin, (dtype, layout)))
            chosen = longer
            if len(chosen) > _MAX_FORMATS:
                raise ExportError(
                    f"supports_format accepts more than {_MAX_FORMATS} combinations of types and layouts.\n"
                    "Do: demand that the tensors have the type of the first one"
                )
        return [one for one in chosen if self._has_output_types(plugin, one)]

    def _has_output_types(self, plugin: Plugin, one: Format) -> bool:
        types = [dtype for dtype, _ in one]
        inputs, outputs = types[: self.traced.inputs], types[self.traced.inputs :]
        return plugin.all_output_dtypes(inputs, self.traced.outputs) == tuple(outputs)

    # -- work ----------------------------------------------------------------------------------------------------------

    def trace_work(self) -> None:
        """Follow configure, workspace_size, initialize and enqueue, for each accepted format and number of axes."""
        traced = self.traced
        for number, ranks in itertools.product(range(len(traced.formats)), traced.dims):
            layouts = [layout for _, layout in traced.formats[number]]
            if any(layout == "nhwc" and rank != 4 for layout, rank in zip(layouts, ranks, strict=False)):
                continue
            case = Case(number, ranks)
            traced.configure[case] = self._explored("configure", lambda case=case: self._configured(case)[2])
            size = self._explored("workspace_size", lambda case=case: self._sized(case)[-1])
            traced.workspace[case] = map_ends(size, _exprs)
            traced.enqueue[case] = self._explored("enqueue", lambda case=case: self._launches(case))
        if not any(launches for tree in traced.enqueue.values() for launches in ends(tree)):
            raise ExportError(f"{traced.name}.enqueue launches no kernel (pytrtplugins.CudaKernel)")

    def _configured(self, case: Case, again: bool = False) -> tuple[PluginRunner, _Descs, None]:
        runner = PluginRunner(self._valid(), allocate=None)
        inputs, outputs = unreachable_where_refused(lambda: self._dims(runner.plugin, case.ranks))
        pairs = self.traced.formats[case.format]
        places = [
            *(("input", index) for index in range(len(inputs))),
            *(("output", index) for index in range(len(outputs))),
        ]
        scales = [
            traced_scale(*place) if dtype is DType.INT8 else None
            for place, (dtype, _) in zip(places, pairs, strict=True)
        ]
        descs = [
            TensorDesc(f"tensor{index}", dims, dtype, layout, scale)  # type: ignore[arg-type]
            for index, (dims, (dtype, layout), scale) in enumerate(zip([*inputs, *outputs], pairs, scales, strict=True))
        ]
        split = descs[: len(inputs)], descs[len(inputs) :]
        if again:
            unreachable_where_refused(lambda: runner.configure(*split))
        else:
            runner.configure(*split)
        return runner, split, None

    def _sized(self, case: Case) -> tuple[PluginRunner, _Descs, Any]:
        runner, descs, _ = self._configured(case, again=True)
        return runner, descs, runner.workspace_size(*descs)

    def _launches(self, case: Case) -> tuple[Launch, ...]:
        runner, both, size = unreachable_where_refused(lambda: self._sized(case))
        arrays = [
            [_Array(role, index, desc.dims, desc.dtype) for index, desc in enumerate(descs)]
            for role, descs in zip(("input", "output"), both, strict=True)
        ]
        workspace = None if type(size) is int and size == 0 else SymbolicArray("workspace", 0, (size,), "uint8")
        runner.initialize()
        recordings: list[tuple[Launch, ...]] = []
        for _ in range(2):
            with record_launches() as records:
                runner.enqueue(*arrays, Opaque("the stream"), workspace)
            recordings.append(tuple(self._launch(record) for record in records))
        if recordings[0] != recordings[1]:
            raise ExportError(
                "enqueue launches something else when it is called again.\n"
                "Do: let it depend on fields, dims and types alone"
            )
        written = {
            (argument.role, argument.index)
            for record in recordings[0]
            for parameter, argument in zip(
                self.traced.kernels[record.kernel].signature.parameters, record.arguments, strict=True
            )
            if isinstance(argument, Pointer) and not parameter.const
        }
        missing = [index for index in range(len(arrays[1])) if ("output", index) not in written]
        if missing:
            raise ExportError(f"enqueue gives output {missing[0]} to no kernel that could write it")
        return recordings[0]

    def _launch(self, record: LaunchRecord) -> Launch:
        key = (id(record.kernel), record.element)
        if key not in self._numbers:
            kernel = record.kernel
            self._numbers[key] = len(self.traced.kernels)
            self.traced.kernels.append(
                CompileUnit(kernel.source, kernel.label, kernel.signature, record.element, kernel.options)
            )
        return Launch(
            self._numbers[key],
            tuple(self._argument(argument) for argument in record.arguments),
            tuple(as_expr(size) for size in record.threads),
            record.block,
            as_expr(record.shared_bytes),
        )

    def _argument(self, argument: Any) -> Expr | Pointer:
        zero = as_expr(0)
        if argument is None:
            return Pointer("null", 0, zero)
        if isinstance(argument, SymbolicArray):
            return Pointer(argument.role, argument.index, as_expr(argument.offset))
        if isinstance(argument, Constant) and isinstance(argument.array, TracedArray):
            tables, values = self.traced.tables, argument.array.values
            tables += [] if values in tables else [values]
            return Pointer("table", tables.index(values), zero)
        if isinstance(argument, Constant):
            for number, constant in enumerate(self.traced.constants):
                if (constant.dtype, constant.shape) == (argument.dtype, argument.array.shape) and (
                    constant.tobytes() == argument.array.tobytes()
                ):
                    return Pointer("constant", number, zero)
            self.traced.constants.append(np.array(argument.array))
            return Pointer("constant", len(self.traced.constants) - 1, zero)
        return as_expr(argument)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _valid(self) -> Plugin:
        """A plugin whose array fields `validate` accepts; each rank is a separate path."""
        plugin = self._instance()
        if any(isinstance(value, TracedArray) for value in plugin.__dict__.values()):
            unreachable_where_refused(plugin.validate)
        return plugin

    def _instance(self) -> Plugin:
        """A plugin whose fields are traced values, except for the fixed ones."""
        plugin = self.traced.plugin.__new__(self.traced.plugin)
        for spec in self.traced.specs:
            plugin.__dict__[spec.name] = self._values.get(spec.name, self._traced(spec))
        return plugin

    def _traced(self, spec: FieldSpec) -> Any:
        letter = spec.field_kind.expression
        if letter == "array":
            return TracedArray(self.traced.name, spec.name, spec.dtype)
        return traced_field(spec.name, letter) if letter else Opaque(f"the value of {spec.name}")

    def _explored(self, method: str, function: Any) -> Tree:
        return explore(function, f"{self.traced.name}.{method}")


class _Array(SymbolicArray):
    """An array whose size is known without its dims, so that all ranks give the same launches."""

    @property
    def size(self) -> Any:
        exprs = tuple(getattr(dim, "expr", None) for dim in self.shape)
        if self.role == "input" and exprs == tuple(Expr("dim", (self.index, axis), "i") for axis in range(self.ndim)):
            return TracedInt(Expr("volume", (self.index,), "i"))
        return super().size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise KernelError(f"{self} has no values in an export, so there is no .{name}")


def _exprs(value: Any) -> Any:
    """Expressions of traced values: of a number of bytes, or of the dims of each output."""
    return tuple(tuple(map(as_expr, dims)) for dims in value) if isinstance(value, tuple) else as_expr(value)


def _stored_values(plugin: type[Plugin], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form of the fixed fields' values; the plugin's own checks refuse invalid ones."""
    specs = {spec.name: spec for spec in plugin.field_specs()}
    unknown = [name for name in fixed if name not in specs]
    if unknown:
        raise UsageError(f"{plugin.__name__} has no field {unknown[0]!r}. Fields: {', '.join(specs) or 'none'}.")
    values = {name: specs[name].convert(value, plugin.__name__) for name, value in fixed.items()}
    if all(name in values or spec.default is not MISSING for name, spec in specs.items()):
        try:
            plugin(**values)
        except FieldError:
            if len(values) == len(specs):
                raise
    return values
