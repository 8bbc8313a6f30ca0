"""Figures of layers, against those worked out by hand for a network of two and three layers."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import onnx.parser
import pytest

from pytrtplugins.passes import LayerPrecision, Precisions, layer_names
from pytrtplugins.precision import Network, parse_tolerance
from pytrtplugins.precision import measure as measure_module
from pytrtplugins.precision import network as network_module
from pytrtplugins.precision.interventions import interventions, modelled_us
from pytrtplugins.precision.measure import Measurer

HALVES = parse_tolerance("atol=0.5,rtol=0")
SMALL = np.zeros((1, 4), np.float32)
ODD = np.array([[2049, 1, 1, 1]], np.float32)  # float16 holds 2048 and 2050
LARGE = np.float32([[70_000, 1, 1, 1]])  # the largest float16 is 65,504


def network(nodes, constants="float[1] one = {1}"):
    """Nodes from ``data`` to ``z``, four values each; layers are called by their outputs."""
    text = f"""<ir_version: 10, opset_import: ["" : 18]>
        net (float[1,4] data) => (float[1,4] z) <{constants}> {{ {nodes} }}"""
    return Network(onnx.parser.parse_model(text), "reference")


@pytest.fixture
def subtracting():
    """y = data - 1, z = -y."""
    return network("y = Sub(data, one)  z = Neg(y)")


def precisions(made, precision="fp16", layers=None, **more):
    return Precisions(precision, made.digest, layer_names(made.model), layers or {}, **more)


def measured(made, arrays, held=None):
    samples = [{"data": array} for array in arrays]
    rows = Measurer(made, samples, HALVES, 1 << 20).layers(held or precisions(made))
    return {row.name: row for row in rows}


@pytest.mark.parametrize("order", [1, -1])
def test_errors_are_those_of_the_worst_sample_whichever_it_is(subtracting, order):
    """2,049 is rounded to 2,048 on its way into y, which is off by 1, twice the tolerance; its negative adds nothing."""
    found = measured(subtracting, [ODD, SMALL][::order])
    assert (found["y"].own, found["y"].total) == (2, 2)
    assert (found["z"].own, found["z"].total) == (0, 2)


@pytest.mark.parametrize("order", [1, -1])
def test_errors_of_tensors_are_those_of_the_worst_sample_too(subtracting, order):
    samples = [{"data": array} for array in (ODD, SMALL)][::order]
    measurer = Measurer(subtracting, samples, HALVES, 1 << 20)
    assert measurer.tensors(precisions(subtracting), ["y", "z"]) == {"y": 2, "z": 2}


def test_values_are_counted_in_64_bins_below_the_next_power_of_two(subtracting):
    """y is 2,048 once, 0 three times, and -1 four times: 4,096 / 64 = 64 to a bin."""
    row = measured(subtracting, [ODD, SMALL])["y"]
    assert (row.op_type, row.amax, row.histogram_range) == ("Sub", 2048, 4096)
    assert len(row.histogram) == 64
    assert {number: count for number, count in enumerate(row.histogram) if count} == {0: 7, 32: 1}


def test_values_beyond_float16_are_the_clipped_share(subtracting):
    row = measured(subtracting, [SMALL, LARGE])["y"]
    assert (row.limit, row.amax, row.clipped) == (65504, 69999, 1 / 8)
    assert row.own == row.total == np.inf
    assert measured(subtracting, [SMALL, ODD])["y"].clipped == 0


def test_a_layer_in_float32_has_no_limit_and_clips_nothing(subtracting):
    held = precisions(subtracting, layers={"y": LayerPrecision("fp32")})
    row = measured(subtracting, [LARGE], held)["y"]
    assert (row.limit, row.clipped, row.own) == (0, 0, 0)


def test_codes_hold_127_steps_of_the_scale_of_what_is_copied():
    """Of 8 values 100 and -100 are beyond 127 · 0.5 = 63.5; the transposed ones have y's scale."""
    made = network("y = Sub(data, one)  t = Transpose(y)  z = Transpose(t)")
    held = precisions(made, "int8", scales={"data": 1.0, "y": 0.5, "z": 9.0})
    found = measured(made, [np.float32([[101, -99, 11, 1]]), SMALL], held)
    assert [(found[name].limit, found[name].clipped) for name in "ytz"] == [(63.5, 2 / 8)] * 3


