"""Descriptions of tensors: element type, dims, layout. Dims may be symbolic."""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .errors import DimsError, PluginError

__all__ = [
    "PLUGIN_DTYPES",
    "SMALL_DTYPES",
    "AnyDims",
    "Array",
    "DType",
    "Dim",
    "Dims",
    "SymbolicDim",
    "TensorDesc",
    "array_namespace",
    "bind_dims",
    "check_divisible",
    "check_equal",
    "check_rank",
    "evaluate_dims",
    "is_concrete",
]

Array = Any
"""An array of any library that speaks NumPy 2's names: NumPy on a CPU, CuPy on a GPU."""


class DType(enum.StrEnum):
    """Element types of an engine's inputs and outputs; the values are NumPy's names. Plugins have `PLUGIN_DTYPES` of them."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    BOOL = "bool"
    FLOAT64 = "float64"
    INT16 = "int16"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT8E4M3FN = "float8_e4m3fn"
    FLOAT8E4M3FNUZ = "float8_e4m3fnuz"
    FLOAT8E5M2 = "float8_e5m2"
    FLOAT8E5M2FNUZ = "float8_e5m2fnuz"
    FLOAT8E8M0 = "float8_e8m0fnu"
    FLOAT4E2M1 = "float4_e2m1fn"
    INT4 = "int4"
    UINT4 = "uint4"
    INT2 = "int2"
    UINT2 = "uint2"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; bfloat16 and what is below 8 bits or real of 8 needs the package ml_dtypes, which onnx brings."""
        return _numpy_dtype(self)

    @property
    def itemsize(self) -> int:
        """Bytes per element, in memory."""
        if self in SMALL_DTYPES:
            return 1
        return 2 if self is DType.BFLOAT16 else np.dtype(self.value).itemsize

    @classmethod
    def of(cls, value: Array | npt.DTypeLike) -> DType:
        """Return the element type of an array, a NumPy dtype or a name.

        Raises:
            PluginError: the type is not one that engines exchange, such as complex64.
        """
        return _of_name(value) if isinstance(value, str) else _of_dtype(np.dtype(getattr(value, "dtype", value)))


@functools.cache
def _numpy_dtype(dtype: DType) -> np.dtype[Any]:
    if dtype is DType.BFLOAT16 or dtype in SMALL_DTYPES:
        from .utils.optional import require

        kind: Any = getattr(require("ml_dtypes", extra="onnx", feature=f"dtype {dtype}"), dtype.value)
        return cast("np.dtype[Any]", np.dtype(kind))
    plain: np.dtype[Any] = np.dtype(dtype.value)
    return plain


@functools.cache
def _of_dtype(dtype: np.dtype[Any]) -> DType:
    """Return the element type of a NumPy dtype; cached, since NumPy computes a dtype's name at each access."""
    return _of_name(dtype.name)


def _of_name(name: str) -> DType:
    try:
        return DType(name)
    except ValueError:
        known = ", ".join(member.value for member in DType)
        raise PluginError(f"element type {name!r} is not supported. Known: {known}.", dtype=name) from None


SMALL_DTYPES = (
    DType.FLOAT8E4M3FN,
    DType.FLOAT8E4M3FNUZ,
    DType.FLOAT8E5M2,
    DType.FLOAT8E5M2FNUZ,
    DType.FLOAT8E8M0,
    DType.FLOAT4E2M1,
    DType.INT4,
    DType.UINT4,
    DType.INT2,
    DType.UINT2,
)
"""Element types that a few engines take; arrays of them are those of the package ml_dtypes, one element in a byte."""

