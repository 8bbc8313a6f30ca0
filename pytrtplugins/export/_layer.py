"""Write a traced plugin as a C++ class on the interface of plugin.h."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..cuda.signature import C_TYPES
from ..errors import ExportError
from ..tensor import DType
from ..utils.cpp_literals import text_literal
from ._explore import Returned, Tree, ends, map_ends
from ._expressions import Scope, block, method
from ._fields import field_checks, field_members, table_releases, table_uploads
from ._traced import Case, Launch, Pointer, TracedPlugin
from ._values import Expr

__all__ = ["layer_class"]

_RULE = Scope("inputs[{}]")
_DESCS = Scope("inputs[{}].dims")
_WORK = Scope("inputDescs[{}].dims")
_IN_OUT = "std::vector<TensorDesc> const& inputs, std::vector<TensorDesc> const& outputs"
K = TypeVar("K")


def layer_class(traced: TracedPlugin) -> str:
    """The text of the class, its tables and its registration."""
    key = traced.plugin.plugin_key()
    methods = [
        field_members(traced),
        _validate(traced),
        _facts(traced),
        _output_dims(traced),
        _output_type(traced),
        _supports_format(traced),
        _configure(traced),
        _workspace(traced),
        _enqueue(traced),
    ]
    body = "\n".join(line for method in methods if method for line in [*method, ""])
    return (
        f"{_format_table(traced)}\n"
        f"class {key.name} : public pytrtplugins::Plugin {{\npublic:\n{body.rstrip()}\n}};\n\n"
        f"PYTRTPLUGINS_REGISTER({key.name}, {text_literal(key.namespace)}, {text_literal(key.version)})\n"
    )


def _format_table(traced: TracedPlugin) -> str:
    rows = [
        "    {" + ", ".join(f"{{{_dtype(dtype)}, Layout::k{layout.upper()}}}" for dtype, layout in one) + "},"
        for one in traced.formats
    ]
    tensors = traced.inputs + traced.outputs
    return "\n".join(
        [
            "// Accepted types and layouts of the inputs and outputs.",
            f"Format const kFormats[][{tensors}] = {{",
            *rows,
            "};",
            "",
        ]
    )


def _dtype(dtype: DType) -> str:
    return f"DType::k{dtype.value.upper()}"


def _validate(traced: TracedPlugin) -> list[str]:
    lines = field_checks(traced)
    lines += block(traced.validate, _RULE, lambda value: ["return;"], 2)
    lines = lines[:-1] if lines[-1].strip() == "return;" else lines
    return method("void validate() const override", lines) if lines else []


def _facts(traced: TracedPlugin) -> list[str]:
    lines = []
    doc = (traced.plugin.__doc__ or "").strip().partition("\n")[0]
    if doc:
        lines.append(f"    char const* description() const override {{ return {text_literal(doc)}; }}")
    if traced.plugin.int8 != "float":
        lines.append(f"    Int8 int8() const override {{ return Int8::k{traced.plugin.int8.upper()}; }}")
    return [
        *lines,
        f"    int32_t nbInputs() const override {{ return {traced.inputs}; }}",
        f"    int32_t nbOutputs() const override {{ return {traced.outputs}; }}",
        "    bool runsOn(Device device) const override { return device == kRunsOn; }",
    ]


# -- rules -------------------------------------------------------------------------------------------------------------


def _output_dims(traced: TracedPlugin) -> list[str]:
    groups = _groups({ranks: _same_dims(tree, ranks) for ranks, tree in traced.dims.items()})

    def end(outputs: Any) -> list[str]:
        return [f"return {{{', '.join(_dims(output) for output in outputs)}}};"]

    lines = []
    for tree, members in groups:
        text = block(tree, _RULE, end, 3)
        lines += [f"        if ({_rank_condition(members, 'inputs[{}].size()')}) {{", *text, "        }"]
    lines.append(f"        refuseDims({text_literal(traced.name)}, inputs);")
    return method("std::vector<Dims> outputDims(std::vector<Dims> const& inputs) const override", lines)


def _dims(output: Any) -> str:
    if isinstance(output, int):
        return f"inputs[{output}]"
    return f"Dims{{{', '.join(map(_RULE.whole, output))}}}"


def _same_dims(tree: Tree, ranks: tuple[int, ...]) -> Tree:
    """The tree with the input's index instead of equal dims, so that it is the same for all ranks."""
    inputs_of_dims = {
        tuple(Expr("dim", (index, axis), "i") for axis in range(rank)): index
        for index, rank in reversed(list(enumerate(ranks)))
        if rank or len(ranks) == 1
    }
    return map_ends(tree, lambda outputs: tuple(inputs_of_dims.get(output, output) for output in outputs))