def test_the_limit_of_what_is_copied_of_several_is_the_largest(monkeypatch, subtracting):
    monkeypatch.setattr(measure_module, "sources", lambda model, name: ["data", "y", "other"])
    held = precisions(subtracting, "int8", scales={"data": 0.25, "y": 2.0})
    assert Measurer(subtracting, [{"data": SMALL}], HALVES, 1 << 20)._limit(held, subtracting.layers[0]) == 254
    monkeypatch.setattr(measure_module, "sources", lambda model, name: [])
    assert Measurer(subtracting, [{"data": SMALL}], HALVES, 1 << 20)._limit(held, subtracting.layers[0]) == 0


def test_a_tensor_without_a_scale_has_no_limit():
    whole = network("y = Sub(data, one)  z = Neg(y)")
    found = measured(whole, [LARGE], precisions(whole, "int8", scales={"data": 1.0, "z": 2.0}))
    assert [(found[name].limit, found[name].clipped) for name in "yz"] == [(0, 0), (254, 1 / 4)]


def test_the_modelled_time_is_that_of_moving_each_layers_bytes_at_200_gb_a_second():
    """A layer reads and writes 2 · 4 values, and its constants: 16 weights, or one number."""
    made = network("y = MatMul(data, w)  z = Sub(y, one)", "float[4,4] w = {" + "1," * 15 + "1}, float[1] one = {1}")
    single, half = LayerPrecision("fp32"), LayerPrecision("fp32", "half-weights")
    values, weights = 2 * 4, {"y": 16, "z": 1}
    for layers, moved in (
        ({}, 2 * (2 * values + weights["y"] + weights["z"])),
        ({"y": single}, 4 * (values + weights["y"]) + 2 * (values + weights["z"])),
        ({"y": half}, 4 * values + 2 * weights["y"] + 2 * (values + weights["z"])),
        ({"y": single, "z": single}, 4 * (2 * values + weights["y"] + weights["z"])),
    ):
        found = modelled_us(precisions(made, layers=layers), made.layers, made.model)
        assert found == pytest.approx(1e6 * moved / 200e9), layers
    codes = modelled_us(precisions(made, "int8"), made.layers, made.model)
    assert codes == pytest.approx(1e6 * (2 * values + weights["y"] + weights["z"]) / 200e9)


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [
        ("int8", ["scales per channel", "scales of other", "pin", "pin with parents"]),
        ("fp16", ["float32 sums, half weights", "pin", "pin with parents"]),
    ],
)
def test_what_is_tried_at_a_layer_depends_on_the_precision(precision, wanted):
    """Scales are of codes alone, though a table of them is there; half weights are of half precision alone."""
    made = network("y = Sub(data, one)  z = MatMul(y, w)", "float[4,4] w = {" + "1," * 15 + "1}, float[1] one = {1}")
    held = precisions(made, precision, scales={"data": 1.0, "y": 0.5, "z": 2.0}, per_tensor=True)
    layer = next(layer for layer in made.layers if layer.name == "z")
    table = {"same": {"y": 0.5}, "other": {"y": 0.25}}
    assert [each.name for each in interventions(held, layer, made.layers, made.model, table)] == wanted


def test_a_layer_alone_is_built_once_for_each_form_that_it_gets(subtracting):
    measurer = Measurer(subtracting, [{"data": np.asarray(ODD)}], HALVES, 1 << 20)
    first, built, build = measurer.layers(precisions(subtracting)), [], subtracting.build
    subtracting.build = lambda precision, model: built.append(precision) or build(precision, model)
    assert measurer.layers(precisions(subtracting)) == first
    assert built == ["fp32", "fp16"]  # the whole network in both precisions
    changed = precisions(subtracting, layers={"y": LayerPrecision("fp32")})
    assert [row.own for row in measurer.layers(changed)] == [0, 0]
    assert built == ["fp32", "fp16"] * 2 + ["fp16"]


def test_a_layer_that_is_not_in_the_written_model_has_no_error_of_its_own(subtracting):
    alone = subtracting.alone
    subtracting.alone = lambda held, layer: None if layer.name == "y" else alone(held, layer)
    found = measured(subtracting, [ODD])
    assert (found["y"].own, found["y"].total, found["z"].total) == (0, 2, 2)


def test_a_latency_is_the_shortest_run_behind_the_first_in_microseconds(subtracting, monkeypatch):
    clock, seconds, runs = [0.0], [0.001, 0.25, 0.125] + [0.5] * 50, list[int]()

    def run(sample):
        clock[0] += seconds[len(runs)]
        runs.append(1)

    engine = SimpleNamespace(create_context=lambda: nullcontext(SimpleNamespace(run=run)))
    monkeypatch.setattr(network_module.time, "perf_counter", lambda: clock[0])
    assert subtracting.latency_us(engine, {"data": SMALL}) == pytest.approx(125_000)
    assert len(runs) == network_module._RUNS + 1
