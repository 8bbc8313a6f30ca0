"""Parse XML from unknown sources: without entities, limited in size, in depth, and in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ..errors import FormatError
from .encodings import EncodingError, decode_utf8
from .inside import Failure

__all__ = ["MAX_DEPTH", "MAX_ELEMENTS", "parse_children", "root_tag"]

MAX_DEPTH = 64
MAX_ELEMENTS = 200_000
"""Elements within one child of the root, which are held together."""
_CHUNK = 1 << 16


def parse_children(
    data: bytes, path: str | Path, *, max_bytes: int = 16 << 20, error: Failure = FormatError
) -> Iterator[Element]:
    """Yield the root of an XML text without its children, then each child as soon as it ends: a large file is never a tree in memory.

    A text with a DOCTYPE is refused, since entities of a few bytes can stand for gigabytes, or for files.

    Raises:
        PytrtpluginsError: it is no such text, is truncated, or beyond a limit; as ``error`` makes it, with ``.path`` and ``.line``.
    """
    if len(data) > max_bytes:
        raise error(f"{path}: expected at most {max_bytes:,} bytes, found {len(data):,}.", path=path)
    parser, collector = expat.ParserCreate(), _Collector()
    collector.listen(parser)
    try:
        for start in range(0, len(data), _CHUNK):
            parser.Parse(data[start : start + _CHUNK], False)
            yield from collector.take()
        parser.Parse(b"", True)
    except expat.ExpatError as problem:
        what = expat.errors.messages.get(problem.code, "") if isinstance(problem.code, int) else ""
        raise error(
            f"{path}: not XML: {what or problem} in line {problem.lineno}{_encoding_hint(problem, data)}",
            path=path,
            line=problem.lineno,
        ) from problem
    except (_Refused, ValueError, LookupError) as problem:  # also of encodings that expat or Python lacks
        line = parser.CurrentLineNumber
        declared = f" (its encoding is {collector.encoding})" if collector.encoding else ""
        raise error(
            f"{path}: XML that is not taken: {str(problem)[:200]} in line {line}{declared}", path=path, line=line
        ) from problem
    yield from collector.take()


def root_tag(data: bytes, path: str | Path, *, max_bytes: int = 16 << 20) -> str:
    """The tag of the root of an XML text, which may be damaged after it, or not UTF-8; empty if there is none."""
    try:
        return next(parse_children(data, path, max_bytes=max_bytes)).tag
    except (FormatError, StopIteration):
        match = re.match(
            rb"\s*(?:<[?!][^>]*>\s*)*<(\w{1,40})[\s/>]",
            data[:_CHUNK].lstrip(b"\xff\xfe\xef\xbb\xbf").replace(b"\0", b""),
        )
        return match[1].decode() if match else ""


def _encoding_hint(problem: expat.ExpatError, data: bytes) -> str:
    """A note on the encoding that the text seems to have, if expat met an invalid byte."""
    if problem.code == expat.errors.codes[expat.errors.XML_ERROR_INVALID_TOKEN]:
        try:
            decode_utf8(data)
        except EncodingError as error:
            return f"; {error}"
    return ""


class _Refused(Exception):
    """The text has something that XML allows, but this module does not."""


class _Collector:
    """Builds the children of the root, one after another, from expat's events."""

    def __init__(self) -> None:
        self.encoding = ""
        self._done: list[Element] = []
        self._builder = TreeBuilder()
        self._depth = self._elements = 0

    def listen(self, parser: Any) -> None:
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler, parser.XmlDeclHandler = self._doctype, self._declaration

    def take(self) -> list[Element]:
        """The elements that have ended since the last call."""
        elements, self._done = self._done, []
        return elements

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH:
            raise _Refused(f"nested more than {MAX_DEPTH} deep")
        if self._elements > MAX_ELEMENTS:
            raise _Refused(f"more than {MAX_ELEMENTS:,} elements in one")
        if self._depth == 1:
            self._done.append(Element(tag, attributes))
        else:
            self._builder.start(tag, attributes)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._depth:
            self._builder.end(tag)
        if self._depth == 1:
            self._done.append(self._builder.close())
            self._builder, self._elements = TreeBuilder(), 0

    def _text(self, text: str) -> None:
        if self._depth > 1:
            self._builder.data(text)

    def _declaration(self, version: str, encoding: str | None, *_: object) -> None:
        self.encoding = (encoding or "")[:40]

    def _doctype(self, *_: object) -> None:
        raise _Refused("a DOCTYPE, which could declare entities")
