"""Operands and results of generated kernels: tensors in memory, and moves of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ....tensor import DType
from .expression import Number
from .index import Counter, Index
from .layout import Format, Strides, linear
from .moves import Move, Piece, Source
from .text import C_TYPES, operand_text

__all__ = ["Operand", "operands", "results"]

At = Callable[[int, Index], Sequence[Index]]
"""The length of a run of lanes, and the place in it → indices along the axes of the dims."""


@dataclass(frozen=True)
class Operand:
    """One value of each element.

    Attributes:
        move: Where it lies; its sources are numbers of parameters.
        formats: How the parameters lie.
        form: How it lies, if evenly in one parameter; otherwise how it would, so that loops fit the outputs.
        parameter: That parameter; None where it does not lie so.
    """

    move: Move
    formats: Sequence[Format]
    form: Format | Strides
    parameter: int | None

    @property
    def dtype(self) -> DType:
        """Element type of the operand."""
        return self.form.dtype

    def load(self, name: str, lanes: int, count: str, at: At) -> list[str]:
        """C++ code: load the values of a thread from a moved operand, in the longest contiguous runs.

        Args:
            name: Of the pack.
            lanes: Its length.
            count: How many of them there are.
            at: Places of the loops.
        """
        run, kind = self.run(lanes, at), C_TYPES[self.dtype]
        return [
            f"Pack<{kind}, {lanes}> {name};",
            "#pragma unroll",
            f"for (unsigned part = 0; part < {lanes // run}u; ++part) {{",
            f"    const {kind}* const from = {self.address(at(run, Index()))};",
            f"    load_run<{run}>({name}, part * {run}u, from, {count}, {self._fill()});",
            "}",
        ]

    def store(self, name: str, lanes: int, count: str, at: At) -> list[str]:
        """C++ code: store the values of a thread to a moved result; arguments as for `load`."""
        run = self.run(lanes, at)
        piece = self._pieces(at(run, Index()))[0]
        target = f"static_cast<{C_TYPES[self.dtype]}*>(y{piece.source}) + ({self._offset(piece).text})"
        return [
            "#pragma unroll",
            f"for (unsigned part = 0; part < {lanes // run}u; ++part) {{",
            f"    store_run<{run}>({target}, {name}, part * {run}u, {count});",
            "}",
        ]

    def run(self, lanes: int, at: At) -> int:
        """The longest aligned run of contiguous values in all pieces (8, 4, 2 or 1); arguments as for `load`."""
        return next(run for run in (8, 4, 2, 1) if run <= lanes and self._is_in_runs(run, at))

    def scalar(self, at: Sequence[Index]) -> str:
        """C++ code: load the value at an index."""
        kind = C_TYPES[self.dtype]
        return f"load_value<{kind}>({self.address(at)}, {self._fill()})"

    def address(self, at: Sequence[Index]) -> str:
        """C++ code: the address of the value at an index; null for a padding constant."""
        *pieces, last = self._pieces(at)
        text = self._address(last)
        for piece in reversed(pieces):
            guards = " && ".join(f"{(index + -low).text} < {high - low}u" for index, low, high in piece.guards)
            text = f"{guards or 'true'} ? {self._address(piece)} : {text}"
        return text

    def _address(self, piece: Piece) -> str:
        kind = f"const {C_TYPES[self.dtype]}*"
        if piece.source is None:
            return f"static_cast<{kind}>(nullptr)"
        return f"static_cast<{kind}>(x{piece.source}) + ({self._offset(piece).text})"

    def _offset(self, piece: Piece) -> Index:
        if piece.source is None:
            return Index()
        offset = Index()
        for index, stride in zip(piece.at, self.formats[int(piece.source)].strides, strict=True):
            offset = offset + index * stride
        return offset

    def _pieces(self, at: Sequence[Index]) -> list[Piece]:
        """The pieces at an index, up to the first without guards."""
        dims = self.move.dims
        own = [Index() if size == 1 else each for size, each in zip(dims, at[len(at) - len(dims) :], strict=True)]
        pieces: list[Piece] = []
        for piece in self.move.pieces(own):
            pieces.append(piece)
            if not piece.guards:
                break
        return pieces

    def _is_in_runs(self, run: int, at: At) -> bool:
        """Whether runs of this length are contiguous and aligned in all pieces."""
        if run == 1:
            return True
        for piece in self._pieces(at(run, Index.counter("lane", run))):
            for index, low, high in piece.guards:
                inside = index.factor("lane")
                if inside == 1 and not (index.is_multiple(run, "lane") and low % run == 0 and high % run == 0):
                    return False
                if inside not in (0, 1):
                    return False
            offset = self._offset(piece)
            if piece.source is not None and not (offset.factor("lane") == 1 and offset.is_multiple(run, "lane")):
                return False
        return True

    def _fill(self) -> str:
        kind = C_TYPES[self.dtype]
        value = next(iter(self.move.numbers), None)
        return f"{kind}()" if not value else f"static_cast<{kind}>({operand_text(Number.of(value, self.dtype))})"


def operands(inputs: Sequence[Format], reads: Sequence[Move] | None, output: Format) -> list[Operand]:
    """The operands of a kernel.

    Args:
        inputs: How its parameters lie.
        reads: Each operand; None: the parameters are.
        output: How its first result lies.
    """
    found = []
    for move in reads or [Source(form.dims, index) for index, form in enumerate(inputs)]:
        dtype = inputs[int(move.sources[0].tensor)].dtype
        pixels = output.nhwc and len(move.dims) == 4
        form = Format(move.dims, dtype, max(1, move.dims[1])) if pixels else linear(move.dims, dtype)
        found.append(_operand(move, inputs, form))
    return found


def results(outputs: Sequence[Format], writes: Mapping[int, Move]) -> list[Operand]:
    """The results of a kernel.

    Args:
        outputs: How its parameters lie.
        writes: Result → where in that parameter its values go, for those that are not the parameter as it is.
    """
    return [_operand(writes.get(index, Source(form.dims, index)), outputs, form) for index, form in enumerate(outputs)]


def _operand(move: Move, formats: Sequence[Format], form: Format) -> Operand:
    """An operand; ``form`` is how it would lie if it lies nowhere evenly."""
    if isinstance(move, Source):
        return Operand(move, formats, formats[int(move.tensor)], int(move.tensor))
    wanted = form if form.dims == move.dims else linear(move.dims, form.dtype)
    plain = Operand(move, formats, wanted, None)
    pieces = plain._pieces([Index.counter(str(axis), size) for axis, size in enumerate(move.dims)])
    offset = plain._offset(pieces[0])
    even = all(isinstance(atom, Counter) and factor > 0 for atom, factor in offset.terms)
    if len(pieces) > 1 or pieces[0].source is None or not even or offset.constant:
        return plain
    strides = tuple(offset.factor(str(axis)) or 0 for axis in range(len(move.dims)))
    return Operand(move, formats, Strides(move.dims, form.dtype, strides), int(pieces[0].source))
