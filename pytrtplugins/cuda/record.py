"""Record launches instead of running them, for an exporter that writes them as C++.

Example::

    inputs = [SymbolicArray("input", 0, (SymbolicDim("N"), 4, 8, 8), "float32")]
    outputs = [SymbolicArray("output", 0, (SymbolicDim("N"), 16, 4, 4), "float32")]
    with record_launches() as launches:
        plugin.enqueue(inputs, outputs, workspace, None)
    for launch in launches:                   # a LaunchRecord each, in order
        launch.kernel.source, launch.kernel.name, launch.kernel.signature.parameters
        launch.arguments                      # one for each parameter
        launch.grid, launch.block, launch.shared_bytes
"""

from __future__ import annotations

import contextlib
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from ..errors import KernelError
from ..tensor import Dim, Dims, DType
from .signature import Signature

__all__ = [
    "Constant",
    "LaunchRecord",
    "RecordedKernel",
    "SymbolicArray",
    "SymbolicNumber",
    "SymbolicValues",
    "record",
    "record_launches",
]


class SymbolicNumber:
    """Base of numbers that only an exporter knows; a recorded launch takes them where it takes plain ones.

    Attributes:
        kind: ``"i"`` for a whole number, ``"f"`` for one with a fraction, ``"b"`` for a truth value.
    """

    kind: str


class SymbolicValues(ABC):
    """Base of arrays of numbers that only an exporter knows, such as a field's; a `Constant` keeps them as they are."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """The element type."""


class Constant:
    """Numbers that never change, as an argument of a launch: on a GPU they are copied there once, and kept.

    An exporter writes them into its source; those of an array field it reads from the model.

    Args:
        values: The array; it is copied.

    Example:
        >>> Constant(np.arange(3, dtype=np.int32)).array.tolist()
        [0, 1, 2]
    """

    def __init__(self, values: npt.ArrayLike | SymbolicValues) -> None:
        self.copies: dict[Any, Any] = {}
        self.array: Any = values
        if not isinstance(values, SymbolicValues):
            self.array = np.array(values, order="C")
            self.array.flags.writeable = False

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return cast("np.dtype[Any]", self.array.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Constant:
        return self

    def __repr__(self) -> str:
        return f"Constant({self.array.dtype}{list(self.array.shape)})"


@dataclass(frozen=True, eq=False)
class SymbolicArray:
    """An array of which only the place, the dims and the element type are known.

    Attributes:
        role: ``"input"``, ``"output"`` or ``"workspace"``.
        index: Which input or output; 0 for the workspace.
        shape: Dims; symbolic where known only at run time.
        dtype: Element type.
        offset: Where it begins, in bytes from the start of that input, output or workspace.
    """

    role: str
    index: int
    shape: Dims
    dtype: Any
    offset: Dim = 0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "dtype", np.dtype(self.dtype if not isinstance(self.dtype, DType) else self.dtype.numpy)
        )
        object.__setattr__(self, "shape", tuple(self.shape))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        size: Dim = math.prod(cast("Any", self.shape))
        return size

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> Dim:
        """Bytes in all."""
        return self.size * self.itemsize

    def __getitem__(self, key: Any) -> SymbolicArray:
        """A run of elements of an array with one axis: ``workspace[1024:]``."""
        if self.ndim != 1 or not isinstance(key, slice) or key.step not in (None, 1):
            raise KernelError(f"{self}: only slices with one axis and step 1 can be recorded, found [{key!r}]")
        start = 0 if key.start is None else key.start
        stop = self.shape[0] if key.stop is None else key.stop
        if any(isinstance(place, int) and place < 0 for place in (start, stop)):
            raise KernelError(f"{self}: slices from the end cannot be recorded, found [{key!r}]")
        return replace(self, shape=(stop - start,), offset=self.offset + start * self.itemsize)

    def view(self, dtype: npt.DTypeLike) -> SymbolicArray:
        """The same bytes with another element type; the last axis gets longer or shorter."""
        wanted = np.dtype(dtype)
        if wanted.itemsize == self.itemsize:  # an array without axes has no last one
            return replace(self, dtype=wanted)
        last = self.shape[-1] * self.itemsize // wanted.itemsize
        return replace(self, shape=(*self.shape[:-1], last), dtype=wanted)

    def reshape(self, *shape: Any) -> SymbolicArray:
        """The same elements with other dims; -1 is not known here."""
        dims = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        if any(isinstance(dim, int) and dim < 0 for dim in dims):
            raise KernelError(f"{self}.reshape{dims}: -1 cannot be recorded; write the size")
        return replace(self, shape=dims)

    def __str__(self) -> str:
        return f"{self.role} {self.index}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise KernelError(f"{self} has no values: while launches are recorded, only kernels can use it")


class RecordedKernel(Protocol):
    """What a record needs of a `CudaKernel`, whose attributes these are."""

    source: str
    name: str
    label: str
    options: tuple[str, ...]
    signature: Signature

    def prepare_element(self, element: str | None, constants: Iterable[Constant] = ()) -> None:
        """Compile for the current GPU, if there is one, and copy constants there."""


@dataclass(frozen=True)
class LaunchRecord:
    """One launch of a kernel.

    Attributes:
        kernel: What is launched.
        arguments: One for each of ``kernel.signature.parameters``: for pointers a `SymbolicArray`, a `Constant` or None
            (a null pointer); for values a bool, int, float or `SymbolicDim`, already checked against its type.
        threads: Total number of threads along x, y and z; where one is 0 at run time, nothing is launched.
        block: Threads of a block along x, y and z.
        shared_bytes: Dynamic shared memory.
        element: C type that stands for the kernel's type parameter, such as ``"__half"``; None where it has none.
    """

    kernel: RecordedKernel
    arguments: tuple[Any, ...]
    threads: tuple[Dim, Dim, Dim]
    block: tuple[int, int, int]
    shared_bytes: Dim
    element: str | None

    @property
    def grid(self) -> tuple[Dim, Dim, Dim]:
        """Number of blocks: threads divided by the block, rounded up."""
        x, y, z = ((total + (side - 1)) // side for total, side in zip(self.threads, self.block, strict=True))
        return x, y, z

    def prepare(self) -> None:
        """Compile the kernel for the current GPU, if there is one, and copy its constants there."""
        self.kernel.prepare_element(self.element, [value for value in self.arguments if isinstance(value, Constant)])


class _Recorders(threading.local):
    def __init__(self) -> None:
        self.lists: list[list[LaunchRecord]] = []


_recorders = _Recorders()


@contextlib.contextmanager
def record_launches() -> Iterator[list[LaunchRecord]]:
    """Collect the launches that are made with `SymbolicArray` arguments inside the block, in this thread."""
    launches: list[LaunchRecord] = []
    _recorders.lists.append(launches)
    try:
        yield launches
    finally:
        _recorders.lists.pop()


def record(launch: LaunchRecord) -> None:
    """Add a launch to the innermost `record_launches` of this thread."""
    if not _recorders.lists:
        raise KernelError(f"kernel {launch.kernel.name}: symbolic arrays outside of record_launches()")
    _recorders.lists[-1].append(launch)