PLUGIN_DTYPES = (
    DType.FLOAT32,
    DType.FLOAT16,
    DType.BFLOAT16,
    DType.INT8,
    DType.UINT8,
    DType.INT32,
    DType.INT64,
    DType.BOOL,
)
"""Element types that plugins read and write: those that TensorRT has. The others pass by them."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def both_sides(symbol: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    """Return two methods, such as ``__add__`` and ``__radd__``, which call ``_combine(symbol, left, right)``."""
    return lambda this, other: this._combine(symbol, this, other), lambda this, other: this._combine(
        symbol, other, this
    )


def trivial_result(symbol: str, left: Any, right: Any) -> Any:
    """Return the result of an integer operation that needs no computation, as ``x * 1``; else None."""
    neutral = {"+": 0, "-": 0, "*": 1, "//": 1}.get(symbol)
    if isinstance(right, int) and right == neutral:
        return left
    if isinstance(left, int) and left == neutral and symbol in "+*":
        return right
    numbers = [side for side in (left, right) if isinstance(side, int)]
    return 0 if (symbol == "*" and 0 in numbers) or (symbol == "%" and isinstance(right, int) and right == 1) else None


@dataclass(frozen=True, eq=True)
class SymbolicDim:
    """A dim known only at run time, such as the batch ``N``, or an expression of such dims.

    It understands what shape rules use: ``+ - * // %`` with ints and other dims. There is no truth value and no order,
    since the answer is unknown: using it where an int is needed is an error. Two dims are equal when their expressions
    are.

    Example:
        >>> n = SymbolicDim("N")
        >>> str((n + 1) * 2), ((n + 1) * 2).evaluate({"N": 3})
        ('((N + 1) * 2)', 8)
    """

    name: str
    left: Dim | None = None
    right: Dim | None = None

    def _combine(self, symbol: str, left: Dim, right: Dim) -> Dim:
        trivial: Dim | None = trivial_result(symbol, left, right)
        return SymbolicDim(symbol, left, right) if trivial is None else trivial

    __add__, __radd__ = both_sides("+")
    __sub__, __rsub__ = both_sides("-")
    __mul__, __rmul__ = both_sides("*")
    __floordiv__, __rfloordiv__ = both_sides("//")
    __mod__, __rmod__ = both_sides("%")

    def __bool__(self) -> bool:
        raise DimsError(f"dim {self} is symbolic: whether it is zero is known only at run time", dim=self)

    def _raise_order_error(self, other: object) -> bool:
        raise DimsError(
            f"dim {self} is symbolic: whether it is larger than {other} is known only at run time.\n"
            "Do: compare numbers only, isinstance(dim, int) and dim > ...",
            dim=self,
        )

    __lt__ = __le__ = __gt__ = __ge__ = _raise_order_error

    def __truediv__(self, other: object) -> Dim:
        raise DimsError(f"dim {self} cannot be divided into fractions.\nDo: divide with //", dim=self)

    def __index__(self) -> int:
        raise DimsError(f"dim {self} is symbolic: it has no value yet", dim=self)

    def __str__(self) -> str:
        return self.name if self.left is None else f"({self.left} {self.name} {self.right})"

    def evaluate(self, bindings: Mapping[str, int]) -> int:
        """Return the dim's value for values of the names, such as ``{"N": 4}``.

        Raises:
            DimsError: a name has no value.
        """
        if self.left is None or self.right is None:
            if self.name not in bindings:
                raise DimsError(f"dim {self.name!r} has no value; known: {dict(bindings)}", dim=self)
            return bindings[self.name]
        sides = (side.evaluate(bindings) if isinstance(side, SymbolicDim) else side for side in (self.left, self.right))
        value: int = _OPERATORS[self.name](*sides)
        return value


Dim = int | SymbolicDim
Dims = tuple[Dim, ...]


class AnyDims(tuple[Dim, ...]):
    """The dims of a tensor of unknown rank. A scalar has the dims ``()``, which is something else."""

    __slots__ = ()

    def __new__(cls) -> AnyDims:
        """Return the dims of unknown rank; there are no arguments."""
        return super().__new__(cls)

    def __str__(self) -> str:
        return "..."


@dataclass(frozen=True)
class TensorDesc:
    """Name, dims, element type and memory layout of a tensor.

    Attributes:
        name: The tensor's name in the network.
        dims: Sizes from the outermost axis in; symbolic where only known at run time; `AnyDims` where the rank is unknown.
        dtype: Element type.
        layout: ``"linear"`` is row-major, NCHW for images; ``"nhwc"`` has the channels innermost.
        scale: Value of one step, for int8 tensors whose scale the engine knows; None elsewhere.
    """

    name: str
    dims: Dims
    dtype: DType = DType.FLOAT32
    layout: str = "linear"
    scale: float | None = None

    def __str__(self) -> str:
        dims = str(self.dims) if isinstance(self.dims, AnyDims) else ", ".join(map(str, self.dims))
        return f"{self.name}: {self.dtype}[{dims}]"


def is_concrete(dim: Dim) -> bool:
    """Return whether the dim is a number, not symbolic."""
    return not isinstance(dim, SymbolicDim)


def evaluate_dims(dims: Dims, bindings: Mapping[str, int]) -> tuple[int, ...]:
    """Return dims with numbers in place of names: ``("N", 3)`` with ``{"N": 4}`` is ``(4, 3)``."""
    return tuple(dim.evaluate(bindings) if isinstance(dim, SymbolicDim) else int(dim) for dim in dims)


def bind_dims(dims: Dims, sizes: Iterable[int]) -> dict[str, int]:
    """Return name → size of the symbolic dims: ``("N", 3)`` with ``(4, 3)`` is ``{"N": 4}``; empty if the rank is unknown."""
    if isinstance(dims, AnyDims):
        return {}
    return {dim.name: size for dim, size in zip(dims, sizes, strict=True) if isinstance(dim, SymbolicDim)}


def check_divisible(dim: Dim, by: int, what: str) -> None:
    """Require that ``by`` divides ``dim``; a symbolic dim is accepted, and checked when it has a value.

    ``what`` the size is goes into the message: ``"Reorg(stride=2): height"``.

    Raises:
        DimsError: ``dim`` is a number that ``by`` does not divide.
    """
    if not isinstance(dim, SymbolicDim) and dim % by:
        raise DimsError(f"{what} must be a multiple of {by}, found {dim}", dim=dim, by=by)


def check_equal(dim: Dim, expected: int, what: str) -> None:
    """Require that ``dim`` is ``expected``; a symbolic dim is accepted, and checked when it has a value.

    Raises:
        DimsError: ``dim`` is another number.
    """
    if not isinstance(dim, SymbolicDim) and dim != expected:
        raise DimsError(f"{what} must be {expected}, found {dim}", expected=expected, found=dim)


def check_rank(dims: Dims, rank: int, what: str) -> None:
    """Require that dims have ``rank`` axes.

    Raises:
        DimsError: the tensor has another number of axes.
    """
    if len(dims) != rank:
        raise DimsError(f"{what}: expected {rank} axes, found {len(dims)}: ({', '.join(map(str, dims))})", dims=dims)


def array_namespace(x: Array) -> ModuleType:
    """Return the module with an array's functions: ``cupy`` for CuPy arrays, otherwise ``numpy``.

    One ``compute`` body then serves both, in the names of NumPy 2 (``permute_dims``, ``concat``, ``astype``).
    """
    if type(x).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy  # type: ignore[no-any-return]
    return np
