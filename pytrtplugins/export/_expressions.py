"""Write expressions and trees of queries in C++."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..utils.cpp_literals import float_literal, int_literal, text_literal
from ._explore import Fork, Raised, Returned, Tree
from ._values import Expr

__all__ = ["ELEMENTS", "Scope", "block", "method"]

_INDENT = "    "
_NUMBERS = ("element", "smallest", "largest")  # numbers of array fields, which exported_arrays.h has as Element
ELEMENTS = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "bool": "bool",
}
"""C++'s types of the elements of arrays in arithmetic, by NumPy's names."""
_FUNCTIONS = {"/": "divide", "//": "floorDiv", "%": "floorMod", "**": "power"}  # of python_numbers.h


@dataclass(frozen=True)
class Scope:
    """C++ names of the inputs' dims in a method: ``Scope("inputs[{}].dims")``."""

    dims: str

    def whole(self, expr: Expr) -> str:
        """A whole number, as a Dim."""
        op, args = expr.op, expr.args
        if op == "const":
            return f"Dim({int_literal(args[0])})"
        if op == "field":
            return f"Dim({args[0]}_)"
        if op == "dim":
            return f"{self.dims.format(args[0])}[{args[1]}]"
        if op == "volume":
            return f"size({self.dims.format(args[0])})"
        if op == "elements":
            return f"Dim(elements({args[0]}_))"
        if op == "rank":
            return f"Dim({args[0]}_.shape.size())"
        if op == "extent":
            return f"extent({args[0]}_, {args[1]})"
        if op in _NUMBERS:
            return f"Dim({self._number(expr)}.whole)"
        if op in ("ceil", "floor"):
            return f"wholeNumber(std::{op}({self.real(args[0])}))"
        symbol = {"//": "/"}.get(op, op)
        left, right = args
        if left.op == "const" and right.op != "const":
            return f"({int_literal(left.args[0])} {symbol} {self.whole(right)})"
        if right.op == "const" and left.op != "const":
            return f"({self.whole(left)} {symbol} {int_literal(right.args[0])})"
        return f"({self.whole(left)} {symbol} {self.whole(right)})"

    def real(self, expr: Expr) -> str:
        """A number with a fraction, as a double."""
        op, args = expr.op, expr.args
        if expr.kind != "f":
            return (
                f"static_cast<double>({self.whole(expr)}.value())" if op != "const" else float_literal(float(args[0]))
            )
        if op == "const":
            return float_literal(args[0])
        if op == "field":
            return f"static_cast<double>({args[0]}_)"
        if op == "scale":
            desc = self.dims.format(args[1]).removesuffix(".dims").replace("input", args[0], 1)
            return f"static_cast<double>({desc}.scale)"
        if op in _NUMBERS:
            return f"{self._number(expr)}.real"
        if len(args) == 1:
            return f"{'std::fabs' if op == 'abs' else op}({self.real(args[0])})"
        if op == "/" and args[0].kind == args[1].kind == "i":
            return f"divide({self.whole(args[0])}, {self.whole(args[1])})"
        left, right = map(self.real, args)
        return f"{_FUNCTIONS[op]}({left}, {right})" if op in _FUNCTIONS else f"({left} {op} {right})"

    def truth(self, expr: Expr) -> str:
        """A truth value, as a bool; what a symbolic dim would decide is an error."""
        op, args = expr.op, expr.args
        if op == "const":
            return "true" if args[0] else "false"
        if op == "field":
            return f"{args[0]}_"
        if op in _NUMBERS:
            return f"({self._number(expr)}.whole != 0)"
        if op in ("any", "all"):
            values, field = args
            return f"{op}Of({field}_, [&](size_t i) {{ return {self.at(values)}; }})"
        if op == "same_shape":
            return f"({args[0]}_.shape == {args[1]}_.shape)"
        if op == "not":
            return f"!({self.truth(args[0])})"
        left, right = args
        if left.kind == "s":
            return f"{self.text(left)} {op} {self.text(right)}"
        if left.kind == right.kind == "f":
            return f"{self.real(left)} {op} {self.real(right)}"
        if "f" in (left.kind, right.kind):
            return f"{self._wide(left)} {op} {self._wide(right)}"
        return f"{self._value(left)} {op} {self._value(right)}"

    def refused(self, question: Expr, answer: bool) -> str:
        """Whether the answer to a query is already known to be this."""
        kinds = [side.kind if isinstance(side, Expr) else "" for side in question.args]
        if kinds == ["i", "i"]:
            left, right = question.args
            name = "isLess" if question.op == "<" else "isEqual"
            return f"{name}({self.whole(left)}, {self.whole(right)}) == Truth::{'kYES' if answer else 'kNO'}"
        return self.truth(question) if answer else f"!({self.truth(question)})"

    def text(self, expr: Expr) -> str:
        """A text, as a std::string."""
        return f"std::string({text_literal(expr.args[0])})" if expr.op == "const" else f"{expr.args[0]}_"

    def message(self, parts: tuple[str | Expr, ...]) -> str:
        """The message of an error, as a std::string."""
        shown: dict[str, Callable[[Expr], str]] = {
            "i": self.whole,
            "f": self.real,
            "b": self.truth,
            "s": self.text,
            "a": lambda expr: f"{expr.args[0]}_",
        }
        pieces = [text_literal(part) if isinstance(part, str) else f"show({shown[part.kind](part)})" for part in parts]
        if not parts or isinstance(parts[0], str):
            pieces[:1] = [f"std::string({pieces[0]})" if pieces else "std::string()"]
        return " + ".join(pieces)

    def at(self, expr: Expr) -> str:
        """The i-th element of an array, or of arithmetic on arrays."""
        op, args = expr.op, expr.args
        if op == "values":
            field, dtype = args
            return f"at<{ELEMENTS[dtype]}>({field}_, i)"
        *sides, dtype = args
        if op == "cast":
            (inner,) = sides
            if inner.op == "values":
                return f"castAt<{ELEMENTS[dtype]}>({inner.args[0]}_, i)"
            return f"static_cast<{ELEMENTS[dtype]}>({self.at(inner)})"
        shown = [self._side(side, dtype) for side in sides]
        if len(shown) == 1:
            return f"({op}{shown[0]})" if op in ("-", "!") else f"std::{op}({shown[0]})"
        return f"{op}({shown[0]}, {shown[1]})" if op in ("minimum", "maximum") else f"({shown[0]} {op} {shown[1]})"

    def _side(self, side: Expr, dtype: str) -> str:
        text = self.at(side) if side.kind == "v" else self.truth(side) if dtype == "bool" else ""
        text = text or (self._value(side) if dtype == "int64" else self.real(side))
        return f"static_cast<{ELEMENTS[dtype]}>({text})"

    def _number(self, expr: Expr) -> str:
        """An `Element` of the C++ headers."""
        if expr.op == "element":
            field, place, label = expr.args
            return f"element({field}_, {text_literal(label)}, {self._value(place)})"
        values, field, label = expr.args
        return f"{expr.op}({field}_, {text_literal(label)}, [&](size_t i) {{ return {self.at(values)}; }})"

    def _wide(self, expr: Expr) -> str:
        """A number in a type that holds each double and each 64-bit integer: Python compares the two exactly."""
        return f"static_cast<long double>({self.real(expr) if expr.kind == 'f' else self._value(expr)})"

    def _value(self, expr: Expr) -> str:
        if expr.op == "const":
            return int_literal(expr.args[0])
        return f"{expr.args[0]}_" if expr.op == "field" else f"{self.whole(expr)}.value()"


