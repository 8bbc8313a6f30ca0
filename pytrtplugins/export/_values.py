"""Traced values: numbers that are known only to the exported code, as arguments of a plugin's methods.

Each operation on them gives an expression. A question that decides where the code goes on (``if h % s:``) is put to the
`explore.Explorer` that is at work, which tries both answers.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from ..cuda.record import SymbolicNumber
from ..errors import ExportError
from ..tensor import both_sides, trivial_result

__all__ = [
    "Expr",
    "Opaque",
    "Traced",
    "TracedBool",
    "TracedFloat",
    "TracedInt",
    "TracedText",
    "answering",
    "as_expr",
    "leaves_of",
    "parts_of",
    "readable",
    "traced_field",
    "traced_scale",
]


@dataclass(frozen=True)
class Expr:
    """An expression: an operation on expressions, or a leaf.

    Attributes:
        op: ``"const"``, ``"field"``, ``"dim"``, ``"volume"``, ``"scale"``, or an operator; of array fields ``"array"``, ``"elements"``,
            ``"rank"``, ``"extent"``, ``"element"`` and what `_arrays` makes of them.
        args: The name of a leaf, or the operands of an operation.
        kind: The type of the value: ``"i"``, ``"f"``, ``"b"``, ``"s"``; ``"a"`` for an array, ``"v"`` for one element of it at a time.
    """

    op: str
    args: tuple[Any, ...]
    kind: str

    def __str__(self) -> str:
        if self.op == "dim":
            return f"inputs[{self.args[0]}].shape[{self.args[1]}]"
        if self.op == "volume":
            return f"inputs[{self.args[0]}].size"
        if self.op == "scale":
            return f"{self.args[0]}s[{self.args[1]}].scale"
        if self.op in ("const", "field", "array"):
            return str(self.args[0])
        if self.op in _OF_ARRAYS:
            return _OF_ARRAYS[self.op].format(*self.args)
        shown = [str(argument) for argument in self.args]
        return f"({shown[0]} {self.op} {shown[1]})" if len(shown) == 2 else f"{self.op}({shown[0]})"


def leaves_of(expr: Expr) -> list[Expr]:
    """The leaves of an expression."""
    parts = [part for part in expr.args if isinstance(part, Expr)]
    return [leaf for part in parts for leaf in leaves_of(part)] if parts else [expr]


class _State(threading.local):
    """The answer function of the current trace, and values shown in messages."""

    answer: Callable[[Expr], bool] | None = None
    shown: list[Expr]

    def __init__(self) -> None:
        self.shown = []


_state = _State()
_OF_ARRAYS = {"elements": "{}.size", "rank": "{}.ndim", "extent": "{}.shape[{}]", "element": "{}.item({})", "smallest": "{1}.min()",
              "largest": "{1}.max()", "any": "{1}.any()", "all": "{1}.all()", "same_shape": "{}.shape == {}.shape"}  # fmt: skip
_KINDS: dict[type, str] = {bool: "b", int: "i", float: "f", str: "s"}
_OPEN, _CLOSE = "\ue000", "\ue001"


class answering:
    """Context in which queries go to ``answer``, and values shown in messages are recorded."""

    def __init__(self, answer: Callable[[Expr], bool]) -> None:
        self._answer = answer

    def __enter__(self) -> None:
        self._before = (_state.answer, _state.shown)
        _state.answer, _state.shown = self._answer, []

    def __exit__(self, *exception: object) -> None:
        _state.answer, _state.shown = self._before


def parts_of(message: str) -> tuple[str | Expr, ...]:
    """Split a message into texts and the expressions between them."""
    parts: list[str | Expr] = []
    for piece in message.split(_OPEN):
        number, close, text = piece.partition(_CLOSE)
        if close:
            parts.append(_state.shown[int(number)])
            piece = text
        if piece:
            parts.append(piece)
    return tuple(parts)


def readable(message: str) -> str:
    """A message for people: expressions as Python writes them."""
    return "".join(map(str, parts_of(message)))


def as_expr(value: Any) -> Expr:
    """The expression of a traced value, or of a plain one.

    Raises:
        ExportError: it is neither.
    """
    if isinstance(value, Traced):
        return value.expr
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) not in _KINDS:
        raise ExportError(f"a number is expected, found {type(value).__name__}")
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise ExportError(f"the number {value} does not fit 64 bits")
    if type(value) is float:  # 0.0 and -0.0 are equal, and are two constants; one NaN is like another
        return Expr("const", (value if value == value else math.nan, math.copysign(1, value)), "f")
    return Expr("const", (value,), _KINDS[type(value)])


def _known(value: Any) -> Any:
    """What a traced value meets: a truth value counts as a number, as in Python."""
    if isinstance(value, np.floating) and not isinstance(value, float):
        raise ExportError(
            f"arithmetic with a {value.dtype} of NumPy, which rounds each result to that type, is not exported.\n"
            "Do: write float(…) around it"
        )
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, bool) else value


class Traced:
    """Base of all traced values."""

    __array_ufunc__: Any = None  # NumPy's scalars leave operations to this class
    what = "value"

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def _ask(self, question: Expr) -> bool:
        if _state.answer is None:
            raise ExportError("a traced value was used after its trace")
        return _state.answer(question)

    def __str__(self) -> str:
        _state.shown.append(self.expr)
        return f"{_OPEN}{len(_state.shown) - 1}{_CLOSE}"

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return str(self)

    def __hash__(self) -> int:
        return hash(self.expr)

    def _refuse(self, use: str) -> NoReturn:
        raise ExportError(f"{use} needs the {self.what} as it will be at run time")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse("an array")


class _Number(Traced, SymbolicNumber):
    """Arithmetic and comparison; the result is a float where one side is."""

    what = "number"

    def _combine(self, op: str, left: Any, right: Any) -> Any:
        left, right = _known(left), _known(right)
        for side in (left, right):
            if op == "*" and isinstance(side, (str, tuple, list)):
                self._refuse("repeating a sequence")
            if not isinstance(side, (int, float, _Number)):
                return NotImplemented
        floating = op == "/" or any(isinstance(side, (float, TracedFloat)) for side in (left, right))
        trivial = None if floating else trivial_result(op, left, right)
        if trivial is not None:
            return trivial
        operands = as_expr(left), as_expr(right)
        return TracedFloat(Expr(op, operands, "f")) if floating else TracedInt(Expr(op, operands, "i"))

    __add__, __radd__ = both_sides("+")
    __sub__, __rsub__ = both_sides("-")
    __mul__, __rmul__ = both_sides("*")
    __truediv__, __rtruediv__ = both_sides("/")
    __floordiv__, __rfloordiv__ = both_sides("//")
    __mod__, __rmod__ = both_sides("%")

    def __pow__(self, power: Any) -> Any:
        if not isinstance(power, int) or not 1 <= power <= 8:
            self._refuse(f"the power {power!r}")
        return self._power(power) if power > 1 else self

    def _power(self, power: int) -> Any:
        result = self
        for _ in range(power - 1):
            result = result * self
        return result

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def _compare(self, op: str, other: Any, swapped: bool = False, negated: bool = False) -> Any:
        other = _known(other)
        if not isinstance(other, (int, float, _Number)):
            return NotImplemented
        left, right = self.expr, as_expr(other)
        floating = "f" in (left.kind, right.kind)
        if left == right and not floating:  # a NaN is not equal to itself
            return (op == "==") != negated
        if swapped:
            left, right = right, left
        if floating and negated and op == "<":  # neither a < b nor a >= b holds where one is NaN
            op, left, right, negated = "<=", right, left, False
        return TracedBool(Expr(op, (left, right), "b"), negated)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("==", other, negated=True)

    def __lt__(self, other: Any) -> Any:
        return self._compare("<", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("<", other, swapped=True)

    def __le__(self, other: Any) -> Any:
        return self._compare("<", other, swapped=True, negated=True)

    def __ge__(self, other: Any) -> Any:
        return self._compare("<", other, negated=True)

    def __hash__(self) -> int:
        return hash(self.expr)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __float__(self) -> float:
        self._refuse("a float of Python")

    def __int__(self) -> int:
        self._refuse("an int of Python")


class TracedInt(_Number):
    """A whole number."""

    kind = "i"

    def __index__(self) -> int:
        self._refuse("counting, as range() and shapes of arrays do,")


class TracedFloat(_Number):
    """A floating-point number."""

    kind = "f"

    def _power(self, power: int) -> TracedFloat:
        return TracedFloat(Expr("**", (self.expr, as_expr(float(power))), "f"))

    def __neg__(self) -> TracedFloat:
        return TracedFloat(Expr("-", (self.expr,), "f"))

    def __abs__(self) -> TracedFloat:
        return TracedFloat(Expr("abs", (self.expr,), "f"))

    def __ceil__(self) -> TracedInt:
        return TracedInt(Expr("ceil", (self.expr,), "i"))

    def __floor__(self) -> TracedInt:
        return TracedInt(Expr("floor", (self.expr,), "i"))


class TracedBool(Traced, SymbolicNumber):
    """A truth value; converting it to bool explores both answers."""

    kind, what = "b", "answer"

    def __init__(self, expr: Expr, negated: bool = False) -> None:
        super().__init__(Expr("not", (expr,), "b") if negated else expr)
        self._question, self._negated = expr, negated

    def __bool__(self) -> bool:
        return self._ask(self._question) != self._negated

    def __int__(self) -> int:
        return int(bool(self))

    def __index__(self) -> int:
        return int(bool(self))

    def __eq__(self, other: object) -> bool:
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(self.expr)

    def __mul__(self, other: Any) -> Any:
        return int(self) * other

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return int(self) + other

    __radd__ = __add__


class TracedText(Traced):
    """A text, which can be compared with others."""

    what = "text"

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, (str, TracedText)):
            return NotImplemented
        return TracedBool(Expr("==", (self.expr, as_expr(other)), "b"))

    def __hash__(self) -> int:
        self._refuse("a look-up")


def traced_field(name: str, kind: str) -> Any:
    """A field with one value, by the letter of its expressions."""
    traced: dict[str, Any] = {"b": TracedBool, "i": TracedInt, "f": TracedFloat, "s": TracedText}
    return traced[kind](Expr("field", (name,), kind))


def traced_scale(role: str, index: int) -> TracedFloat:
    """The scale of an input or output on int8 codes; 0 if the engine does not know it."""
    return TracedFloat(Expr("scale", (role, index), "f"))


class Opaque:
    """A value that tracing does not follow, such as a tuple; it may only be shown and passed on."""

    def __init__(self, what: str) -> None:
        self.__dict__["_what"] = what

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ExportError(f"{self.__dict__['_what']} is not known while the plugin is exported")

    def __repr__(self) -> str:
        return "…"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    __len__ = __iter__ = __getitem__ = __bool__ = __eq__ = __hash__ = __contains__ = __add__ = __radd__ = _refuse
    __mul__ = __rmul__ = __float__ = __int__ = __index__ = __array__ = __lt__ = __gt__ = __call__ = _refuse
