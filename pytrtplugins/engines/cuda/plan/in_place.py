"""Find tensors that can be read in the memory of another tensor by strides: dense aliases, and factors of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..device.batches import batched
from ..device.cublaslt import is_matrix
from ..device.layout import Format, Strides, linear
from ..device.moves import Move, Reshaped, Source
from ..device.strided import Strided
from .kinds import dense_format, lies_as
from .moves import strided
from .plan import Step
from .tensors import Dims, Tensors
from .views import ChannelViews

__all__ = ["cast_alias", "dense_alias", "linear_copy", "product_step"]

_MAX_CALLS = 4
"""Calls of cuBLASLt, each for a batch of products, that take less time than a copy and one call."""
_CALL_BYTES = 4 << 20
"""What is copied in the time of a call."""


def dense_alias(name: str, move: Move, tensors: Tensors) -> tuple[str, Format] | None:
    """Find the tensor whose memory a moved tensor can share, and the format there: dense, or with the source's pixel pitch.

    None where there is none.

    Args:
        name: The other tensor.
        move: Where its values lie.
        tensors: All that are known.
    """
    source, form, view = _view(move, tensors)
    if view is None or form is None or view.offset or view.strides is None or form.dtype is not tensors.dtype(name):
        return None
    alias = dense_format(name, view.strides, tensors, 0 if form.dense else form.pitch)
    if alias is None or alias.elements != form.elements or (not form.dense and alias.dims[1] != form.dims[1]):
        return None
    return source, alias


def cast_alias(move: Move, tensors: Tensors) -> tuple[str, Format] | None:
    """Find the row-major source of a reshaped Cast, and its format with the new dims; None for other moves.

    Args:
        move: Where the values lie.
        tensors: All that are known.
    """
    converted = move.x if isinstance(move, Reshaped) else None
    source = tensors.casts.get(str(converted.tensor), "") if isinstance(converted, Source) else ""
    form = tensors.formats.get(source)
    return None if form is None or form.nhwc else (source, linear(move.dims, form.dtype))


def linear_copy(name: str, move: Move, tensors: Tensors, views: ChannelViews) -> tuple[str, Format] | None:
    """Find or make the row-major copy of the NHWC image of which a tensor is a reshape, and the tensor's format in it.

    What writes the image may write the copy instead. None where the values lie in no image, or in another order.

    Args:
        name: The tensor.
        move: Where its values lie; those may be of another type.
        tensors: All that are known; the copy is added.
        views: Where the image lies in the memory of another one, it gets an alias.
    """
    if not isinstance(move, Reshaped) or (image := _image(f"{name}@image", move.x, tensors, views)) is None:
        return None
    dims, dtype = tensors.described(name)
    return tensors.as_format(image, linear(move.x.dims, dtype)), linear(dims, dtype)


def product_step(step: Step, tensors: Tensors, views: ChannelViews) -> Step:
    """Make the step of a MatMul, and set the format of its result.

    Factors are read as they lie, where strides say it, rows or columns have no gaps, and few calls do it; else they are copied.
    Small ones that are broadcast along several axes are copied with all their repetitions, so that one call does all.
    Constants stay constants.

    Args:
        step: The node.
        tensors: All that are known; the result and copies are added.
        views: What is read in place gets no gaps from now on.

    Returns:
        The step; its attribute ``factors`` has the number of a factor → its first value in the tensor that is read, and its strides.
    """
    names, places = list(step.inputs), dict[int, tuple[int, Strides]]()
    result = linear(*tensors.described(step.outputs[0]))
    found = {index: view for index, name in enumerate(names) if (view := _factor_view(name, result, tensors))}
    forms = [
        found[index][2] if index in found else linear(tensors.dims(name), result.dtype)
        for index, name in enumerate(names)
    ]
    repeated = _repeated_dims(forms, [name in tensors.constants for name in names], result)
    for index, name in enumerate(step.inputs):
        if index in repeated:
            names[index] = tensors.expanded(name, repeated[index], result.dtype)
        elif index in found:
            names[index], first, form = found[index]
            places[index] = first, form
            views.dense.add(names[index])
        elif name not in tensors.constants:
            names[index] = tensors.as_format(name, linear(tensors.dims(name), result.dtype), exact=True)
    tensors.formats[step.outputs[0]] = result
    return replace(step, kind="matmul", attributes={"factors": places}, inputs=tuple(names))


def _factor_view(name: str, result: Format, tensors: Tensors) -> tuple[str, int, Strides] | None:
    """The tensor in whose memory a moved factor is read, its first value there, and its strides; None where it has to be copied."""
    if name in tensors.constants or not tensors.is_moved(name):
        return None
    (source, form, view), dims = _view(tensors.moves[name], tensors, True), tensors.dims(name)
    strides = view.strides if view is not None and form is not None and form.dtype is result.dtype else None
    if view is None or strides is None or not is_matrix(dims, strides) or _batch_count(dims, strides) > _MAX_CALLS:
        return None
    return source, view.offset, Strides(dims, result.dtype, strides)


def _repeated_dims(forms: Sequence[Format | Strides], constant: Sequence[bool], result: Format) -> dict[int, Dims]:
    """Factors to replace by copies with all matrices that they are broadcast to, as the calls that this saves take longer.

    Args:
        forms: How both factors lie.
        constant: Which of them are constants: their copies are made before the run.
        result: How the result lies.

    Returns:
        The number of a factor → the dims of its copy.
    """
    if min(len(form.dims) for form in forms) < 2 or (calls := len(batched(forms[0], forms[1], result)[1])) == 1:
        return {}
    wanted = [(*result.dims[:-2], *form.dims[-2:]) for form in forms]
    repeated = {index: wanted[index] for index in (0, 1) if math.prod(wanted[index]) != math.prod(forms[index].dims)}
    after = [linear(repeated[index], result.dtype) if index in repeated else forms[index] for index in (0, 1)]
    launches = len(batched(after[0], after[1], result)[1]) + sum(not constant[index] for index in repeated)
    size = sum(math.prod(dims) for dims in repeated.values()) * result.dtype.itemsize
    return repeated if size < (calls - launches) * _CALL_BYTES else {}


def _batch_count(dims: Dims, strides: tuple[int, ...]) -> int:
    """The number of strided batches, hence of cuBLASLt calls, that a batched matrix needs."""
    sizes: list[int] = []
    step = 0
    for size, stride in zip(dims[-3::-1], strides[-3::-1], strict=True):
        if size > 1:
            sizes.append(size * sizes.pop() if sizes and stride == step else size)
            step = size * stride
    return math.prod(sorted(sizes)[:-1])


def _image(name: str, move: Move, tensors: Tensors, views: ChannelViews) -> str | None:
    """The NHWC tensor with the values of a move in the same order, or a new alias ``name`` of one; None where there is none."""
    if isinstance(move, Source):
        return str(move.tensor) if tensors.natural(str(move.tensor)).nhwc else None
    source, form, view = _view(move, tensors)
    if view is None or view.strides is None or view.offset or form is None or not form.nhwc or len(move.dims) != 4:
        return None
    image = replace(form, dims=move.dims)
    if image.elements != form.elements or move.dims[1] != form.dims[1] or not lies_as(move.dims, view.strides, image):
        return None
    views.alias(name, source, image)
    return name


def _view(move: Move, tensors: Tensors, converted: bool = False) -> tuple[str, Format | None, Strided | None]:
    """The single source tensor of a move, its format, and the move as a strided view of it; None for what does not exist.

    Args:
        move: Where the values lie.
        tensors: All that are known.
        converted: Whether a tensor in another float type is converted, rather than none.
    """
    sources = {str(source.tensor) for source in move.sources}
    source = sources.pop() if len(sources) == 1 else ""
    if converted and source in tensors.casts:
        source = tensors.materialized(source)
    form = tensors.formats.get(source)
    return source, form, None if form is None or 0 in form.dims else strided(move, form)
