"""Operator → whether its kernel takes a node, and the function that writes the kernel's source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .....tensor import DType
from ..device import Device
from ..elements import stored
from ..generated import GeneratedKernel
from ..layout import Format
from ..moves import Move
from ..operands import Operand, operands
from ..source import sources
from ..text import C_TYPES, library_text

__all__ = [
    "FRACTIONS",
    "INDEXED",
    "INDICES",
    "Described",
    "KernelSource",
    "Node",
    "fits_kernel",
    "indexed",
    "indexed_kernel",
    "library",
]

Described = tuple[tuple[int, ...], DType]
"""Dims and element type of a tensor."""
Attributes = Mapping[str, Any]
FRACTIONS = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64)
INDICES = (DType.INT32, DType.INT64)


@dataclass(frozen=True)
class KernelSource:
    """A kernel's source and its grid.

    Attributes:
        text: CUDA C++ with one kernel, ``indexed``, whose parameters are the addresses ``x0``, ``x1``, … of the inputs, ``y0``,
            ``y1``, … of the outputs, and of a flag, ``flag``, that an index out of range raises; null: nobody asks.
        blocks: How many it can use.
        threads: Of a block.
        in_turns: Whether it does with fewer blocks.
        scratch: Bytes of memory that the kernel works in; their address is the parameter ``scratch``.
    """

    text: str
    blocks: int
    threads: int
    in_turns: bool = True
    scratch: int = 0


@dataclass(frozen=True)
class Node:
    """What a kernel is written for.

    Attributes:
        op: The operator.
        attributes: The node's; values of constant inputs that are not read by the kernel are in ``"known"``, by their places.
        inputs: What it reads.
        outputs: How results lie; None for one that nobody reads.
    """

    op: str
    attributes: Attributes
    inputs: Sequence[Operand]
    outputs: Sequence[Format | None]

    @property
    def output(self) -> Format:
        """How the first result lies that somebody reads."""
        return next(form for form in self.outputs if form is not None)

    @property
    def parameters(self) -> list[str]:
        """C: as they are declared."""
        count = len(self.inputs[0].formats)
        names = [f"const void* x{index}" for index in range(count)]
        return [*names, *(f"void* y{index}" for index in range(len(self.outputs))), "bool* flag", "void* scratch"]


@dataclass(frozen=True)
class IndexedOperator:
    """A row of the table.

    Attributes:
        fits: Whether the kernel takes a node: of its attributes, and the dims and types of what it reads and writes.
        write: The source for a node.
        reads: Places of the inputs that the kernel reads.
        fills: Whether the kernel writes zeros into the channels that fill a pixel's last 16 bytes, in its first output.
        checks: Whether values of input 1 may be out of range, which the kernel and the function of arrays report.
    """

    fits: Callable[[Attributes, Sequence[Described], Sequence[Described | None]], bool]
    write: Callable[[Node], KernelSource]
    reads: tuple[int, ...]
    fills: bool
    checks: bool


INDEXED: dict[str, IndexedOperator] = {}
"""Standard operators that have a kernel of this kind."""


def indexed(
    *names: str,
    fits: Callable[[Attributes, Sequence[Described], Sequence[Described | None]], bool],
    reads: tuple[int, ...] = (0, 1),
    fills: bool = False,
    checks: bool = False,
) -> Callable[[Callable[[Node], KernelSource]], Callable[[Node], KernelSource]]:
    """Note the function that writes the source of operators' kernels; arguments as in `IndexedOperator`."""

    def keep(write: Callable[[Node], KernelSource]) -> Callable[[Node], KernelSource]:
        INDEXED.update(dict.fromkeys(names, IndexedOperator(fits, write, reads, fills, checks)))
        return write

    return keep


def fits_kernel(
    op: str, attributes: Attributes, inputs: Sequence[Described], outputs: Sequence[Described | None]
) -> bool:
    """Whether an operator of `INDEXED` has a kernel for a node: no tensor is empty, and the row says so.

    Args:
        op: The operator.
        attributes: As `Node` has them.
        inputs: Dims and types of what the kernel reads.
        outputs: Of the results; None for one that nobody reads.
    """
    tensors = [each for each in (*inputs, *outputs) if each is not None]
    return not any(0 in dims for dims, _ in tensors) and INDEXED[op].fits(attributes, inputs, outputs)


def indexed_kernel(
    device: Device,
    op: str,
    attributes: Attributes,
    inputs: Sequence[Format],
    outputs: Sequence[Format | None],
    reads: Sequence[Move],
) -> tuple[GeneratedKernel, int]:
    """The kernel of a node on a device, and the bytes of memory that it works in.

    Args:
        device: Where it runs.
        op: The operator.
        attributes: As `Node` has them.
        inputs: How tensors lie that are read.
        outputs: How results lie; None for one that nobody reads.
        reads: What the operator reads, as moves of the inputs by their places.
    """
    forms = [_plain(form) for form in inputs]
    results = [None if form is None else _plain(form) for form in outputs]
    first = next(form for form in results if form is not None)
    source = INDEXED[op].write(Node(op, attributes, operands(forms, reads, first), results))
    kernel = GeneratedKernel(device, source.text, "indexed", source.blocks, source.threads, source.in_turns)
    return kernel, source.scratch


def library(*files: str) -> str:
    """The functions that these kernels call, with those of other files of `KERNELS`."""
    return "\n".join((library_text(), sources("indexed.cu", *files)))


def _plain(form: Format) -> Format:
    """How a tensor lies, in a type that C has: codes that are only moved are bytes."""
    return form if form.dtype in C_TYPES else replace(form, dtype=DType(str(stored(form.dtype))))
