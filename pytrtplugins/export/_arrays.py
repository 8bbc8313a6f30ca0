"""Array fields during tracing: dims and elements are queries, arithmetic is recorded, kernels get whole arrays.

Their values are what the exported library reads from the model. `Constant` takes such an array as it takes NumPy's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..cuda.record import SymbolicNumber, SymbolicValues
from ..errors import ExportError, FieldError
from ..plugin.field_values import ARRAY_DTYPES
from ._values import Expr, Traced, TracedBool, TracedFloat, TracedInt, as_expr, leaves_of

__all__ = ["TracedArray"]

_RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 0)  # the usual ones first
_NUMBERS: dict[str, type[TracedBool] | type[TracedFloat] | type[TracedInt]] = {
    "b": TracedBool,
    "f": TracedFloat,
    "i": TracedInt,
}
_ARITHMETIC = {
    np.add: "+",
    np.subtract: "-",
    np.multiply: "*",
    np.true_divide: "/",
    np.minimum: "minimum",
    np.maximum: "maximum",
}
_COMPARISONS = {
    np.less: "<", np.less_equal: "<=", np.greater: ">", np.greater_equal: ">=", np.equal: "==", np.not_equal: "!=",
}  # fmt: skip
_FUNCTIONS = {np.negative: "-", np.absolute: "fabs", np.sqrt: "sqrt", np.isfinite: "isfinite", np.isnan: "isnan"}
_LOGIC = {np.logical_and: "&&", np.logical_or: "||", np.bitwise_and: "&&", np.bitwise_or: "||"}
_NAMES: dict[Any, str] = {**_ARITHMETIC, **_COMPARISONS, **_FUNCTIONS}


def _both(function: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods of an operator for an array on its left and on its right."""
    return (
        lambda self, other: self.__array_ufunc__(function, "__call__", self, other),
        lambda self, other: self.__array_ufunc__(function, "__call__", other, self),
    )


