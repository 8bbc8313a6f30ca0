"""The models that are built: darknet's networks, ONNX files, and the tests that ONNX ships for its operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from darknet2caffe import read_network, to_onnx
from pytrtplugins.passes import load_model

from ..node_tests import Case

__all__ = ["Subject", "darknet_subjects", "find_files", "node_subject", "onnx_subjects"]

SMALLEST_WEIGHTS = 1024
"""Bytes; a smaller file of weights is a stand-in, such as a pointer of Git LFS."""


@dataclass(frozen=True)
class Subject:
    """A model to build, in a precision.

    Attributes:
        name: Its name in tables.
        precision: ``"fp32"``, ``"fp16"``, ``"bf16"``, ``"int8"`` or ``"fp8"``.
        source: A darknet cfg, an ONNX file, or a node test.
    """

    name: str
    precision: str
    source: Path | Case

    def load(self) -> onnx.ModelProto:
        """Load the model; a darknet network has random weights where no .weights file stands beside the cfg."""
        if isinstance(self.source, Path):
            return load_darknet(self.source) if self.source.suffix == ".cfg" else load_model(self.source)
        return self.source.model

    @property
    def quantize(self) -> bool:
        """Whether the model gets Q/DQ nodes before it is built."""
        return isinstance(self.source, Path) and self.precision in ("int8", "fp8")


def load_darknet(cfg: Path) -> onnx.ModelProto:
    """Convert a darknet network."""
    weights = cfg.with_suffix(".weights")
    if weights.is_file() and weights.stat().st_size > SMALLEST_WEIGHTS:
        return to_onnx(read_network(cfg, weights))
    return to_onnx(read_network(cfg).with_random_weights(0))


def find_files(folders: Iterable[Path], suffix: str) -> list[Path]:
    """Find the files of a suffix: the paths themselves, and in folders at any depth, ordered by name."""
    files = [
        path for folder in folders for path in ([folder] if folder.is_file() else sorted(folder.rglob(f"*{suffix}")))
    ]
    return sorted({path for path in files if path.suffix == suffix}, key=lambda path: (path.stem, str(path)))


def darknet_subjects(folders: Iterable[Path], precisions: Sequence[str]) -> list[Subject]:
    """Make subjects of all darknet cfgs in folders."""
    return _subjects(find_files(folders, ".cfg"), precisions)


def onnx_subjects(folders: Iterable[Path], precisions: Sequence[str]) -> list[Subject]:
    """Make subjects of all ONNX files in folders."""
    return _subjects(find_files(folders, ".onnx"), precisions)


def _subjects(files: Iterable[Path], precisions: Sequence[str]) -> list[Subject]:
    return [Subject(path.stem, precision, path) for path in files for precision in precisions]


def node_subject(case: Case) -> Subject:
    """Make the subject of a node test; a test with Q/DQ nodes is built in INT8, others in FP32."""
    quantized = any(node.op_type == "QuantizeLinear" for node in _nodes(case.model))
    return Subject(case.name, "int8" if quantized else "fp32", case)


def _nodes(model: Any) -> Any:
    return model.graph.node
