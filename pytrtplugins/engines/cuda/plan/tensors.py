"""The tensors of a plan: dims, element type, format, and copies in other formats."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ....errors import BuildError, DimsError
from ....tensor import DType, evaluate_dims
from ..device.index import Index
from ..device.layout import CODES, Format, channels_last, linear
from ..device.moves import Expanded, Move, Source, reshaped
from .plan import Step

__all__ = ["FLOATS", "Dims", "Tensors"]

Dims = tuple[int, ...]
FLOATS = (DType.FLOAT32, DType.FLOAT16)
_IMAGE_TYPES = (*FLOATS, *CODES, DType.UINT8)
"""What lies in NHWC; kernels that change layouts know these types."""


@dataclass
class Tensors:
    """The tensors of one plan.

    Attributes:
        known: Dims and element type by name, as the model says them.
        constants: Arrays of the model.
        bindings: Sizes of the free dims.
        images: Those that lie in NHWC.
        steps: The plan's so far; copies are added.
        formats: How each tensor that is there lies.
        casts: A tensor that is only another tensor in another float type → that: the copy that a reader wants converts as well.
        alias: Lets a tensor whose values a move has lie in the memory of another, if it can; whether it does.
        moves: A tensor whose values lie in others → where: generated kernels read them there, for others a step puts them together.
    """

    known: Mapping[str, tuple[Any, DType | None]]
    constants: dict[str, npt.NDArray[Any]]
    bindings: Mapping[str, int]
    images: Collection[str]
    steps: list[Step]
    alias: Callable[[str, Move], bool] = lambda name, move: False
    formats: dict[str, Format] = field(default_factory=dict)
    casts: dict[str, str] = field(default_factory=dict)
    moves: dict[str, Move] = field(default_factory=dict)
    _copies: dict[tuple[str, Format], str] = field(default_factory=dict)

    def described(self, name: str) -> tuple[Dims, DType]:
        """Dims and element type of a tensor.

        Raises:
            BuildError: they are unknown before the run.
        """
        if name in self.constants:
            array = self.constants[name]
            return tuple(array.shape), DType.of(array)
        dims, dtype = self.known.get(name, (None, None))
        if dims is None or dtype is None or any(dim is None for dim in dims):
            raise BuildError(
                f"engine 'cuda': the dims or the type of tensor {name!r} are known only when the network runs.\n"
                'Do: build with engine="cpu"',
                engine="cuda",
            )
        try:
            sizes = evaluate_dims(dims, self.bindings)
        except DimsError as error:
            known = ", ".join(f"{free}={size}" for free, size in self.bindings.items())
            raise BuildError(
                f"engine 'cuda': the dims of tensor {name!r} do not follow from {known}: only the batch may be free.\n"
                'Do: give the inputs fixed dims beside it, or build with engine="cpu"',
                engine="cuda",
            ) from error
        if any(isinstance(size, int) and size < 0 for size in sizes):
            raise BuildError(
                f"engine 'cuda': the node that gives the tensor {name!r} cuts off more than there is: its dims would be {sizes}.\n"
                "Do: export the model again, with smaller pads",
                engine="cuda",
            )
        return sizes, dtype

    def dims(self, name: str) -> Dims:
        """Dims of a tensor."""
        return self.described(name)[0]

    def dtype(self, name: str) -> DType:
        """Element type of a tensor."""
        return self.described(name)[1]

    def natural(self, name: str) -> Format:
        """The default format of a tensor: NHWC for images, else linear."""
        return self.image(name) if name in self.images else linear(*self.described(name))

    def image(self, name: str) -> Format:
        """The NHWC format of a tensor; linear if it cannot be NHWC."""
        dims, dtype = self.described(name)
        fits = len(dims) == 4 and 0 not in dims and dtype in _IMAGE_TYPES
        return channels_last(dims, dtype) if fits else linear(dims, dtype)

    def materialized(self, name: str) -> str:
        """The tensor's name once it is in memory in its own type; a copy step is added if needed."""
        return self.as_format(name, self.natural(name)) if name in self.casts or self.is_moved(name) else name

    def stored(self, name: str) -> str:
        """The name of a tensor in memory with these values, in any float type: the source of a Cast, or the tensor."""
        return self.casts.get(name) or self.materialized(name)

    def is_moved(self, name: str) -> bool:
        """Whether a tensor has no memory of its own: its values are read in others."""
        return name in self.moves and name not in self.formats

    def move(self, name: str, dtype: DType | None = None) -> Move:
        """The move of a tensor, or the tensor itself as a source; a constant is converted to ``dtype`` first."""
        if dtype is not None and name in self.constants and self.dtype(name) is not dtype:
            copy = f"{name}@{dtype}"
            self.constants[copy] = self.constants[name].astype(dtype.numpy)
            name = copy
        return self.moves[name] if self.is_moved(name) else Source(self.dims(name), name)

    def read(self, moves: Sequence[Move], rounds: bool = False) -> tuple[tuple[str, ...], tuple[Move, ...]]:
        """The names of the tensors that a generated kernel reads, and its operands as moves of these by index.

        Args:
            moves: Where the operands' values lie.
            rounds: Whether the kernel only copies, and so rounds what is only converted to float16 itself.
        """
        names: dict[str, int] = {}
        operands = []
        for move in moves:
            sources = dict.fromkeys(str(source.tensor) for source in move.sources)
            own = {name: self.stored(name) if rounds else self.source_before_cast(name) for name in sources}
            if len({self._stored_type(name) for name in own.values()}) > 1:
                own = {name: self.materialized(name) for name in sources}
            places = {name: names.setdefault(tensor, len(names)) for name, tensor in own.items()}
            operands.append(move.over(lambda source, at=places: Source(source.dims, at[str(source.tensor)])))  # type: ignore[misc]
        return tuple(names), tuple(operands)

    def _stored_type(self, name: str) -> DType:
        return self.formats[name].dtype if name in self.formats else self.dtype(name)

    def source_before_cast(self, name: str) -> str:
        """The source of a Cast to float32, for kernels that read all float types; else the tensor in memory."""
        source = self.casts.get(name)
        return self.materialized(name) if source is None or self.dtype(name) is not DType.FLOAT32 else source

    def as_format(self, name: str, wanted: Format, exact: bool = False) -> str:
        """The name of the tensor in another format: itself, or a copy for which a step is added.

        Args:
            name: The tensor.
            wanted: The form.
            exact: No gaps but the form's own.

        Returns:
            The name of that tensor.
        """
        source = self.casts.get(name, name)
        if self.is_moved(source):
            target = wanted if wanted.dtype is self.dtype(source) else self.natural(source)
            move = self._through_nhwc_copy(self.moves[source], target)
            if move is self.moves[source] or not self.alias(source, move):
                self._add_move_step(source, move, target)
        form = self.formats.get(source)
        if form is None and name not in self.constants:
            raise BuildError(f"engine 'cuda': tensor {name!r} is read and nothing computes it", engine="cuda")
        if form == wanted or (form is not None and not exact and _reads_strided(form, wanted)):
            return source
        key = (name, wanted)
        if key not in self._copies:
            copy = f"{name}@{wanted.dtype}{'-nhwc' if wanted.nhwc else ''}{wanted.pitch or ''}"
            self.formats[copy] = wanted
            self._copies[key] = copy
            if form is None and self._is_read_by_kernels(name, wanted):
                names, reads = self.read([self.move(name)])
                attributes = {"operations": (), "results": (0,), "reads": reads}
                self.steps.append(Step("pointwise", copy, "Move", attributes, names, (copy,)))
                return copy
            plain = form is None or wanted.dtype not in _IMAGE_TYPES
            kind, op = ("generic", "Identity") if plain else ("reformat", "Reformat")
            self.steps.append(Step(kind, copy, op, {}, (source,), (copy,)))
        return self._copies[key]

    def expanded(self, name: str, dims: Dims, dtype: DType) -> str:
        """The name of a row-major copy of a tensor that is repeated along some axes; a step is added if there is none yet."""
        copy = f"{name}@{dtype}{list(dims)}"
        if name in self.constants and copy not in self.constants:
            self.constants[copy] = np.broadcast_to(self.constants[name], dims).astype(dtype.numpy)
        elif name not in self.constants and copy not in self.formats:
            self._add_move_step(copy, Expanded(dims, self.move(name)), linear(dims, dtype))
        return copy

    def _is_read_by_kernels(self, name: str, wanted: Format) -> bool:
        """Whether a generated kernel can write a constant in a format."""
        return {self.dtype(name), wanted.dtype} <= set(FLOATS) and bool(wanted.dims) and 0 not in wanted.dims

    def _add_move_step(self, name: str, move: Move, form: Format) -> None:
        """Add the step that copies moved values to memory of their own, in a format."""
        names, reads = self.read([move], rounds=True)
        self.formats[name] = form
        attributes = {"operations": (), "results": (0,), "reads": reads}
        self.steps.append(Step("pointwise", name, "Move", attributes, names, (name,)))

    def _through_nhwc_copy(self, move: Move, form: Format) -> Move:
        """Redirect a move that reads planes of one 5-D tensor for an NHWC image: read an NHWC copy of that tensor instead.

        A kernel that reads 16 bytes of each pixel there is faster, even with the copy, which is made once.
        """
        names = {str(source.tensor) for source in move.sources}
        source = self.stored(next(iter(names))) if form.nhwc and len(names) == 1 else ""
        volume = self.formats.get(source)
        if volume is None or volume.nhwc or len(volume.dims) != 5 or min(volume.dims[1], form.dims[1]) < form.vector:
            return move
        at = [Index.counter(str(axis), size) for axis, size in enumerate(form.dims)]
        at[1] = Index.counter("lane", form.vector)
        places = next((piece.at for piece in move.pieces(at) if piece.source is not None), ())
        if [index.factor("lane") for index in places] != [0, 1, 0, 0, 0]:
            return move
        image = channels_last((*volume.dims[:2], 1, math.prod(volume.dims[2:])), form.dtype)
        copy = f"{source}@{form.dtype}-pixels"
        if copy not in self.formats:
            self.formats[copy] = image
            self.steps.append(Step("reformat", copy, "Reformat", {}, (source,), (copy,)))
        return move.over(lambda source: reshaped(Source(image.dims, copy), source.dims))


def _reads_strided(found: Format, wanted: Format) -> bool:
    """Whether a strided view of channels can replace a dense NHWC tensor, for readers other than plugins."""
    return (
        found.nhwc
        and wanted.nhwc
        and found.dtype == wanted.dtype
        and found.dims[1] % found.vector == 0
        and found.pitch >= wanted.pitch
    )