class TracedArray(Traced, SymbolicValues):
    """The value of an array field, or a result of arithmetic on it.

    Args:
        owner: Name of the plugin, for messages.
        field: Name of the field, which says the dims.
        dtype: The element type; empty where the field's annotation leaves it open.
    """

    what = "array"

    def __init__(self, owner: str, field: str, dtype: str) -> None:
        super().__init__(Expr("array", (field,), "a"))
        self._label, self._field, self._type = f"{owner}.{field}", field, dtype
        self.values = Expr("values", (field, dtype), "v")
        self._dims: tuple[Any, ...] | None = None  # where reshape gave others than the field's own

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        if not self._type:
            raise ExportError(
                f"{self._label} may have any element type, and kernels are compiled for one.\n"
                f"Do: {self._field}: npt.NDArray[np.float32] (import numpy.typing as npt)"
            )
        return np.dtype(self._type)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return int(self.dtype.itemsize)

    @property
    def size(self) -> TracedInt:
        """Number of elements."""
        return TracedInt(Expr("elements", (self._field,), "i"))

    @property
    def nbytes(self) -> Any:
        """Bytes in all."""
        return self.size * self.itemsize

    @property
    def ndim(self) -> Any:
        """Number of axes."""
        return TracedInt(Expr("rank", (self._field,), "i")) if self._dims is None else len(self._dims)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Number of elements along each axis: one way through the plugin's method for each number of axes that there can be."""
        if self._dims is not None:
            return self._dims
        for rank in _RANKS:
            if self.ndim == rank:
                return tuple(TracedInt(Expr("extent", (self._field, axis), "i")) for axis in range(rank))
        raise FieldError(f"{self._label}: expected {max(_RANKS)} axes at most, found {self.ndim}")

    def astype(self, dtype: Any, copy: bool = True) -> TracedArray:
        """The elements in another type."""
        target, own = np.dtype(dtype), self.dtype
        if target == own:
            return self
        if self.values.op == "cast" or target.name not in ARRAY_DTYPES or (own.kind == "f" and target.kind != "f"):
            raise ExportError(f"{self._label}: {own} as {target} is not exported")
        return self._with(values=Expr("cast", (self.values, target.name), "v"), _type=target.name)

    def reshape(self, *shape: Any, order: str = "C") -> TracedArray:
        """The same elements along other axes."""
        dims = list(shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape)
        product: Any = 1
        free = [axis for axis, dim in enumerate(dims) if isinstance(dim, int) and dim == -1]
        for axis, dim in enumerate(dims):
            product = product if axis in free else dim * product
        if len(free) > 1 or order != "C":
            self._refuse("such a reshape")
        if free:
            dims[free[0]] = self.size // product
            product = product * dims[free[0]]
        if product != self.size:
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
        """An element as a Python number, by row-major index or by indices."""
        if len(index) > 1:
            return self[index].item()
        if not index and self.size != 1:
            raise FieldError(f"{self._label}: expected one element, found {self.size}")
        return self._element(index[0] if index else 0).item()

    def min(self, axis: None = None, out: None = None) -> TracedElement:
        """The smallest element, or NaN where one is."""
        return self._reduced("smallest")

    def max(self, axis: None = None, out: None = None) -> TracedElement:
        """The largest element, or NaN where one is."""
        return self._reduced("largest")

    def any(self, axis: None = None, out: None = None) -> TracedBool:
        """Whether an element is true."""
        return TracedBool(Expr("any", (self._truths(), self._field), "b"))

    def all(self, axis: None = None, out: None = None) -> TracedBool:
        """Whether all elements are true."""
        return TracedBool(Expr("all", (self._truths(), self._field), "b"))

    def __len__(self) -> int:
        raise ExportError(f"len({self._name}) counts.\nDo: {self._name}.shape[0], or {self._name}.size")

    # -- arithmetic, element by element --------------------------------------------------------------------------------

    def __array_ufunc__(self, function: Any, method: str, *sides: Any, **options: Any) -> Any:
        """A function of NumPy's, or an operator, on arrays of the same shape and on numbers."""
        if method != "__call__" or options:
            self._refuse("a function of NumPy")
        arrays = [side for side in sides if isinstance(side, TracedArray)]
        kind, first = {side.dtype.name for side in arrays}, arrays[0]
        for other in arrays[1:]:
            self._demand_same_shape(first, other)
        if function in _LOGIC or function in (np.logical_not, np.invert):
            operands = tuple(side._truths() if isinstance(side, TracedArray) else as_expr(side) for side in sides)
            return first._with(values=Expr(_LOGIC.get(function, "!"), (*operands, "bool"), "v"), _type="bool")
        floating = kind in ({"float32"}, {"float64"})
        on_integers = function in _COMPARISONS and all(side.dtype.kind in "iu" for side in arrays)
        if function not in _NAMES or not (floating or on_integers):
            self._refuse(f"{function.__name__} of {' and '.join(sorted(kind))}")
        compared = "int64" if on_integers else kind.pop()
        operands = tuple(self._operand(side, on_integers) for side in sides)
        asks = function in _COMPARISONS or function in (np.isfinite, np.isnan)
        return first._with(
            values=Expr(_NAMES[function], (*operands, compared), "v"), _type="bool" if asks else compared
        )

    __add__, __radd__ = _both(np.add)
    __sub__, __rsub__ = _both(np.subtract)
    __mul__, __rmul__ = _both(np.multiply)
    __truediv__, __rtruediv__ = _both(np.true_divide)
    __and__, __rand__ = _both(np.logical_and)
    __or__, __ror__ = _both(np.logical_or)
    __lt__, __gt__, __le__, __ge__ = (_both(each)[0] for each in (np.less, np.greater, np.less_equal, np.greater_equal))
    __eq__, __ne__ = (_both(each)[0] for each in (np.equal, np.not_equal))
    __hash__ = Traced.__hash__

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or power != 2:
            self._refuse("such arithmetic")
        return self * self

    def __neg__(self) -> Any:
        return self.__array_ufunc__(np.negative, "__call__", self)

    def __abs__(self) -> Any:
        return self.__array_ufunc__(np.absolute, "__call__", self)

    def __invert__(self) -> Any:
        return self.__array_ufunc__(np.invert, "__call__", self)

    def _operand(self, side: Any, on_integers: bool) -> Expr:
        if isinstance(side, TracedArray):
            return side.values
        if isinstance(side, np.ndarray) or (isinstance(side, np.generic) and side.dtype != self.dtype):
            self._refuse("an array or number of NumPy's among the operands")
        if isinstance(side, TracedElement) and side.dtype != self.dtype:
            self._refuse("a number of another type among the operands")
        expr = as_expr(side)
        if any(leaf.op in ("dim", "volume") for leaf in leaves_of(expr)) or expr.kind not in (
            "i" if on_integers else "if"
        ):
            self._refuse(f"arithmetic with {side}")
        return expr

    def _demand_same_shape(self, left: TracedArray, right: TracedArray) -> None:
        if left._dims is not None or right._dims is not None:
            self._refuse("arithmetic of several arrays behind a reshape")
        if left._field != right._field and not TracedBool(Expr("same_shape", (left._field, right._field), "b")):
            raise FieldError(
                f"{left._label} and {right._label}: expected arrays of the same shape, found {left} and {right}"
            )

    def _truths(self) -> Expr:
        return self.values if self._type == "bool" else (self != 0).values

    def _reduced(self, op: str) -> TracedElement:
        self.dtype  # noqa: B018
        return self._number(Expr(op, (self.values, self._field, self._label), self._kind))

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"self.{self._field}"

    def _with(self, **changed: Any) -> TracedArray:
        copy = TracedArray.__new__(TracedArray)
        copy.__dict__.update(self.__dict__, **changed)
        return copy

    def _element(self, place: Any) -> TracedElement:
        self.dtype  # noqa: B018
        if self.values.op != "values":
            self._refuse("an element of what was computed")
        return self._number(Expr("element", (self._field, as_expr(place), self._label), self._kind))

    def _number(self, expr: Expr) -> TracedElement:
        return TracedElement(expr, self.dtype)

    @property
    def _kind(self) -> str:
        return {"u": "i"}.get(self.dtype.kind, self.dtype.kind)

    def _refuse(self, use: str = "this", *args: Any, **kwargs: Any) -> NoReturn:
        raise ExportError(
            f"{self._label}: {use} needs its values, which the exported library reads from the model.\n"
            f"Do: hand the array to a kernel, pytrtplugins.cuda.Constant({self._name}); one element is {self._name}.item(0); "
            f"or export for one value: --set {self._field}=@FILE.npy"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("a function of NumPy")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f".{name}")

    def __iter__(self) -> Any:
        self._refuse("a loop")

    def __bool__(self) -> bool:
        self._refuse("a question")

    def _unknown(self, *other: Any) -> Any:
        self._refuse("such arithmetic")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rpow__ = __matmul__ = __rmatmul__ = _unknown
    __contains__ = __float__ = __int__ = __index__ = _unknown