def block(tree: Tree, scope: Scope, end: Callable[[Any], list[str]], depth: int) -> list[str]:
    """The lines of a tree; each way ends in what ``end`` writes for its value, or in a throw."""
    lines: list[str] = []
    indent = _INDENT * depth
    while isinstance(tree, Fork):
        short = tree.yes if isinstance(tree.yes, Raised) else tree.no if isinstance(tree.no, Raised) else None
        if short is not None:
            lines.append(f"{indent}if ({scope.refused(tree.question, short is tree.yes)}) {{")
            lines += [f"{indent}{_INDENT}{line}" for line in _throw(short, scope)]
            lines.append(f"{indent}}}")
            tree = tree.no if short is tree.yes else tree.yes
            continue
        lines.append(f"{indent}if ({scope.truth(tree.question)}) {{")
        lines += block(tree.yes, scope, end, depth + 1)
        lines.append(f"{indent}}}")
        tree = tree.no
    if isinstance(tree, Returned):
        return lines + [f"{indent}{line}" for line in end(tree.value)]
    if isinstance(tree, Raised):
        return lines + [f"{indent}{line}" for line in _throw(tree, scope)]
    return lines


def method(head: str, lines: Iterable[str]) -> list[str]:
    """A method of a class, from its first line and those between its braces."""
    return [f"    {head} {{", *lines, "    }"]


def _throw(tree: Raised, scope: Scope) -> list[str]:
    return [f"throw pytrtplugins::{tree.error}({scope.message(tree.message)});"]
