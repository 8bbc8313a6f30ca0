"""What TensorRT for RTX builds of models, and what it makes of Q/DQ nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from .machine import version_text
from .table import MISSING, left, right, table

__all__ = ["builds", "missing", "operators", "qdq_bytes", "qdq_kernels", "reasons", "summary"]

Row = dict[str, Any]
_SUMMARY = (
    left("models", "models"), right("builds", "builds"), right("built", "built"), right("refused by the parser", "TensorRT's parser"),
    right("by the builder", "TensorRT's builder"), right("by this package", "this package"), right("other errors", "failed"),
    right("crashed or hung", "crashed"), right("warnings that we cause", "warnings"),
)  # fmt: skip
_MISSING = (
    left("network", "network"), left("precision", lambda row: row["precision"].upper()),
    left("nodes", lambda row: ", ".join(f"`{name}`" for name in row["nodes"])),
)  # fmt: skip
_KERNELS = (
    left("activation", "activation"), left("Q/DQ", "place"), left("float part", "kind"), left("scales of weights", "scales"),
    right("kernels of a convolution", "kernels", ".2g"), left("it writes", lambda row: ", ".join(row["writes"])),
    left("the kernel behind it", lambda row: f"`{row['behind']}`, gives {row['gives']}"),
)  # fmt: skip
_BYTES = (
    right("convolutions, 1x1", "convolutions"), left("of other sizes each", lambda row: "yes" if row["widening"] else "no"),
    right("kernels in FP32", lambda row: row["fp32"][0]), right("bytes besides weights", lambda row: row["fp32"][1], ",d"),
    right("kernels in INT8", lambda row: row["int8"][0]), right("bytes besides weights", lambda row: row["int8"][1], ",d"),
)  # fmt: skip


def summary(record: Row) -> str:
    """How many models are built, and who refuses the others."""
    return table(_SUMMARY, [record["counts"]])


def builds(name: str, record: Row) -> Iterator[str]:
    """The counts, and the plan of each network: its size, and the products in the low type."""
    yield f"{version_text(record)}."
    yield summary(record)
    if networks := record["networks"]:
        precisions = dict.fromkeys(precision for row in networks for precision in row["builds"])
        columns = [right(precision.upper(), partial(_plan, precision=precision)) for precision in precisions]
        yield table([left("network", "name"), *columns], networks)


def _plan(row: Row, precision: str) -> str:
    build = row["builds"].get(precision)
    if build is None or isinstance(build, str):
        return build or MISSING
    products = f"; {build['low']} of {build['intended']} ({build['all']})" if "all" in build else ""
    return f"{build['bytes'] / 1e6:.3g} MB{products}"


def missing(name: str, record: Row) -> Iterator[str]:
    """Products that are to run in the low type, and that TensorRT computes in another."""
    yield table(_MISSING, record["missing"]) if record["missing"] else "There are none."


def reasons(name: str, record: Row) -> Iterator[str]:
    """Why models are refused: part, reason, number of builds, operators or networks."""
    columns = (
        left("refused by", "part"), left("reason", "reason"), right("builds", "builds"),
        left("networks" if record["networks"] else "operators", lambda row: ", ".join(row["names"])),
    )  # fmt: skip
    yield table(columns, record["reasons"]) if record["reasons"] else "None is refused."


def operators(name: str, record: Row) -> Iterator[str]:
    """Which operators' node tests are built; operators of which all tests are built share a line."""
    lines: dict[str, list[str]] = {"all": [], "some": [], "none": []}
    for row in record["operators"]:
        built, tests = row["built"], row["tests"]
        word = "all" if built == tests else "some" if built else "none"
        lines[word].append(f"{row['name']} ({f'{built} of ' * (word == 'some')}{tests})")
    columns = (left("built", "word"), left("operators (tests)", lambda row: ", ".join(row["names"])))
    yield table(columns, [{"word": word, "names": names} for word, names in lines.items()])


def qdq_kernels(name: str, record: Row) -> Iterator[str]:
    """Kernels of a convolution, its activation and Q."""
    yield table(_KERNELS, record["kernels"])


def qdq_bytes(name: str, record: Row) -> Iterator[str]:
    """What generated kernels take in an engine's file."""
    yield table(_BYTES, record["bytes"])
