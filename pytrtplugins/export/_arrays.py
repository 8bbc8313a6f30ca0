"""Array fields while a plugin is traced: element type, dims and elements are asked for, and kernels get them whole.

Their values are what the exported library reads from the model. `Constant` takes such an array as it takes NumPy's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from ..cuda.record import SymbolicNumber, SymbolicValues
from ..errors import ExportError, FieldError
from ..plugin.given import ARRAY_DTYPES
from ._values import Expr, Traced, TracedBool, TracedFloat, TracedInt, as_expr

__all__ = ["Table", "TracedArray"]

_RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 0)  # the usual ones first
_NUMBERS: dict[str, type[TracedBool] | type[TracedFloat] | type[TracedInt]] = {
    "b": TracedBool,
    "f": TracedFloat,
    "i": TracedInt,
}


@dataclass(frozen=True)
class Table:
    """The elements of a field, for kernels; ``cast`` is another element type, or empty for the field's own."""

    field: str
    cast: str = ""


class TracedArray(Traced, SymbolicValues):
    """The value of an array field.

    Args:
        owner: Name of the plugin, for messages.
        field: Name of the field.
        dtype: Its element type; empty where its annotation leaves it open.
    """

    what = "array"

    def __init__(self, owner: str, field: str, dtype: str) -> None:
        super().__init__(Expr("array", (field,), "a"))
        self._label, self._declared = f"{owner}.{field}", dtype
        self.table = Table(field)
        self._dims: tuple[Any, ...] | None = None  # where reshape gave others than the field's own

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        if not self._declared:
            raise ExportError(
                f"{self._label} may have any element type, and kernels are compiled for one.\n"
                f"Do: {self.table.field}: npt.NDArray[np.float32] (import numpy.typing as npt)"
            )
        return np.dtype(self.table.cast or self._declared)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def size(self) -> TracedInt:
        """Number of elements."""
        return TracedInt(Expr("elements", (self.table.field,), "i"))

    @property
    def nbytes(self) -> Any:
        """Bytes in all."""
        return self.size * self.itemsize

    @property
    def ndim(self) -> Any:
        """Number of axes."""
        return TracedInt(Expr("rank", (self.table.field,), "i")) if self._dims is None else len(self._dims)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of elements along each axis: one way through the plugin's method for each number of axes that there can be."""
        if self._dims is not None:
            return self._dims
        for rank in _RANKS:
            if self.ndim == rank:
                return tuple(TracedInt(Expr("extent", (self.table.field, axis), "i")) for axis in range(rank))
        raise FieldError(f"{self._label}: expected {max(_RANKS)} axes at most, found {self.ndim}")

    def astype(self, dtype: Any, copy: bool = True) -> TracedArray:
        """The elements in another type."""
        wanted, own = np.dtype(dtype), self.dtype
        if wanted == own:
            return self
        if self.table.cast or wanted.name not in ARRAY_DTYPES or (own.kind == "f" and wanted.kind != "f"):
            raise ExportError(f"{self._label}: {own} as {wanted} is not exported")
        return self._with(table=replace(self.table, cast=wanted.name))

    def reshape(self, *shape: Any, order: str = "C") -> TracedArray:
        """The same elements along other axes."""
        dims = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
        known: Any = 1
        free = [axis for axis, dim in enumerate(dims) if isinstance(dim, int) and dim == -1]
        for axis, dim in enumerate(dims):
            known = known if axis in free else dim * known
        if len(free) > 1 or order != "C":
            self._refuse("such a reshape")
        if free:
            dims[free[0]] = self.size // known
            known = known * dims[free[0]]
        if known != self.size:
            raise FieldError(f"{self._label}: {self.size} elements cannot have the shape ({', '.join(map(str, dims))})")
        return self._with(_dims=tuple(dims))

    def ravel(self) -> TracedArray:
        """The elements along one axis."""
        return self._with(_dims=(self.size,))

    flatten = ravel

    def copy(self) -> TracedArray:
        """The array, which nothing changes."""
        return self

    def __getitem__(self, key: Any) -> TracedElement:
        """An element, by one index for each axis."""
        keys = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(one, (int, np.integer, TracedInt)) for one in keys):
            self._refuse(f"[{key!r}]")
        if self.ndim != len(keys):
            raise FieldError(f"{self._label}: expected {len(keys)} axes, found {self.ndim}")
        place: Any = 0
        for index, extent in zip(keys, self.shape, strict=True):
            if index < 0:
                index = extent + index
            if index < 0 or index >= extent:
                raise FieldError(f"{self._label}: index {index} is outside of an axis of {extent} elements")
            place = place * extent + index
        return self._element(place)

    def item(self, *index: Any) -> Any:
        """An element as a number of Python's, by its place in row-major order or by its indices."""
        if len(index) > 1:
            return self[index].item()
        if not index and self.size != 1:
            raise FieldError(f"{self._label}: expected one element, found {self.size}")
        return self._element(index[0] if index else 0).item()

    def __len__(self) -> int:
        raise ExportError(f"len({self._name}) counts.\nDo: {self._name}.shape[0], or {self._name}.size")

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"self.{self.table.field}"

    def _with(self, **changed: Any) -> TracedArray:
        made = TracedArray.__new__(TracedArray)
        made.__dict__.update(self.__dict__, **changed)
        return made

    def _element(self, place: Any) -> TracedElement:
        if self.table.cast:
            self._refuse("an element of another type")
        return TracedElement(
            f"{self._name}.item(…)", Expr("element", (self.table.field, as_expr(place), self._label), self._kind)
        )

    @property
    def _kind(self) -> str:
        return {"u": "i"}.get(self.dtype.kind, self.dtype.kind)

    def _refuse(self, use: str = "arithmetic", *args: Any, **kwargs: Any) -> NoReturn:
        raise ExportError(
            f"{self._label}: {use} needs its values, which the exported library reads from the model.\n"
            f"Do: hand the array to a kernel, pytrtplugins.cuda.Constant({self._name}); one element is {self._name}.item(0); "
            f"or export for one value: --set {self.table.field}=@FILE.npy"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("a function of NumPy")

    def __array_ufunc__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self._refuse("a function of NumPy")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f".{name}")

    def __iter__(self) -> Any:
        self._refuse("a loop")

    def __bool__(self) -> bool:
        self._refuse("a question")

    def _arithmetic(self, *other: Any) -> Any:
        self._refuse()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _arithmetic
    __neg__ = __pos__ = __abs__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _arithmetic
    __float__ = __int__ = __index__ = _arithmetic
    __hash__ = Traced.__hash__


class TracedElement(Traced, SymbolicNumber):
    """One element, a number of NumPy's: kernels take it; for arithmetic `item` gives a number of Python's."""

    what = "element"

    def __init__(self, written: str, expr: Expr) -> None:
        super().__init__(expr)
        self.kind, self._written = expr.kind, written

    def item(self) -> Any:
        """A number of Python's."""
        return _NUMBERS[self.kind](self.expr)

    def _refuse_use(self, *other: Any) -> NoReturn:
        raise ExportError(
            f"arithmetic with {self}, which NumPy rounds to its type, is not exported.\nDo: write {self._written}"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_use
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _refuse_use
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse_use
    __bool__ = __float__ = __int__ = __index__ = _refuse_use
    __hash__ = Traced.__hash__
