"""Rules that need NumPy alone. Each takes a case and returns the problem, or an empty text."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import PytrtpluginsError
from ..plugin.base import Plugin
from ..plugin.format_method import has_default_formats, supports_format_source
from ..plugin.runner import PluginRunner
from ..tensor import PLUGIN_DTYPES, DType, SymbolicDim, evaluate_dims
from .cases import Case, outputs_of, random_array
from .compare import difference, differences
from .formats import cases_in_other_types
from .shared_dims import inputs_that_share, with_axis

__all__ = [
    "batch",
    "clones",
    "damage",
    "determinism",
    "dims",
    "dtypes",
    "formats",
    "half_precision",
    "independent_results",
    "inputs_unchanged",
    "int8_pass_through",
    "not_contiguous",
    "round_trip",
    "symbolic_dims",
]

_HALF = {DType.FLOAT16: 0.01, DType.BFLOAT16: 0.05}
"""How far results may be off, as a share of each value and of the mean of all."""
_HALF_NAMES = {str(dtype): room for dtype, room in _HALF.items()}


def dims(case: Case) -> str:
    """Compute returns as many outputs as output_dims, with these dims."""
    expected = case.plugin.all_output_dims(case.dims)
    actual = [tuple(array.shape) for array in outputs_of(case.plugin, case.inputs())]
    return "" if actual == list(expected) else f"compute gives {actual}, output_dims says {list(expected)}"


def dtypes(case: Case) -> str:
    """Compute returns the types of output_dtypes, for all types that the plugin supports."""
    for typed in [case, *cases_in_other_types(case)]:
        outputs = outputs_of(typed.plugin, typed.inputs())
        expected = typed.plugin.all_output_dtypes(typed.dtypes, len(outputs))
        actual = [array.dtype.name for array in outputs]
        if actual != [str(dtype) for dtype in expected]:
            types = ", ".join(map(str, dict.fromkeys(typed.dtypes)))
            return f"for {types} compute gives {actual}, output_dtypes says {[str(dtype) for dtype in expected]}"
    return ""


def half_precision(case: Case) -> str:
    """In float16 and bfloat16, compute is close to float32's result for the same values."""
    for typed in cases_in_other_types(case):
        if not _HALF.keys() & set(typed.dtypes):
            continue
        inputs = typed.inputs()
        outputs = outputs_of(typed.plugin, [array.copy() for array in inputs])
        wide = [array.astype(np.float32) if array.dtype.name in _HALF_NAMES else array for array in inputs]
        for index, (half, float32) in enumerate(zip(outputs, outputs_of(typed.plugin, wide), strict=True)):
            room = _HALF_NAMES.get(half.dtype.name, 0)
            if room and (wrong := _error_text(half, float32, room)):
                return (
                    f"{typed.formats}: output {index} is off by more than {room:.0%} of what float32 gives for the same values: {wrong}\n"
                    "Do: compute sums in float32, or let supports_format refuse the type"
                )
    return ""


def _error_text(actual: Any, expected: Any, room: float) -> str:
    """The worst value of an array whose error exceeds a share of its magnitude plus the mean magnitude; empty if none does."""
    with np.errstate(over="ignore", invalid="ignore"):
        same = (actual == np.asarray(expected).astype(actual.dtype)) | (np.isnan(actual) & np.isnan(expected))
        error = np.where(same, 0.0, np.abs(actual.astype(np.float64) - expected))
        sizes = np.abs(np.where(np.isfinite(expected), expected, 0.0)).astype(np.float64)
        excess = np.where(np.isnan(error), np.inf, error) - room * (sizes + sizes.mean() if sizes.size else 0.0)
    if not excess.size or not excess.max() > 0:
        return ""
    place = tuple(map(int, np.unravel_index(int(excess.argmax()), excess.shape)))
    return f"{list(place)}: {actual[place]}, float32 gives {expected[place]}"


def formats(case: Case) -> str:
    """supports_format returns a bool for every format, and True for some linear combination that compute takes."""
    linear = []
    for kind in dict.fromkeys([case.dtypes, *((kind,) * len(case.dims) for kind in PLUGIN_DTYPES)]):
        typed = replace(case, dtypes=kind)
        inputs, outputs = typed.descs()
        answers = [case.plugin.supports_format(i, [*inputs, *outputs]) for i in range(len(inputs) + len(outputs))]
        if any(not isinstance(answer, (bool, np.bool_)) for answer in answers):
            return f"supports_format gives {answers} for {kind}: expected True or False"
        if all(answers):
            linear.append(typed)
    if not linear or (case.own_arrays and linear[0].dtypes != case.dtypes):
        refusal = f"does not accept the types of the given inputs: {', '.join(map(str, case.dtypes))}"
        none = f"accepts no element type in linear layout{_refused_tensor(case)}"
        text = f"supports_format {refusal if case.own_arrays else none}"
        if not has_default_formats(case.plugin):
            return text
        output_types = [desc.dtype for desc in case.descs()[1]]
        return f"{text}. {supports_format_source(case.plugin, case.dtypes, output_types)}"
    for typed in [*(typed for typed in linear if not typed.requantizes), *cases_in_other_types(case)]:
        try:
            outputs_of(typed.plugin, typed.inputs())
        except Exception as error:
            types = ", ".join(map(str, dict.fromkeys(typed.dtypes)))
            return f"supports_format accepts {types}, compute does not: {type(error).__name__}: {error}"
    return ""


