"""Convolutions of groups that stay in float in INT8: which, and when."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.cuda.float_groups import faster, with_float_groups
from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.passes.quantize import FLOAT_LAYERS
from tests.measures import relative
from tests.passes.nets import Net

INPUTS = {"data": np.random.default_rng(1).standard_normal((1, 8, 16, 16), dtype=np.float32)}


def grouped(group: int = 4):
    """A convolution of groups and a depthwise one, each between two that are neither; and a table of scales."""
    net = Net(channels=8, size=16)
    x = net.conv("data", "first", 32)
    x = net.conv(net.conv(x, "grouped", 32, group=group), "between", 32, kernel=1)
    model = prepare(net.model(net.conv(net.conv(x, "depthwise", 32, group=32), "last", 24, kernel=1, leaky=False)))
    return model, calibrate(model, MinMaxCalibrator([INPUTS]), engine="reference", progress=False)


def test_only_convolutions_of_several_channels_a_group_read_floats():
    model, table = grouped()
    quantized = quantize(model, table, float_last=False)
    found = with_float_groups(quantized)
    before, after = (
        {
            node.name
            for node in lower(each).graph
            if "x_scale" in node.attributes and node.attributes.get_float("x_scale")
        }
        for each in (quantized, found)
    )
    assert before - after == {"grouped"}
    assert {"between", "depthwise"} <= after <= before
    (noted,) = (json.loads(entry.value) for entry in found.metadata_props if entry.key == FLOAT_LAYERS)
    assert "groups" in noted["grouped"]


def test_the_network_computes_the_same_with_less_rounding():
    model, table = grouped()
    quantized = quantize(model, table, float_last=False)
    outputs = []
    for each, precision in ((model, "fp32"), (quantized, "int8"), (with_float_groups(quantized), "int8")):
        with ptp.build(each, engine="reference", precision=precision).create_context() as context:
            (output,) = context.run(INPUTS).values()
            outputs.append(output)
    assert 0 < relative(outputs[2], outputs[0]) < relative(outputs[1], outputs[0]) < 0.05


def test_a_network_without_such_convolutions_is_left_alone():
    model, table = grouped(group=1)
    assert with_float_groups(quantize(model, table)) is None
    model, table = grouped()
    assert with_float_groups(quantize(model, table, exclude=["grouped"])) is None


@pytest.mark.parametrize(
    ("codes", "floats", "kept"), [(20.0, 19.0, 1), (19.0, 20.0, 0), (20.0, 20.0, 0), (None, None, 0), (20.0, None, 0)]
)
def test_the_faster_one_is_kept_and_says_so(codes, floats, kept):
    engines = [SimpleNamespace(network_us=lambda us=us: us, choices={}) for us in (codes, floats)]
    assert faster(*engines) is engines[kept]
    if floats is None:
        assert engines[0].choices == {}
    else:
        said = engines[kept].choices["convolutions of groups"]
        assert said.startswith(("INT8", "float")[kept])
        assert f"{codes} µs" in said
        assert str(floats) in said


@pytest.mark.gpu
def test_an_engine_says_which_was_faster_and_keeps_to_what_it_is_told(gpu, tmp_path):
    model, table = grouped()
    with ptp.build(model, engine="reference").create_context() as context:
        (wanted,) = context.run(INPUTS).values()
    found = {}
    for disable in ((), ("float-groups",)):
        engine = ptp.build(model, engine="cuda", precision="int8", calibration=table, settings={"disable": disable})
        with engine.create_context() as context:
            (output,) = context.run(INPUTS).values()
        assert relative(output, wanted) < 0.05
        found[disable] = engine.choices.get("convolutions of groups")
    assert found[()].startswith(("INT8: ", "float: "))
    assert found["float-groups",] is None
    engine.save(tmp_path / "saved.engine")
    with ptp.Engine.load(tmp_path / "saved.engine").create_context() as context:
        np.testing.assert_array_equal(next(iter(context.run(INPUTS).values())), output)