def _output_type(traced: TracedPlugin) -> list[str]:
    def end(outputs: Any) -> list[str]:
        lines: list[str] = []
        for index, rows in enumerate(outputs):
            lines += [f"if (index == {index}) {{", *(f"    {line}" for line in _type_rule(rows, traced)), "}"]
        return [*lines, f"throw PluginError({text_literal(f'{traced.name}: no such output, or input types')});"]

    head = "DType outputType(int32_t index, std::vector<DType> const& inputs) const override"
    return method(head, block(traced.types, _RULE, end, 2))


def _type_rule(rows: Iterable[tuple[tuple[DType, ...], DType]], traced: TracedPlugin) -> list[str]:
    rows = list(rows)
    if len({output_type for _, output_type in rows}) == 1:
        return [f"return {_dtype(rows[0][1])};"]
    for index in range(traced.inputs):
        if all(types[index] == output_type for types, output_type in rows):
            return [f"return inputs[{index}];"]
    used = {one[: traced.inputs] for one in traced.formats}
    return [
        "if ("
        + " && ".join(f"inputs[{index}] == {_dtype(dtype)}" for index, dtype in enumerate(types))
        + f") return {_dtype(output_type)};"
        for types, output_type in rows
        if types in {tuple(dtype for dtype, _ in one) for one in used}
    ]


def _supports_format(traced: TracedPlugin) -> list[str]:
    def end(rows: Any) -> list[str]:
        tensors = traced.inputs + traced.outputs
        return [f"return matches(position, descs, kFormats[0], {tensors}, {{{', '.join(map(str, sorted(rows)))}}});"]

    head = "bool supportsFormat(int32_t position, std::vector<TensorDesc> const& descs) const override"
    return method(head, block(traced.supports, _RULE, end, 2))


# -- work --------------------------------------------------------------------------------------------------------------


def _configure(traced: TracedPlugin) -> list[str]:
    if all(tree == Returned(None) for tree in traced.configure.values()):
        return []
    lines = _cases(traced, traced.configure, _DESCS, lambda value: ["return;"], ("inputs.data()", "outputs.data()"))
    return method(f"void configure({_IN_OUT}) override", [*_unused("outputs", lines), *lines])


def _workspace(traced: TracedPlugin) -> list[str]:
    if all(tree == Returned(Expr("const", (0,), "i")) for tree in traced.workspace.values()):
        return []

    def end(size: Any) -> list[str]:
        return [f'return fit<size_t>({_DESCS.whole(size)}, "workspace");']

    lines = _cases(traced, traced.workspace, _DESCS, end, ("inputs.data()", "outputs.data()"))
    return method(f"size_t workspaceSize({_IN_OUT}) const override", [*_unused("outputs", lines), *lines])


def _unused(name: str, lines: list[str]) -> list[str]:
    return [] if any(name in line for line in lines) else [f"        static_cast<void>({name});"]


def _enqueue(traced: TracedPlugin) -> list[str]:
    """C++ lines of the method enqueue."""
    names, repeated = kernel_names(traced), _shared_numbers(traced)

    def end(launches: Any) -> list[str]:
        return [*(line for launch in launches for line in _launch(traced, launch, names, repeated)), "return;"]

    lines = [f"        auto const {name} = [&] {{ return {text}; }};" for text, name in repeated.items()]
    lines += _cases(traced, traced.enqueue, _WORK, end, ("inputDescs", "outputDescs"))
    prepared = [*names, *(f"constant{index}" for index in range(len(traced.constants)))]
    cleared = table_releases(traced)
    return [
        *method(
            "void initialize() override", [*(f"        {name}.prepare();" for name in prepared), *table_uploads(traced)]
        ),
        "",
        *([*method("void terminate() override", cleared), ""] if cleared else []),
        "    void enqueue(TensorDesc const* inputDescs, TensorDesc const* outputDescs, void const* const* inputs,",
        "                 void* const* outputs, void* workspace, Stream stream) override {",
        *(line for name in ("outputDescs", "inputs", "workspace") for line in _unused(name, lines)),
        *lines,
        "    }",
    ]


def kernel_names(traced: TracedPlugin) -> list[str]:
    """A variable for each kernel: ``reorg_float``."""
    names: list[str] = []
    for number, unit in enumerate(traced.kernels):
        name = f"k{number}_{unit.signature.name}"
        names.append(name if unit.element is None else f"{name}_{unit.element.strip('_').replace(' ', '_')}")
    return names


def _shared_numbers(traced: TracedPlugin) -> dict[str, str]:
    """Names for numbers that several launches use: repeated long expressions compile slowly."""
    launches = [launch for tree, _ in _groups(traced.enqueue) for path in ends(tree) for launch in path]
    counts = Counter(pair for launch in launches for pair in _numbers(traced, launch).items())
    several = [pair for pair, count in counts.items() if count > 1]
    return {text: f"{parameter}_{number}" for number, (parameter, text) in enumerate(several)}


