"""Which steps ONNX's own tests become, as ``pytrt profile`` shows them: ``python -m tests.engines.cuda.operators.steps`` lists them."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

LIST = Path(__file__).with_suffix(".txt")
"""A line for each test: the kinds of its steps in their order; ``generic`` runs array by array, ``*`` is not part of the CUDA graph."""


@functools.cache
def listed() -> dict[str, str]:
    """The kinds of the steps of each test, by its name; empty for another version of ONNX, which has other tests."""
    version, *lines = LIST.read_text().splitlines()
    return dict(line.split(": ") for line in lines) if version == onnx.__version__ else {}


def steps_text(plan: Any) -> str:
    """The kinds of a plan's steps."""
    return " ".join(f"{step.kind}{'' if step.capturable else '*'}" for step in plan.steps) or "none"


if __name__ == "__main__":
    from pytrtplugins.passes import prepare
    from tests.engines.cuda.host import host_execution
    from tests.engines.cuda.operators.test_operators import CASES

    lines = {}
    warnings.simplefilter("ignore")
    for case in (case for cases in CASES.values() for case in cases):
        names = [info.name for info in case.model.graph.input]
        inputs = {name: np.asarray(x) for name, x in zip(names, case.data[0][0], strict=True)}
        lines[case.name] = steps_text(host_execution(prepare(case.model), inputs).plan)
    LIST.write_text(onnx.__version__ + "\n" + "".join(f"{name}: {text}\n" for name, text in sorted(lines.items())))
