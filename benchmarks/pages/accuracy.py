"""What FP16 and INT8 cost, and tests of other people that the server passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .table import left, right, table

__all__ = ["accuracy", "pytorch", "triton_tests"]

Row = dict[str, Any]
_ACCURACY = (
    left("precision", lambda row: row["precision"].upper()),
    left("engine", lambda row: row["engine"] + (f" (first {row['first']})" if row.get("first") else "")),
    left("channels", "channels"), left("calibrator", "calibrator"), right("images", lambda row: row["images"] or None),
    left("weights", "weights"), right("mAP50", "map50", ".4f"), right("against FP32", "difference", "+.4f"),
    right("SQNR, dB", "sqnr", ".1f"),
)  # fmt: skip
_PYTORCH = (
    left("network", "family"), left("exporter", "exporter"), left("engine", "engine"),
    right("FP32, ms", lambda row: row["ms"]["fp32"], ".2f"), right("INT8, ms", lambda row: row["ms"]["minmax"], ".2f"),
    right("onnxruntime's own INT8, ms", lambda row: row["ms"]["own"], ".2f"),
    right("min-max: cosine", lambda row: row["quality"]["minmax"][0], ".4f"),
    right("SQNR, dB", lambda row: row["quality"]["minmax"][1], ".1f"),
    right("entropy: cosine", lambda row: row["quality"]["entropy"][0], ".4f"),
    right("SQNR, dB", lambda row: row["quality"]["entropy"][1], ".1f"),
    right("onnxruntime's own: SQNR, dB", lambda row: row["quality"]["own"][1], ".1f"),
)  # fmt: skip
_GROUPS = left("Triton's tests", "title"), right("passed", "passed"), right("of", "tests")
_FAILURES = left("test", "test"), left("why it fails", "reason")


def accuracy(name: str, record: Row) -> Iterator[str]:
    """mAP50 of a detector in each configuration."""
    yield table(_ACCURACY, record["rows"])
    yield record["note"]


def pytorch(name: str, record: Row) -> Iterator[str]:
    """INT8 of networks as PyTorch's exporters write them, beside FP32 and onnxruntime's own quantization."""
    yield table(_PYTORCH, record["rows"])
    yield f"{record['processor']}, {', '.join(f'{name} {number}' for name, number in record['versions'].items())}."


def triton_tests(name: str, record: Row) -> Iterator[str]:
    """How many of Triton's tests pass, and why others fail."""
    yield table(_GROUPS, record["groups"])
    yield table(_FAILURES, record["failures"])
