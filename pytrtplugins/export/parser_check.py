"""Check a written ONNX model with the parser and builder of TensorRT for RTX, which need no GPU."""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.base.failures import shorten_message
from ..engines.registry import availability_of
from ..errors import PytrtpluginsError
from ..model.opaque import hide_opaque, opaque_nodes
from ..model.proto import node_name
from ..utils.optional import onnx

__all__ = ["ParserCheck", "check_parser"]

_ENGINE = "tensorrt_rtx"


@dataclass(frozen=True)
class ParserCheck:
    """The result of TensorRT's parser and builder on a file.

    Attributes:
        library: Name and version of the library; empty where it is not installed.
        bytes: Size of the serialized engine that it built; 0 where it built none.
        problem: Why it built none; empty where it did.
    """

    library: str
    bytes: int
    problem: str

    @property
    def refused(self) -> bool:
        """Whether the library was run and built nothing."""
        return bool(self.library and self.problem)


def check_parser(model: onnx.ModelProto) -> ParserCheck:
    """Build a serialized engine of a model, where TensorRT for RTX is installed; the engine itself is dropped."""
    opaque = opaque_nodes(hide_opaque(model))
    if opaque:
        return ParserCheck("", 0, f"it was not run, since node {node_name(opaque[0])!r} has no known class")
    if not availability_of(_ENGINE).builds:
        return ParserCheck("", 0, 'TensorRT for RTX is not installed.\nDo: pip install "pytrtplugins[rtx]"')
    from ..engines.tensorrt.onnx_file import rtx_plan, rtx_title

    try:
        return ParserCheck(rtx_title(), len(rtx_plan(model)), "")
    except PytrtpluginsError as error:
        return ParserCheck(rtx_title(), 0, shorten_message(error))
