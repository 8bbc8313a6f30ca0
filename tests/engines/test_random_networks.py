"""Random networks on every engine, and on engine ``cuda`` without a GPU, beside onnxruntime; `make test-slow` draws more of them.

    python -m tests.engines.test_random_networks 1000 2000

takes the networks of these numbers, and says what became of them.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.engine import CudaEngine
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.prepare import in_opset_of_precision
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal
from tests.engines.random_networks import draw

ENGINES = ("reference", "onnxruntime", "cpu")
EXACT = 1e-3
"""Of float32: normalization makes much of the last digits of equal values, and OpenVINO's exponentials have fewer digits."""
HALF = 2e-2
INT8 = 0.1
"""Beside onnxruntime on the same Q/DQ model: a code that is rounded to its neighbour changes those behind it."""
SHOWN = (16, 31, 113, 1007, 2347, 2553, 2677)
"""Networks that OpenVINO by itself computes wrongly in int8, or cannot build."""
NUMBERS = [
    pytest.param(number, marks=[] if number < 16 or number in SHOWN else pytest.mark.slow)
    for number in sorted({*range(200), *SHOWN})
]
numbers = pytest.mark.parametrize("number", NUMBERS)
on_host = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


def largest_error(found, wanted, floor=1e-4):
    """The norm of the difference, relative to that of what was wanted with ``floor`` added for each value: some are sums of 0."""

    def error(name, value):
        assert found[name].shape == value.shape
        difference = np.subtract(found[name], value, dtype=np.float64)
        return np.linalg.norm(difference) / (np.linalg.norm(value.astype(np.float64)) + floor * np.sqrt(value.size))

    return max(error(name, value) for name, value in wanted.items())


def of(model, inputs):
    return dict(zip((info.name for info in model.graph.output), literal(model, inputs), strict=True))


@functools.lru_cache(maxsize=64)
def table_of(number: int):
    case = draw(number)
    return calibrate(case.model, MinMaxCalibrator([case.inputs]), engine="onnxruntime", progress=False)


def float_error(number: int, name: str) -> float:
    """With the batch of the case, and with batch 1 where it is free."""
    case = draw(number)
    engine = ptp.build(case.model, engine=name, threads=1)
    with engine.create_context() as context:
        found = largest_error(context.run(case.inputs), case.wanted)
        if not isinstance(engine.inputs[0].dims[0], int):
            alone = {"x": case.inputs["x"][:1]}
            found = max(found, largest_error(context.run(alone), of(case.model, alone)))
    for desc in engine.outputs:
        shape = case.wanted[desc.name].shape
        assert all(size in (dim, shape[0]) for dim, size in zip(desc.dims, shape, strict=True) if isinstance(dim, int))
    return found


def int8_error(number: int, name: str) -> float:
    case = draw(number)
    settings = {} if name == "reference" else {"int8": "always"}
    engine = ptp.build(
        case.model, engine=name, precision="int8", calibration=table_of(number), threads=1, settings=settings
    )
    with engine.create_context() as context:
        return largest_error(context.run(case.inputs), of(engine.model, case.inputs))


def host_error(number: int, precision: str) -> float:
    """Of engine ``cuda``: lowered, planned, and run with its kernels on the host."""
    case = draw(number)
    model, wanted = prepare(case.model), case.wanted
    if precision == "int8":
        options = CudaEngine.quantize_options("int8")
        model = quantize(in_opset_of_precision(model, "int8"), table_of(number), precision="int8", **options)
        model, wanted = prepare(model), of(model, case.inputs)
    float_type = DType.FLOAT32 if precision == "fp32" else DType.FLOAT16
    return largest_error(run_on_host(model, case.inputs, float_type)[0], wanted, 1e-4 if precision == "fp32" else 1e-2)


@pytest.mark.parametrize("name", ENGINES)
@numbers
def test_engines_give_onnxruntimes_numbers(name, number):
    assert float_error(number, name) < EXACT


@pytest.mark.parametrize("name", ENGINES)
@numbers
def test_engines_give_the_quantized_models_numbers(name, number):
    assert int8_error(number, name) < INT8


@pytest.mark.parametrize("number", [31, 113, 1007])
def test_what_openvino_cannot_build_is_computed_by_onnxruntime(number):
    """When this fails, OpenVINO is mended, or another network has to show it."""
    model, settings = draw(number).model, {"int8": "always"}
    engine = ptp.build(model, engine="cpu", precision="int8", calibration=table_of(number), settings=settings)
    assert engine.choices["computed by"] == "onnxruntime: OpenVINO cannot build it"


@on_host
@pytest.mark.parametrize(("precision", "limit"), [("fp32", EXACT), ("fp16", HALF), ("int8", INT8)])
@numbers
def test_engine_cuda_gives_onnxruntimes_numbers(precision, limit, number):
    assert host_error(number, precision) < limit


def main(begin: int, end: int) -> int:
    """Compare the networks of these numbers, and print those that are wrong or refused."""
    checks = [
        (f"{name}, {precision}", check, name, limit)
        for name in ENGINES
        for precision, check, limit in (("fp32", float_error, EXACT), ("int8", int8_error, INT8))
    ]
    checks += [
        (f"cuda, {name}", host_error, name, limit) for name, limit in (("fp32", EXACT), ("fp16", HALF), ("int8", INT8))
    ]
    right, wrong = Counter[str](), Counter[str]()
    for number in range(begin, end):
        for name, check, how, limit in checks:
            try:
                found = check(number, how)
                text = "" if found < limit else f"error {found:.2g}"
            except Exception as failure:  # also what should be none
                text = f"{type(failure).__name__}: {str(failure).splitlines()[0][:200]}"
            (wrong if text else right)[name] += 1
            if text:
                print(f"{number}, {name}: {text}", flush=True)
    print(*(f"{name}: {right[name]} right, {wrong[name]} not" for name, *_ in checks), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
