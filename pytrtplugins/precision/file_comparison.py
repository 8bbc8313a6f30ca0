"""Compare an engine with its ONNX file, which onnxruntime runs unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines.base.arithmetic import Arithmetic
from ..engines.base.engine import Engine
from ..engines.base.failures import as_error
from ..errors import ExecutionError, UsageError
from ..utils.notebook import object_html
from ..utils.optional import require
from .network import Sample
from .tolerance import Tolerance

__all__ = ["FileComparison", "OutputDifference", "compare_with_file"]

_ERRORS = 3  # onnxruntime logs nothing less


@dataclass(frozen=True)
class OutputDifference:
    """The difference of one output.

    Attributes:
        name: The output's name.
        absolute: The largest difference of an element; infinite where dims, element types, NaN or infinities differ.
        relative: The largest difference of an element divided by the file's value.
        error: In units of the tolerance.
        problem: How dims or element types differ; empty where they agree.
    """

    name: str
    absolute: float
    relative: float
    error: float
    problem: str = ""

    def __str__(self) -> str:
        text = f"{self.name!r}: largest difference {self.absolute:.3g} absolute, {self.relative:.3g} relative"
        return f"{self.name!r}: {self.problem}" if self.problem else f"{text}; {self.error:.3g} of the tolerance"


@dataclass(frozen=True)
class FileComparison:
    """Differences of all outputs between an engine and its ONNX file.

    Attributes:
        outputs: The outputs in the file's order.
        computed: In which precision the engine's layers compute.
    """

    outputs: tuple[OutputDifference, ...]
    computed: Arithmetic

    @property
    def agrees(self) -> bool:
        """Whether every output is within the tolerance."""
        return all(output.error <= 1 for output in self.outputs)

    def _repr_html_(self) -> str:
        rows = [
            (output.name, f"{output.absolute:.3g}", f"{output.relative:.3g}", output.problem or f"{output.error:.3g}")
            for output in self.outputs
        ]
        title = "the engine agrees with the file" if self.agrees else "the engine differs from the file"
        return object_html(title, ("output", "absolute", "relative", "error / tolerance"), rows)

    def __str__(self) -> str:
        return "\n".join(map(str, self.outputs))


def compare_with_file(
    path: str | Path, engine: Engine, samples: Sequence[Sample], tolerance: Tolerance
) -> FileComparison:
    """Compare an engine's outputs with those of its ONNX file, run by onnxruntime as it is.

    Onnxruntime gets the file's own bytes, and optimizes nothing: no reader, pass or conversion of this package is between. Two engines of
    this package share these, and are no independent check of each other.

    Args:
        path: The ONNX file that the engine was built from.
        engine: The engine.
        samples: Inputs; the largest differences over all of them count.
        tolerance: What `FileComparison.agrees` looks at.

    Raises:
        BuildError: onnxruntime does not load the file.
        ExecutionError: it does not run the file on these inputs.
        UsageError: the engine has other inputs or outputs than the file.
    """
    ort = require("onnxruntime", extra="cpu", feature="the comparison with a file")
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = _ERRORS
    with as_error(f"{path}: onnxruntime does not load the file as it is", "onnxruntime"):
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    _check_names(path, engine, [value.name for value in session.get_inputs()], names)
    differences: dict[str, OutputDifference] = {}
    with engine.create_context() as context:
        for sample in samples:
            with as_error(f"{path}: onnxruntime does not run the file as it is", "onnxruntime", ExecutionError):
                expected = session.run(names, dict(sample))
            results = context.run(dict(sample))
            for name, array in zip(names, expected, strict=True):
                difference = _difference(name, results[name], np.asarray(array), tolerance)
                if name not in differences or difference.error > differences[name].error:
                    differences[name] = difference
    return FileComparison(tuple(differences[name] for name in names), engine.arithmetic)


def _check_names(path: str | Path, engine: Engine, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    for kind, names, descs in (("inputs", inputs, engine.inputs), ("outputs", outputs, engine.outputs)):
        engine_names = [desc.name for desc in descs]
        if sorted(engine_names) != sorted(names):
            raise UsageError(
                f"{path} has the {kind} {', '.join(names)}, and the engine {', '.join(engine_names)}: it was built from another file.\n"
                f"Do: compare_with_file(path, build(path), ...)"
            )


def _difference(
    name: str, actual: npt.NDArray[Any], expected: npt.NDArray[Any], tolerance: Tolerance
) -> OutputDifference:
    for what, of_engine, of_file in (
        ("dims", actual.shape, expected.shape),
        ("element type", actual.dtype, expected.dtype),
    ):
        if of_engine != of_file:
            return OutputDifference(name, np.inf, np.inf, np.inf, f"{what} {of_engine}, in the file {of_file}")
    wide = np.float64 if expected.dtype.kind in "fV" else object  # whole numbers of 64 bits exceed float64
    a, b = actual.astype(wide), expected.astype(wide)
    same = (a == b) | ((a != a) & (b != b))
    if same.all():
        return OutputDifference(name, 0.0, 0.0, 0.0)
    a, b = a[~same].astype(np.float64), b[~same].astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        absolute = np.abs(a - b)
        relative = absolute / np.abs(b)
    largest = _largest(absolute)
    error = tolerance.error(np.where(same, 0, actual), np.where(same, 0, expected)) if largest < np.inf else np.inf
    return OutputDifference(name, largest, _largest(relative), error)


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest value; infinity where one is no number."""
    return float(np.nan_to_num(values, nan=np.inf, posinf=np.inf).max())
