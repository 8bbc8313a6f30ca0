"""INT8 beside float on a GPU: whatever is chosen computes right, is said, and is not timed a second time."""

import re

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda import int8_choice, settings
from pytrtplugins.engines.cuda.conv import cache
from tests.engines.cuda.lower.test_int8_chains import both, parted, residual
from tests.measures import relative
from tests.passes.nets import calibrated, run

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

SETTINGS = {"disable": ["cudnn-kernels", "cublaslt-kernels"], "batch": [1, 2]}
CHOICE = re.compile(r"(int8|float16): INT8 takes [\d.]+ µs, float16 [\d.]+ µs(, both [\d.]+ µs, with '.* in float16)?")


def build(model, table, **more):
    return ptp.build(
        model, engine="cuda", precision="int8", calibration=table, settings={**SETTINGS, **more}, progress=False
    )


def output(engine, x):
    with engine.create_context() as context:
        (values,) = context.run({"data": x}).values()
    return values


@pytest.mark.parametrize("make", [residual, parted])
def test_the_choice_is_made_once_and_computes_right(make, monkeypatch, tmp_path):
    monkeypatch.setattr(int8_choice, "compares_int8", settings.compares_int8)
    monkeypatch.setattr(cache, "cache_folder", lambda kind: tmp_path)
    model = both(make)[0]
    table, x = calibrated(model), np.random.default_rng(0).random((2, 8, 8, 8), dtype=np.float32)
    engine, timed = build(model, table), int8_choice.network_microseconds
    assert CHOICE.fullmatch(engine.choices["int8"]), engine.choices
    wanted = run(model, x, [model.graph.output[0].name])[model.graph.output[0].name]
    assert relative(output(engine, x), wanted) < 0.05
    assert timed(engine) > 0
    monkeypatch.setattr(int8_choice, "network_microseconds", lambda engine: pytest.fail("timed again"))
    again = build(model, table)
    assert again.choices["int8"] == engine.choices["int8"]
    assert again.arithmetic == engine.arithmetic
    assert np.array_equal(output(again, x), output(engine, x))


def test_always_computes_in_int8(monkeypatch):
    monkeypatch.setattr(int8_choice, "compares_int8", settings.compares_int8)
    model = both(parted)[0]
    engine = build(model, calibrated(model), int8="always", disable=["tactics"])
    assert "int8" not in engine.choices
    assert {name for name, kind in engine.arithmetic.layers.items() if kind == "int8"} == set("abcde")
