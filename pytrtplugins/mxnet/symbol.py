"""Parse MXNet's ``symbol.json``: operators in execution order, with attributes as texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..utils.text_formats import read_json, shorten
from ..validation.limits import MAX_NODES

__all__ = ["Node", "Symbol", "read_symbol"]

_VARIABLE = "null"
_DO = "Do: save the network again in MXNet: symbol.save('model-symbol.json')"


@dataclass(frozen=True)
class Node:
    """One operator or variable.

    Attributes:
        path: The file that it is from, for messages.
        op: Its operator; ``null`` for a variable: an input of the network, or a parameter.
        name: Its name.
        attributes: Name → text.
        inputs: What it reads: the number of a node before it, and which of that node's outputs.
    """

    path: Path = field(repr=False)
    op: str
    name: str
    attributes: Mapping[str, str]
    inputs: tuple[tuple[int, int], ...]

    @property
    def is_variable(self) -> bool:
        """Whether the node is a variable: an input of the network or a parameter."""
        return self.op == _VARIABLE

    def error(self, problem: str, advice: str = _DO) -> ModelError:
        """Return an exception that names this node."""
        text = f"{self.path}: node {self.name[:200]!r} ({self.op[:100]}): {problem}.\n{advice}"
        return ModelError(text, path=self.path, node=self.name, op=self.op)


@dataclass(frozen=True)
class Symbol:
    """A network without weights.

    Attributes:
        path: Its file.
        nodes: All nodes; each reads only those before it.
        heads: The outputs: the number of a node, and which of its outputs.
    """

    path: Path
    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]


def read_symbol(path: str | Path) -> Symbol:
    """Read a ``symbol.json``, of any version of MXNet.

    Attributes are the union of what versions call ``param``, ``attr`` and ``attrs``.

    Raises:
        ModelError: the file cannot be read, is no such JSON or nested too deep; a node reads one that does not come before it, or two
            have one name; ``.path`` and, where there is one, ``.node`` say where.
    """
    path = Path(path)
    try:
        data = read_json(path, error=ModelError)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.", path=path) from error
    listed = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not listed or not isinstance(data.get("heads"), list):
        raise ModelError(
            f"{path}: not a symbol of MXNet: expected an object with the lists 'nodes' and 'heads'.\n"
            "Do: name the symbol.json first, and then the .params file",
            path=path,
        )
    if len(listed) > MAX_NODES:
        raise ModelError(f"{path}: {len(listed):,} nodes; expected at most {MAX_NODES:,}.\n{_DO}", path=path)
    nodes: list[Node] = []
    names: set[str] = set()
    for number, item in enumerate(listed):
        node = _node(path, number, item)
        if node.name in names:
            raise node.error("another node has this name")
        names.add(node.name)
        nodes.append(node)
    heads = _entries(data["heads"], len(nodes))
    if not heads:
        raise ModelError(
            f"{path}: 'heads' are {shorten(data['heads'])}; expected the outputs, each as [node, output], with nodes of 0 to "
            f"{len(nodes) - 1}.\n{_DO}",
            path=path,
        )
    return Symbol(path, tuple(nodes), heads)


def _node(path: Path, number: int, item: Any) -> Node:
    fields = item if isinstance(item, dict) else {}
    op, name = fields.get("op"), fields.get("name")
    if not isinstance(op, str) or not isinstance(name, str) or not op or not name:
        raise ModelError(
            f"{path}: node {number:,} is {shorten(item)}; expected an object with the texts 'op' and 'name'.\n{_DO}",
            path=path,
        )
    attributes: dict[str, str] = {}
    node = Node(path, op, name, attributes, ())
    for key in ("param", "attr", "attrs"):
        texts = fields.get(key) or {}
        if not isinstance(texts, dict) or not all(isinstance(value, str) for value in texts.values()):
            raise node.error(f"{key!r} is {shorten(texts)}; expected an object of texts")
        attributes.update(texts)
    entries = fields.get("inputs", [])
    inputs = _entries(entries, number)
    if inputs is None:
        raise node.error(
            f"its inputs are {shorten(entries)}; expected a list of [node, output], with nodes that come before it, which is number "
            f"{number:,}"
        )
    return Node(path, op, name, attributes, inputs)


def _entries(listed: Any, below: int) -> tuple[tuple[int, int], ...] | None:
    """Parse pairs (node index, output index) from lists that may end with a version; None if they are invalid."""
    if not isinstance(listed, list):
        return None
    pairs = []
    for entry in listed:
        if not isinstance(entry, list) or len(entry) not in (2, 3) or any(type(item) is not int for item in entry):
            return None
        if not (0 <= entry[0] < below and 0 <= entry[1] < MAX_NODES):
            return None
        pairs.append((entry[0], entry[1]))
    return tuple(pairs)
