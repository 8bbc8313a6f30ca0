"""Plausible errors: what a programmer may write by mistake, and a reviewer may overlook.

An operator is a function of a node and its surroundings that gives edits: a span of the file, and what stands there instead.
To add one, write the function and list it in `OPERATORS`, and add an example to tests/mutation/test_operators.py.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.mutation.source import Source, name_of

Edit = tuple[int, int, str]
"""Where it begins and ends in the file, in bytes, and the text that stands there instead."""
_UNITS = {"1000": "1024", "1024": "1000", "1e3": "1e6", "1e6": "1e3", "1e9": "1e6", "1e-3": "1e-6", "1e-6": "1e-3"}
_UNITS |= {"1_000": "1_024", "1_000_000": "1_000", "1_000_000_000": "1_000_000", "60": "1", "3600": "60", "100": "1"}
_OTHER_EXTREME = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
}
_OTHER_EXTREME |= {"argmin": "argmax", "argmax": "argmin", "any": "all", "all": "any"}
_NO_ORDER = {
    "startswith",
    "endswith",
    "fromkeys",
    "sorted",
    "minimum",
    "maximum",
    "add",
    "multiply",
    "logical_and",
    "logical_or",
    "min",
    "max",
    "gcd",
    "frozenset",
    "set",
}
_OF_TYPES = {"suppress", "isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "TypeVar", "NewType"}
_SAME_EITHER_WAY = {"strict", "frozen", "slots", "repr", "eq", "kw_only", "init", "compare", "daemon", "flush", "text"}
_TYPES = {"tuple", "dict", "list", "set", "frozenset", "defaultdict", "deque"}
_KEYED = {"get", "setdefault", "pop", "add", "index", "append"}
_LOCK = re.compile(r"(lock|locked|condition|changed|mutex|guard|exclusive|semaphore|_held)\w*(\(.*\))?$", re.IGNORECASE)


@dataclass(frozen=True)
class Mutant:
    """One error: an operator's edit of a file."""

    path: str
    line: int
    operator: str
    begin: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The file with the error."""
        return source[: self.begin] + self.text.encode() + source[self.end :]

    def change(self, source: bytes) -> str:
        """The lines of the edit before and after, without the space around them."""
        first = source.rfind(b"\n", 0, self.begin) + 1
        last = (source + b"\n").find(b"\n", self.end)
        before = source[first:last].decode()
        after = (source[first : self.begin] + self.text.encode() + source[self.end : last]).decode()
        return f"{_one_line(before)} → {_one_line(after)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def boundary(node: ast.AST, source: Source) -> Iterator[Edit]:
    """``<`` for ``<=``, ``>`` for ``>=``, and the reverse."""
    if not isinstance(node, ast.Compare):
        return
    for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
        begin, end = source.span(left)[1], source.span(right)[0]
        sign = re.search(rb"[<>]=?", source.data[begin:end])
        if sign:
            other = sign[0][:1] if sign[0].endswith(b"=") else sign[0] + b"="
            yield begin + sign.start(), begin + sign.end(), other.decode()


def off_by_one(node: ast.AST, source: Source) -> Iterator[Edit]:
    """One more or less in an index, a slice, a range, or beside ``+`` or ``-``."""
    match node:
        case ast.BinOp(op=ast.Add() | ast.Sub(), right=ast.Constant(value=1)):
            yield (*source.span(node), source.operand(node.left))
        case (
            ast.Call(func=ast.Name(id="range") | ast.Attribute(attr="arange"), args=[stop])
            | ast.Call(func=ast.Name(id="range"), args=[_, stop, *_])
        ) if not isinstance(stop, ast.Starred):
            yield (*source.span(stop), f"{source.operand(stop)} - 1")
        case ast.Subscript(slice=place):
            yield from _other_index(place, source)
        case ast.Slice():
            for bound in filter(None, (node.lower, node.upper)):
                yield from _other_index(bound, source)
            if node.upper is not None and not _whole(node.upper):
                yield (*source.span(node.upper), f"{source.operand(node.upper)} - 1")
        case ast.Compare(comparators=[last]) if _whole(last) and "len(" in source.text(node.left):
            yield (*source.span(last), str(ast.literal_eval(last) + 1))


def _whole(node: ast.AST) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int


def _other_index(place: ast.AST, source: Source) -> Iterator[Edit]:
    for index in place.elts if isinstance(place, ast.Tuple) else [place]:
        if _whole(index):
            number = ast.literal_eval(index)
            yield (*source.span(index), str({0: 1, -1: -2}.get(number, number - 1)))
            if number < 0:
                yield (*source.span(index), str(-number))


def swapped_operands(node: ast.AST, source: Source) -> Iterator[Edit]:
    """``b - a`` for ``a - b``, of which not only the distance is looked at; likewise ``/``, ``//``, ``%``."""
    signs = {ast.Sub: "-", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%"}
    if isinstance(getattr(node, "op", None), ast.Sub) and _is_size(source.parent(node)):
        return
    if isinstance(node, ast.BinOp) and type(node.op) in signs and not isinstance(node.left, ast.Constant):
        text = f"{source.operand(node.right)} {signs[type(node.op)]} {source.operand(node.left)}"
        yield (
            *source.span(node),
            text if not isinstance(source.parent(node), ast.BinOp | ast.UnaryOp) else f"({text})",
        )


def _is_size(node: ast.AST) -> bool:
    """Whether a call gives the size of a number or vector, whichever sign it has."""
    return isinstance(node, ast.Call) and name_of(node.func) in ("abs", "norm", "square")


def swapped_arguments(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Two neighbouring arguments that are names, exchanged."""
    if not isinstance(node, ast.Call) or name_of(node.func) in _NO_ORDER | _OF_TYPES:
        return
    for first, second in zip(node.args, node.args[1:], strict=False):
        kinds = {type(first), type(second)}
        if kinds <= {ast.Name, ast.Attribute} and source.text(first) != source.text(second):
            between = source.data[source.span(first)[1] : source.span(second)[0]].decode()
            yield source.span(first)[0], source.span(second)[1], source.text(second) + between + source.text(first)


def other_extreme(node: ast.AST, source: Source) -> Iterator[Edit]:
    """``max`` for ``min``, ``floor`` for ``ceil``, ``all`` for ``any``, and the reverse."""
    if isinstance(node, ast.Call) and name_of(node.func) in _OTHER_EXTREME:
        end = source.span(node.func)[1]
        yield end - len(name_of(node.func)), end, _OTHER_EXTREME[name_of(node.func)]


def dropped_key(node: ast.AST, source: Source) -> Iterator[Edit]:
    """One element less in a tuple that is kept or looked up, or in both of two that are compared."""
    match node:
        case ast.Compare(left=ast.Tuple() as left, ops=[ast.Eq() | ast.NotEq()], comparators=[ast.Tuple() as right]):
            if len(left.elts) == len(right.elts) > 1:
                sign = "==" if isinstance(node.ops[0], ast.Eq) else "!="
                for number in range(len(left.elts)):
                    texts = (_without(part, part.elts[number], source) for part in (left, right))
                    yield (*source.span(node), f" {sign} ".join(texts))
        case ast.Tuple(ctx=ast.Load()) if len(node.elts) > 1 and _is_key(node, source):
            for dropped in node.elts:
                text = _without(node, dropped, source)
                yield (*source.span(node), text if source.text(node).startswith("(") else text[1:-1])


def _is_key(node: ast.Tuple, source: Source) -> bool:
    if any(isinstance(part, ast.Constant | ast.Slice | ast.Starred) for part in node.elts) or _is_table(node, source):
        return False
    match source.parent(node):
        case ast.Assign(targets=[ast.Name()]) | ast.NamedExpr() | ast.DictComp() | ast.SetComp():
            return True
        case ast.Subscript(value=value):
            return name_of(value) not in _TYPES and not name_of(value)[:1].isupper()
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in _KEYED
        case ast.Return():
            return any("key" in str(getattr(outer, "name", "")) for outer in source.around(node))
    return False


def _without(node: ast.Tuple | ast.List | ast.Set, dropped: ast.AST, source: Source) -> str:
    left = ", ".join(source.text(part) for part in node.elts if part is not dropped)
    signs = {ast.Tuple: "()", ast.List: "[]", ast.Set: "{}"}[type(node)]
    comma = "," * (len(node.elts) == 2 and isinstance(node, ast.Tuple))
    return f"{signs[0]}{left}{comma}{signs[1]}"


def unit_factor(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A factor between units that is another: 1024 for 1000, 1e3 for 1e6."""
    if isinstance(node, ast.Constant) and isinstance(source.parent(node), ast.BinOp):
        operation = source.parent(node).op
        if isinstance(operation, ast.Mult | ast.Div | ast.FloorDiv) and source.text(node) in _UNITS:
            yield (*source.span(node), _UNITS[source.text(node)])
        if isinstance(operation, ast.LShift | ast.RShift) and node.value in (10, 20, 30):
            yield (*source.span(node), str(node.value - 10))


def lost_statement(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A call for its effect that is not there: notify, flush, append, a check."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield (*source.span(node), "pass")


def lost_lock(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A block without its lock."""
    match node:
        case ast.With(items=[ast.withitem(context_expr=lock, optional_vars=None)]) if _LOCK.search(source.text(lock)):
            yield source.span(node)[0], source.span(lock)[1], "if True"


def lost_row(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A table of a module or class without one of its rows, or ``in (a, b)`` without one of them."""
    match node:
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Tuple() | ast.List() | ast.Set() as choice]):
            for dropped in choice.elts if len(choice.elts) > 1 else ():
                yield (*source.span(choice), _without(choice, dropped, source))
        case ast.Dict() if len(node.keys) > 2 and _is_table(node, source):
            for key, value in zip(node.keys, node.values, strict=True):
                if key is not None:
                    yield from _row(source.span(key)[0], source.span(value)[1], source)
        case ast.Tuple(ctx=ast.Load()) | ast.List(ctx=ast.Load()) | ast.Set() if len(node.elts) > 2:
            inner = isinstance(source.parent(node), ast.Tuple | ast.List | ast.Dict) and isinstance(node, ast.Tuple)
            for row in node.elts if _is_table(node, source) and not inner else ():
                yield from _row(*source.span(row), source)


def _is_table(node: ast.AST, source: Source) -> bool:
    around = list(source.around(node))
    if any(isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Subscript) for outer in around):
        return False
    assigned = next((outer for outer in around if isinstance(outer, ast.Assign | ast.AnnAssign)), None)
    return assigned is not None and not isinstance(getattr(assigned, "targets", [None])[0], ast.Tuple)


def _row(begin: int, end: int, source: Source) -> Iterator[Edit]:
    comma = re.match(rb"\s*,[ ]?", source.data[end:])
    if comma:
        yield begin, end + comma.end(), ""


def changed_default(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Another default of a parameter or field; another flag in a call."""
    match node:
        case ast.arguments():
            defaults = [*node.defaults, *(default for default in node.kw_defaults if default is not None)]
        case ast.AnnAssign(value=ast.Constant() as value) if isinstance(source.parent(node), ast.ClassDef):
            defaults = [value]
        case ast.keyword(value=ast.Constant(value=bool())) if node.arg not in _SAME_EITHER_WAY:
            defaults = [node.value]
        case ast.Call(func=ast.Attribute(attr="get" | "pop" | "setdefault"), args=[_, ast.Constant() as value]):
            defaults = [value]
        case _:
            return
    for default in defaults:
        number = getattr(default, "value", None)
        if isinstance(number, bool):
            yield (*source.span(default), str(not number))
        elif type(number) is int:
            yield (*source.span(default), str(number + 1))
        elif isinstance(number, float):
            yield (*source.span(default), repr(number / 2 or 0.5))


def condition(node: ast.AST, source: Source) -> Iterator[Edit]:
    """A condition that holds more or less often: one side of ``and`` or ``or``, a ``not``, or the whole is left out."""
    match node:
        case ast.BoolOp():
            for dropped in node.values:
                kept = [value for value in node.values if value is not dropped]
                word = " and " if isinstance(node.op, ast.And) else " or "
                text = word.join(source.operand(value) for value in kept)
                yield (*source.span(node), f"({text})" if len(kept) > 1 else text)
        case ast.UnaryOp(op=ast.Not()):
            yield (*source.span(node), source.operand(node.operand))
        case ast.comprehension():
            for test in node.ifs:
                yield (*source.span(test), "True")
        case ast.If(body=[ast.Return() | ast.Raise() | ast.Continue() | ast.Break()], orelse=[]):
            yield (*source.span(node.test), "False")


def swapped_constants(node: ast.AST, source: Source) -> Iterator[Edit]:
    """Two neighbouring numbers or texts of a tuple or list, exchanged."""
    if not isinstance(node, ast.Tuple | ast.List):
        return
    match source.parent(node):
        case ast.Compare() | ast.Set() | ast.For() | ast.comprehension():
            return
        case ast.Starred() as starred if _has_no_order(source.parent(starred), source):
            return
        case ast.Call(func=function) if name_of(function) in _NO_ORDER | _OF_TYPES:
            return
        case ast.Assign(targets=[ast.Name(id=name)]) if not source.is_ordered(name, _NO_ORDER):
            return
    for first, second in zip(node.elts, node.elts[1:], strict=False):
        constants = isinstance(first, ast.Constant) and isinstance(second, ast.Constant)
        if constants and type(first.value) is type(second.value) and first.value != second.value:
            between = source.data[source.span(first)[1] : source.span(second)[0]].decode()
            yield source.span(first)[0], source.span(second)[1], source.text(second) + between + source.text(first)


def _has_no_order(node: ast.AST, source: Source) -> bool:
    """Whether a display is a set, or becomes one."""
    around = source.parent(node)
    return isinstance(node, ast.Set) or (isinstance(around, ast.Call) and name_of(around.func) in _NO_ORDER)


OPERATORS: dict[str, Callable[[ast.AST, Source], Iterator[Edit]]] = {
    "boundary": boundary,
    "off by one": off_by_one,
    "swapped operands": swapped_operands,
    "swapped arguments": swapped_arguments,
    "other extreme": other_extreme,
    "dropped key": dropped_key,
    "unit factor": unit_factor,
    "lost statement": lost_statement,
    "lost lock": lost_lock,
    "lost row": lost_row,
    "changed default": changed_default,
    "condition": condition,
    "swapped constants": swapped_constants,
}


def mutants(path: str, data: bytes) -> list[Mutant]:
    """All errors of a file, in order of their places."""
    source = Source(data)
    edits: dict[Edit, Mutant] = {}
    for node in ast.walk(source.tree):
        if node in source.left_out:
            continue
        for name, operator in OPERATORS.items():
            for begin, end, text in operator(node, source):
                line = data.count(b"\n", 0, begin) + 1
                edits.setdefault((begin, end, text), Mutant(path, line, name, begin, end, text))
    return [mutant for _, mutant in sorted(edits.items())]


def is_different(mutant: Mutant, source: bytes) -> bool:
    """Whether the file with the error can be read, and means something else."""
    try:
        return ast.dump(ast.parse(mutant.apply(source))) != ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return False