def _refused_tensor(case: Case) -> str:
    """The first tensor that the plugin refuses in the case's own types."""
    descs = [*case.descs()[0], *case.descs()[1]]
    position = next((place for place in range(len(descs)) if not case.plugin.supports_format(place, descs)), None)
    if position is None or position < len(case.dims):
        return ""
    index, dtype = position - len(case.dims), descs[position].dtype
    return f": output {index} is {dtype} by output_dtypes for {', '.join(map(str, case.dtypes))}, which it refuses"


def determinism(case: Case) -> str:
    """The same inputs give the same bytes."""
    first = [np.array(array) for array in outputs_of(case.plugin, case.inputs())]
    second = outputs_of(case.plugin, case.inputs())
    same = all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(first, second, strict=True))
    return "" if same else f"two runs on the same inputs differ: {differences(second, first) or 'in the last bits'}"


def symbolic_dims(case: Case) -> str:
    """output_dims with a symbolic axis equals the concrete dims once the axis has its value; the batch axis must work.

    The axis is symbolic in the inputs that share it, and where that is refused in all that have it.
    """
    concrete = case.plugin.all_output_dims(case.dims)
    for axis in range(max(map(len, case.dims))):
        every = tuple(index for index, dims_of_one in enumerate(case.dims) if len(dims_of_one) > axis)
        alike = len({case.dims[index][axis] for index in every}) == 1
        groups = [group for group in (inputs_that_share(case, axis), every if alike else ()) if group]
        refused = ""
        for group in dict.fromkeys(groups):
            mixed = with_axis(case.dims, axis, SymbolicDim("N"), group)
            shown = ", ".join(f"[{', '.join(map(str, dims_of_one))}]" for dims_of_one in mixed)
            try:
                result = case.plugin.all_output_dims(mixed)
            except Exception as error:
                refused = refused or f"output_dims refuses a symbolic batch, {shown}: {type(error).__name__}: {error}"
                continue
            evaluated = tuple(evaluate_dims(dims_of_one, {"N": case.dims[group[0]][axis]}) for dims_of_one in result)
            if evaluated != concrete:
                return f"output_dims gives {list(evaluated)} by way of {shown}, {list(concrete)} directly"
            refused = ""
            break
        if refused and not axis and len(case.dims[0]) >= 4:
            return refused
    return ""


def batch(case: Case) -> str:
    """An image's result does not depend on its neighbours, if the first axis is a batch."""
    count = case.dims[0][0]
    group = _batch_inputs(case) if count >= 2 and len(case.dims[0]) >= 2 else ()
    if not group:
        return ""
    inputs = case.inputs()
    expected = [np.array(array) for array in outputs_of(case.plugin, [array.copy() for array in inputs])]
    others = case.inputs(other=1)
    for image in range(count):
        mixed = [array.copy() for array in inputs]
        for index in group:
            mixed[index] = others[index].copy()
            mixed[index][image] = inputs[index][image]
        mixed_results = outputs_of(case.plugin, mixed)
        wrong = differences([array[image] for array in mixed_results], [array[image] for array in expected])
        if wrong:
            return f"image {image} of {count} changes when only the other images change: {wrong}"
    return ""


def _batch_inputs(case: Case) -> tuple[int, ...]:
    """The inputs whose first axis is the outputs' too; empty where it is not a batch."""
    batch_axis, group = SymbolicDim("N"), inputs_that_share(case, 0)
    try:
        outputs = case.plugin.all_output_dims(with_axis(case.dims, 0, batch_axis, group))
    except Exception:
        return ()
    return group if all(output_dims and output_dims[0] == batch_axis for output_dims in outputs) else ()


def not_contiguous(case: Case) -> str:
    """Compute accepts arrays in any memory order."""
    expected = [np.array(array) for array in outputs_of(case.plugin, case.inputs())]
    for name, view in (("reversed", _backwards), ("Fortran-ordered", np.asfortranarray), ("strided", _strided_copy)):
        try:
            results = outputs_of(case.plugin, [view(array) for array in case.inputs()])
        except Exception as error:
            return f"compute fails for {name} inputs: {type(error).__name__}: {error}"
        wrong = differences(results, expected)
        if wrong:
            return f"for {name} inputs: {wrong}"
    return ""


def _backwards(array: Any) -> Any:
    flip = (slice(None, None, -1),) * array.ndim
    return array[flip].copy()[flip]