def _launch(traced: TracedPlugin, launch: Launch, names: list[str], repeated: Mapping[str, str]) -> list[str]:
    """C++ lines of one launch."""
    unit, numbers = traced.kernels[launch.kernel], _numbers(traced, launch)
    arguments = []
    for parameter, argument in zip(unit.signature.parameters, launch.arguments, strict=True):
        text = _pointer(argument) if isinstance(argument, Pointer) else numbers[parameter.name]
        arguments.append(f"{repeated[text]}()" if text in repeated else text)
    threads = ", ".join(
        f"{_WORK.whole(size)}.value()" if size.op != "const" else str(size.args[0]) for size in launch.threads
    )
    head = f"{names[launch.kernel]}(stream, Extent{{{threads}}}, Extent{{{', '.join(map(str, launch.block))}}},"
    shared = f"{_WORK.whole(launch.shared)}.value()"
    return [head, *(f"    {text}," for text in [shared, *arguments][:-1]), f"    {[shared, *arguments][-1]});"]


def _numbers(traced: TracedPlugin, launch: Launch) -> dict[str, str]:
    """The arguments that are not pointers, by the names of their parameters."""
    unit = traced.kernels[launch.kernel]
    return {
        parameter.name: _number(unit.label, parameter.type, parameter.text, argument)
        for parameter, argument in zip(unit.signature.parameters, launch.arguments, strict=True)
        if not isinstance(argument, Pointer)
    }


def _pointer(pointer: Pointer) -> str:
    base = {
        "input": f"static_cast<char const*>(inputs[{pointer.index}])",
        "output": f"static_cast<char*>(outputs[{pointer.index}])",
        "workspace": "static_cast<char*>(workspace)",
        "constant": f"constant{pointer.index}.address()",
        "table": f"table{pointer.index}_.address()",
        "null": "static_cast<void*>(nullptr)",
    }[pointer.role]
    return (
        base
        if pointer.offset.op == "const" and not pointer.offset.args[0]
        else f"{base} + {_WORK.whole(pointer.offset)}.value()"
    )


def _number(label: str, kind: str, parameter: str, argument: Expr) -> str:
    numpy = np.dtype(C_TYPES[kind])
    if numpy.kind == "b":
        return f"static_cast<bool>({_WORK.truth(argument)})"
    if numpy.kind == "f":
        if numpy.itemsize == 2:
            raise ExportError(f"{label}: parameter `{parameter}`: pass a float; a half cannot be exported")
        return f"static_cast<{kind}>({_WORK.real(argument)})"
    standard = f"{numpy.name}_t" if kind not in ("long long", "long long int", "unsigned long long") else kind
    return f"fit<{standard}>({_WORK.whole(argument)}, {text_literal(parameter)})"


def _cases(
    traced: TracedPlugin,
    trees: Mapping[Case, Tree],
    scope: Scope,
    end: Callable[[Any], list[str]],
    descs: tuple[str, str],
) -> list[str]:
    """The lines for each format and each number of axes; the same lines are written once."""
    groups = _groups(trees)
    if len(groups) == 1:
        return block(groups[0][0], scope, end, 2)
    lines: list[str] = []
    every = {case.format for case in trees}
    for tree, cases in groups:
        formats = {case.format for case in cases}
        ranks = {number: {case.ranks for case in cases if case.format == number} for number in formats}
        possible = {number: {case.ranks for case in trees if case.format == number} for number in every}
        questions = [
            f"format == {number}"
            if ranks[number] == possible[number]
            else f"(format == {number} && ({_rank_condition(ranks[number], scope.dims + '.size()')}))"
            for number in sorted(formats)
        ]
        lines += [f"        if ({' || '.join(questions)}) {{", *block(tree, scope, end, 3), "        }"]
    find = (
        f"        int32_t const format = findFormat(kFormats[0], {len(traced.formats)}, {descs[0]}, {traced.inputs}, "
        f"{descs[1]}, {traced.outputs});"
    )
    return [find, *lines, f"        refuseFormat({text_literal(traced.name)});"]


def _groups(trees: Mapping[K, Tree]) -> list[tuple[Tree, list[K]]]:
    """Keys with equal trees."""
    groups: dict[Tree, list[K]] = {}
    for key, tree in trees.items():
        groups.setdefault(tree, []).append(key)
    return list(groups.items())


def _rank_condition(ranks: Iterable[tuple[int, ...]], size: str) -> str:
    """C++ condition that the inputs have one of these ranks."""
    ranks = sorted(set(ranks))
    choices = [sorted(set(one)) for one in zip(*ranks, strict=True)]
    if len(ranks) == len(list(itertools.product(*choices))):
        return " && ".join(
            f"{size.format(index)} == {values[0]}" if len(values) == 1 else f"({_either(size.format(index), values)})"
            for index, values in enumerate(choices)
        )
    return " || ".join(
        "(" + " && ".join(f"{size.format(index)} == {rank}" for index, rank in enumerate(one)) + ")" for one in ranks
    )


def _either(size: str, values: list[int]) -> str:
    if values == list(range(values[0], values[-1] + 1)):
        low = f"{size} >= {values[0]} && " if values[0] else ""
        return f"{low}{size} <= {values[-1]}"
    return " || ".join(f"{size} == {value}" for value in values)
