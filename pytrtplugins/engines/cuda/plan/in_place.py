"""Find tensors that can be read in the memory of another tensor by strides: dense aliases, and factors of products."""

from __future__ import annotations

import math
from dataclasses import replace

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
    for index, name in enumerate(step.inputs):
        dims = tensors.dims(name)
        if name in tensors.constants:
            continue
        source, form, view = _view(tensors.moves[name], tensors, True) if tensors.is_moved(name) else ("", None, None)
        strides = view.strides if view is not None and form is not None and form.dtype is result.dtype else None
        if (
            view is not None
            and strides is not None
            and is_matrix(dims, strides)
            and _batch_count(dims, strides) <= _MAX_CALLS
        ):
            places[index] = view.offset, Strides(dims, result.dtype, strides)
            names[index] = source
            views.dense.add(source)
        else:
            names[index] = tensors.as_format(name, linear(dims, result.dtype), exact=True)
    tensors.formats[step.outputs[0]] = result
    return replace(step, kind="matmul", attributes={"factors": places}, inputs=tuple(names))


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