def _strided_copy(array: Any) -> Any:
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def inputs_unchanged(case: Case) -> str:
    """Compute does not write into its inputs, in any type."""
    for typed in [case, *cases_in_other_types(case)]:
        inputs = typed.inputs()
        outputs = outputs_of(typed.plugin, inputs)
        if wrong := differences(inputs, typed.inputs()):
            pairs = [
                (i, j)
                for i, output in enumerate(outputs)
                for j, other in enumerate(inputs)
                if np.may_share_memory(output, other)
            ]
            alias = "; ".join(f"output {i} is an alias of input {j}, in the same memory" for i, j in pairs)
            where = "" if typed is case else f"{typed.formats}: "
            return f"{where}compute changes its inputs: {wrong}{alias and '; ' + alias}"
    return ""


def independent_results(case: Case) -> str:
    """A second call does not change the first one's result, and no result is an input."""
    inputs = case.inputs()
    first = outputs_of(case.plugin, inputs)
    for index, output in enumerate(first):
        same = [number for number, array in enumerate(inputs) if output is array]
        if same:
            return (
                f"alias of input and output: output {index} of compute is input {same[0]} itself; what is written into one "
                "later changes the other.\nDo: return a copy"
            )
    copies = [np.array(array) for array in first]
    second = outputs_of(case.plugin, case.inputs(other=1))
    shared = any(np.may_share_memory(a, b) for a, b in zip(first, second, strict=True))
    if shared:
        return "compute gives the same array every time: a second call overwrites the first result"
    wrong = differences(first, copies)
    return f"a second call changes the first result: {wrong}" if wrong else ""


def round_trip(case: Case) -> str:
    """Bytes give an equal plugin with the same bytes and results."""
    data = case.plugin.serialize()
    twin = type(case.plugin).deserialize(data)
    if twin != case.plugin:
        return f"deserialize(serialize()) gives {twin!r}"
    if twin.serialize() != data:
        return "serializing twice gives other bytes"
    if Plugin.deserialize(data) != case.plugin:
        return "Plugin.deserialize does not find the class"
    wrong = differences(outputs_of(twin, case.inputs()), outputs_of(case.plugin, case.inputs()))
    return f"the deserialized plugin computes something else: {wrong}" if wrong else ""


def damage(case: Case) -> str:
    """Each changed byte, each shorter and a longer form is refused, with an error of this package."""
    data = case.plugin.serialize()
    step = max(1, len(data) // 512)
    forms = [(f"cut to {size} of {len(data)} bytes", data[:size]) for size in range(0, len(data), step)]
    forms.append(("with a byte more", data + b"\0"))
    for place in range(0, len(data), step):
        changed = bytearray(data)
        changed[place] ^= 1 << (zlib.crc32(bytes([place & 255])) % 8)
        forms.append((f"with byte {place} changed", bytes(changed)))
    for name, form in forms:
        try:
            type(case.plugin).deserialize(form)
        except PytrtpluginsError:
            continue
        except Exception as error:
            return f"data {name} ends in {type(error).__name__}: {error}; expected SerializationError"
        return f"data {name} is accepted"
    return ""


def clones(case: Case) -> str:
    """A clone is equal, another object, and shares no changeable state, before and after initialize."""
    plugin = case.plugin.clone()
    if plugin != case.plugin:
        return f"clone gives {plugin!r}"
    runner = PluginRunner(plugin, allocate=None)
    for moment in ("", " after initialize"):
        twin = plugin.clone()
        if twin is plugin:
            return f"clone{moment} gives the plugin itself"
        if twin != plugin or type(twin) is not type(plugin):
            return f"clone{moment} gives {twin!r}"
        shared = _shared_state(plugin, twin)
        if shared:
            return f"clone{moment} shares the attribute {shared!r}"
        wrong = differences(outputs_of(twin, case.inputs()), outputs_of(case.plugin, case.inputs()))
        if wrong:
            return f"a clone{moment} computes something else: {wrong}"
        if not moment:
            runner.prepare(*case.descs())
    runner.close()
    return ""


def _shared_state(plugin: Plugin, twin: Plugin) -> str:
    fields = plugin.fields()
    for name, value in plugin.__dict__.items():
        changeable = isinstance(value, (list, dict, set, bytearray, np.ndarray))
        if name not in fields and changeable and twin.__dict__.get(name) is value:
            return name
    return ""


def int8_pass_through(case: Case) -> str:
    """With int8 = "pass_through", compute on int8 values equals compute on the same values in float32."""
    if case.plugin.int8 != "pass_through":
        return ""
    small = [random_array(shape, DType.INT8, (case.seed, i)) for i, shape in enumerate(case.dims)]
    results = outputs_of(case.plugin, [array.copy() for array in small])
    expected = outputs_of(case.plugin, [array.astype(np.float32) for array in small])
    for index, (array, floats) in enumerate(zip(results, expected, strict=True)):
        wrong = difference(array.astype(np.float32), floats, rtol=0, atol=0)
        if wrong or array.dtype != np.int8:
            return f"output {index}, {array.dtype}: {wrong or 'expected int8'}"
    return ""