class TracedElement(Traced, SymbolicNumber):
    """One element as a NumPy scalar: kernels take it, and it can be compared; use `item` for arithmetic."""

    what = "element"

    def __init__(self, expr: Expr, dtype: np.dtype[Any]) -> None:
        super().__init__(expr)
        self.kind, self.dtype = expr.kind, dtype

    def item(self) -> Any:
        """A number of Python's."""
        return _NUMBERS[self.kind](self.expr)

    def _compared(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        """Compare in the element's type, to which NumPy rounds Python numbers."""
        if self.kind == "f" and isinstance(other, (int, float)) and not isinstance(other, bool):
            return function(self.item(), float(self.dtype.type(other)))
        if self.kind == "i" and isinstance(other, (int, TracedInt)):
            return function(self.item(), other)
        if isinstance(other, TracedElement) and other.dtype == self.dtype:
            return function(self.item(), other.item())
        return self._refuse_use()

    def _refuse_use(self, *other: Any) -> NoReturn:
        raise ExportError(
            f"arithmetic with {self}, which NumPy rounds to its type, is not exported.\nDo: write .item() behind it"
        )

    def __eq__(self, other: object) -> Any:
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compared(operator.ne, other)

    def __lt__(self, other: Any) -> Any:
        return self._compared(operator.lt, other)

    def __le__(self, other: Any) -> Any:
        return self._compared(operator.le, other)

    def __gt__(self, other: Any) -> Any:
        return self._compared(operator.gt, other)

    def __ge__(self, other: Any) -> Any:
        return self._compared(operator.ge, other)

    def __bool__(self) -> bool:
        return bool(self.item())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse_use
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _refuse_use
    __float__ = __int__ = __index__ = _refuse_use
    __hash__ = Traced.__hash__
