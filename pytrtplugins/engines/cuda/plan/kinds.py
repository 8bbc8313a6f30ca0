"""Decide which kind of step a node becomes: one of the engine's own kernels, or an array function."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....model.operator_traits import Trait, operators
from ....tensor import DType
from ..device.layout import CODES, Format, linear
from ..operators.windows import Windows
from .plan import Step
from .tensors import FLOATS, Dims, Tensors

__all__ = [
    "alias_format",
    "dense_format",
    "is_channel_concat",
    "is_float_product",
    "is_linear_pool",
    "is_plain_activation",
    "is_plain_cast",
    "is_plain_pool",
    "is_view_split",
    "lies_as",
    "step_scale",
    "with_pads",
]

_SAME_ORDER = operators(Trait.KEEPS_ORDER)


def is_plain_pool(step: Step, tensors: Tensors) -> bool:
    """Whether the engine's pool kernel takes a pool: NHWC, one output, no dilations."""
    return (
        tensors.image(step.inputs[0]).nhwc
        and len(step.outputs) == 1
        and set(step.attributes.get("dilations", (1,))) == {1}
    )


def with_pads(step: Step, tensors: Tensors) -> Step:
    """The step of a pool of images with the pads that ``auto_pad`` SAME means as numbers; other steps are unchanged."""
    if not step.attributes.get("auto_pad", "NOTSET").startswith("SAME"):
        return step
    (_, _, *sizes), (_, _, *outputs) = (tensors.dims(name) for name in (step.inputs[0], step.outputs[0]))
    window = Windows.of(step.attributes, step.attributes["kernel_shape"], sizes, outputs)
    pads = {"auto_pad": "NOTSET", "pads": (*window.begins, *window.ends)}
    return replace(step, attributes={**step.attributes, **pads})


def is_linear_pool(step: Step, tensors: Tensors) -> bool:
    """Whether a MaxPool or AveragePool writes a row-major tensor, and reads values that lie so: no copies to NHWC are wanted."""
    if step.op not in ("AveragePool", "MaxPool") or step.inputs[0] in tensors.constants:
        return False
    sources = [str(source.tensor) for source in tensors.move(step.inputs[0]).sources]
    forms = [
        tensors.natural(step.outputs[0]),
        *(tensors.formats.get(tensors.casts.get(name, name)) for name in sources),
    ]
    return not any(form is not None and form.nhwc for form in forms)


def is_plain_activation(step: Step, tensors: Tensors) -> bool:
    """Whether the activation kernel takes a node: NHWC floats of one type, default attributes."""
    if step.attributes.get("approximate", "none") != "none" or step.attributes.get("alpha", 1.0) != 1.0:
        return False
    forms = [tensors.natural(name) for name in (step.inputs[0], step.outputs[0])]
    return (
        step.inputs[0] not in tensors.constants
        and all(form.nhwc and form.dtype in FLOATS for form in forms)
        and forms[0].dtype is forms[1].dtype
    )


def is_float_product(step: Step, tensors: Tensors) -> bool:
    """Whether cuBLASLt takes a MatMul: float tensors of one type, none empty, at most one of them a constant."""
    described = {name: tensors.described(name) for name in (*step.inputs, *step.outputs)}
    computed = {dtype for name, (_, dtype) in described.items() if name not in tensors.constants}
    return (
        not all(name in tensors.constants for name in step.inputs)
        and len(computed) == 1
        and {dtype for _, dtype in described.values()} <= set(FLOATS)
        and not any(0 in dims for dims, _ in described.values())
    )


def is_plain_cast(step: Step, tensors: Tensors) -> bool:
    """Whether the reformat kernel takes a Cast, or a Q or DQ with one scale and zero point 0."""
    types = {tensors.dtype(step.inputs[0]), tensors.dtype(step.outputs[0])}
    if not types <= {*FLOATS, *CODES, DType.UINT8} or step.inputs[0] in tensors.constants:
        return False
    if step.op == "Cast":
        return types <= set(FLOATS)
    scale, zero = (tensors.constants.get(name) for name in (*step.inputs[1:], "")[:2])
    if zero is None and any(step.inputs[2:]):  # computed in the run
        return False
    return (
        1 <= len(tensors.dims(step.inputs[0])) <= 4
        and scale is not None
        and scale.size == 1
        and (not any(step.inputs[2:]) or (zero is not None and not zero.any()))
    )


def step_scale(step: Step, tensors: Tensors) -> dict[str, Any]:
    """The scale of a Q or DQ as a step attribute."""
    scale = float(tensors.constants[step.inputs[1]].reshape(()))
    return {"y_scale" if step.op == "QuantizeLinear" else "x_scale": scale}


def is_channel_concat(step: Step, tensors: Tensors) -> bool:
    """Whether a Concat joins the channels of NHWC tensors."""
    form = tensors.natural(step.outputs[0])
    return (
        form.nhwc
        and step.attributes.get("axis") in (1, -3)
        and form.dtype in (*FLOATS, *CODES)
        and not any(name in tensors.constants for name in step.inputs)
    )


def is_view_split(step: Step, tensors: Tensors) -> bool:
    """Whether a Split cuts the channels of an NHWC tensor at aligned channels, so that its outputs can be views."""
    name = step.inputs[0]
    form = tensors.natural(name) if name in tensors.casts else tensors.formats.get(name)
    sizes = [tensors.dims(part)[1] for part in step.outputs if len(tensors.dims(part)) == 4]
    return (
        form is not None
        and form.nhwc
        and step.attributes.get("axis", 0) in (1, -3)
        and len(sizes) == len(step.outputs)
        and all(size % form.vector == 0 for size in sizes)
    )


def alias_format(step: Step, form: Format, tensors: Tensors) -> Format | None:
    """The format of a node's output if it can be an alias of its input: Reshape and the like, some Transposes.

    Args:
        step: The node.
        form: How its input lies.
        tensors: All that are known.

    Returns:
        The form; None for other nodes, and where values must move.
    """
    if not any(step.outputs[:1]) or not form.dense:
        return None
    dims, dtype = tensors.described(step.outputs[0])
    if 0 in dims or dtype is not form.dtype:
        return None
    if step.op == "Transpose":
        order = step.attributes.get("perm", tuple(reversed(range(len(dims)))))
        strides = tuple(form.strides[axis] for axis in order)
    elif step.op in _SAME_ORDER and lies_as(form.dims, form.strides, linear(form.dims, dtype)):
        strides = linear(dims, dtype).strides
    else:
        return None
    return dense_format(step.outputs[0], strides, tensors)


def dense_format(name: str, strides: tuple[int, ...], tensors: Tensors, pitch: int = 0) -> Format | None:
    """The format that has these strides; None where there is none.

    Args:
        name: The tensor.
        strides: Values between neighbours along each axis.
        tensors: All that are known.
        pitch: Values between the pixels of an image with gaps; 0: there are no gaps.
    """
    dims, dtype = tensors.described(name)
    forms: tuple[Format, ...] = tensors.natural(name), linear(dims, dtype), tensors.image(name)
    if pitch:
        forms = tuple(replace(form, pitch=pitch) for form in forms if form.nhwc and form.dims[1] <= pitch)
    return next((form for form in forms if (pitch or form.dense) and lies_as(dims, strides, form)), None)


def lies_as(dims: Dims, strides: tuple[int, ...], form: Format) -> bool:
    """Whether strides equal those of a format; strides of axes of size 1 do not count."""
    pairs = zip(dims, strides, form.strides, strict=True)
    return all(size == 1 or found == wanted for size, found, wanted in pairs)
