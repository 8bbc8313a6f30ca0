"""A file of the package as text and as a tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

_GENERIC = {"tuple", "dict", "list", "set", "frozenset", "ndarray", "NDArray", "Callable", "Mapping", "Sequence"}


class Source:
    """A file's text and tree, with the parent of each node."""

    def __init__(self, data: bytes) -> None:
        """Parse a file."""
        self.data = data
        self.tree = ast.parse(data)
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self.parents = {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends, in bytes."""
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.AST) -> str:
        """A node as it stands in the file."""
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def operand(self, node: ast.AST) -> str:
        """A node as it stands in the file, in parentheses where it needs them."""
        simple = isinstance(
            node, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript | ast.Tuple | ast.List
        )
        return self.text(node) if simple and not self.text(node).startswith("-") else f"({self.text(node)})"

    def parent(self, node: ast.AST) -> ast.AST:
        """The node around a node."""
        return self.parents[node]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, from the inside."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def is_ordered(self, name: str, no_order: set[str]) -> bool:
        """Whether a sequence is used by its order: by index, beside another, unpacked, or as an argument of most functions."""
        uses = [node for node in self.parents if name_of(node) == name and isinstance(node.ctx, ast.Load)]
        for around in map(self.parent, uses):
            if isinstance(around, ast.Subscript | ast.Starred | ast.Assign | ast.BinOp):
                return True
            if isinstance(around, ast.Call) and name_of(around.func) not in no_order:
                return True
        return False

    @cached_property
    def left_out(self) -> set[ast.AST]:
        """Nodes that change nothing or no behaviour: annotations, documentation, names to export, texts, imports for types."""
        skipped: set[ast.AST] = set()
        for node in ast.walk(self.tree):
            parts = [getattr(node, name, None) for name in ("annotation", "returns")]
            match node:
                case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
                    parts.append(node)
                case ast.JoinedStr():  # positions inside are wrong before Python 3.12
                    parts.append(node)
                case ast.Expr(value=ast.Constant()):
                    parts.append(node)
                case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__")]):
                    parts.append(node)
                case ast.Assign(value=ast.Subscript(value=names)) if name_of(names) in _GENERIC:
                    parts.append(node)  # another name of a type
                case ast.Assert():
                    parts.append(node)
                case ast.FunctionDef(name="__repr__") | ast.Call(func=ast.Attribute(attr="kill" | "killpg" | "rmtree")):
                    parts.append(node)  # no error that could harm other processes and files
                case _ if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    parts += node.decorator_list
            for part in filter(None, parts):
                skipped |= set(ast.walk(part))
        return skipped


def name_of(node: ast.AST) -> str:
    """The last part of a variable's or an attribute's name; empty for something else."""
    return getattr(node, "id", getattr(node, "attr", ""))
