"""The search names the layer with the planted defect, that layer alone, and what to do about it."""

import functools
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import CalibrationTable, MinMaxCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.reference import ReferenceEngine
from pytrtplugins.errors import NoDataError, PrecisionError, UsageError
from pytrtplugins.passes import prepare
from pytrtplugins.precision import Budget, Network, parse_tolerance, search
from pytrtplugins.precision.scales import make_tables
from pytrtplugins.precision.search import _Search
from tests.engines.networks import Complete, Witness, conv_net, image
from tests.precision.planted import (
    cancelling,
    chain,
    large_values,
    long_sums,
    outlier_activations,
    outlier_weights,
    overflowing,
    samples,
)

COSINE = parse_tolerance("cosine=0.9995")


def scales(model):
    return {"minmax": calibrate(model, MinMaxCalibrator(samples(model)), engine="reference", progress=False)}


def run(model, precision="fp16", tolerance=COSINE, engine="reference", settings=None, **more):
    return search(Network(model, engine, settings=settings), samples(model), tolerance, precision, **more)


@functools.cache
def searched(make, tolerance=COSINE, **settings):
    """The result of a search without scales, which several tests read."""
    return run(make(), tolerance=tolerance, settings=settings or None)


@functools.cache
def searched_int8(make, engine="reference", **more):
    model = make()
    return run(model, "int8", parse_tolerance("cosine=0.99"), engine, tables=scales(model), **more)


def half_of_its_error():
    """A tolerance of which the outputs of `chain` in float16 have twice as much error."""
    return parse_tolerance(f"cosine={1 - searched(chain).final_before * (1 - 0.9995) / 2:.12f}")


def outputs(engine, x):
    with engine.create_context() as context:
        return context.run(x)["head"]


def test_weights_that_overflow_float16():
    result = searched(overflowing)
    assert result.offenders == ("conv3",)
    assert result.holds
    assert result.final_before == np.inf
    assert {name: layer.strategy for name, layer in result.precisions.layers.items()} == {"conv3": "pin"}
    assert result.steps[0].own == np.inf
    assert [name for name, error, _ in result.steps[0].tried if error <= 1] == ["pin", "pin with parents"]


@pytest.mark.parametrize("form", ["compute", "enqueue"])
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_search_runs_plugins_in_the_form_that_is_asked_for(form, precision):
    model, asked = conv_net(Complete()), {"test.engines::Complete": form}
    Witness.calls.clear()
    data = [{"data": image()}]
    tables = make_tables(model, data, ["minmax"], engine="reference", plugins=asked, progress=False)
    assert set(Witness.calls) == {form}
    network = Network(model, "reference", plugins=asked)
    result = search(network, data, COSINE, precision, tables=tables if precision == "int8" else None)
    assert set(Witness.calls) == {form}
    assert result.facts["plugins"] == asked


def test_a_search_refuses_forms_that_are_not_there():
    with pytest.raises(UsageError, match="is never run by engine 'reference'"):
        Network(conv_net(Complete()), "reference", plugins={"test.engines::Complete": "decomposition"})


def test_values_that_overflow_float16():
    result = run(large_values(1e5))
    assert result.offenders[0] == "conv2"
    assert result.holds
    assert set(result.precisions.layers) == {"conv2", "conv2_leaky"}


def test_large_values_alone_are_no_reason_for_float32():
    assert dict(run(large_values(1e4)).precisions.layers) == {}


def test_a_cancellation_after_a_residual_addition():
    result = searched(cancelling)
    assert result.offenders == ("add",)
    assert result.holds
    assert set(result.precisions.layers) == {"left", "right", "add"}
    assert result.steps[0].action == "pin with parents"
    alone = {error.name: error.own for error in result.before}
    assert alone["add"] > 1
    assert max(own for name, own in alone.items() if name != "add") < 1
    behind = {error.name: error.total for error in result.before}
    assert min(behind["scaled"], behind["after"]) > 1  # they inherit it, and are not named


def test_sums_that_cancel_are_taken_in_float32_where_the_engine_sums_in_float16():
    result = searched(long_sums, sums="float16")
    assert result.offenders == ("conv3",)
    assert result.holds
    assert {name: layer.strategy for name, layer in result.precisions.layers.items()} == {"conv3": "half-weights"}
    assert dict(run(long_sums()).precisions.layers) == {}  # with sums in float32 nothing is wrong


def test_what_helps_most_per_microsecond_is_kept():
    result = searched(long_sums, sums="float16")
    (step,) = result.steps
    tried = {name: (error, cost) for name, error, cost in step.tried}
    assert set(tried) == {"float32 sums, half weights", "pin", "pin with parents"}
    assert all(error <= 1 for error, _ in tried.values())
    assert tried["pin with parents"][0] <= tried["pin"][0] < tried[step.action][0]  # others help more,
    (kept,) = result.precisions.layers.values()
    assert kept.latency_us == tried[step.action][1] > 0
    assert tried[step.action][1] < tried["pin"][1] < tried["pin with parents"][1]  # and cost more


def test_scales_that_are_not_needed_are_given_back_too():
    """conv2 and conv4 are out of tolerance with coarse scales; the outputs hold once conv4's are good."""
    model = chain()
    good = scales(model)["minmax"]
    coarse = CalibrationTable(
        {**good, "conv1_leaky": good["conv1_leaky"] * 16, "conv3_leaky": good["conv3_leaky"] * 100}
    )
    exact = [outputs(ptp.build(model, engine="reference"), x) for x in samples(model)]

    def judge(engine):
        loose = parse_tolerance("cosine=0.995")
        return max(loose.error(outputs(engine, x), y) for x, y in zip(samples(model), exact, strict=True))

    tables = {"coarse": coarse, "minmax": good}
    result = run(model, "int8", parse_tolerance("map50=0.005"), tables=tables, judge=judge)
    assert result.offenders[:2] == ("conv2", "conv4")
    assert [step.action for step in result.steps[:2]] == ["scales of minmax"] * 2
    assert result.holds
    assert ("conv2", "scales of minmax") in result.reverted
    assert set(result.precisions.layers) == {"conv4"}
    assert result.precisions.scales == {**coarse, "conv3_leaky": good["conv3_leaky"]}


@pytest.mark.parametrize(
    ("planted", "options", "strategy"),
    [
        pytest.param(outlier_weights, {"per_tensor": True}, "per-channel", id="weights that share a scale"),
        pytest.param(outlier_activations, {}, "pin", id="a channel of activations"),
        pytest.param(outlier_activations, {"engine": "cpu"}, "pin", id="on the CPU engine"),
    ],
)
def test_an_outlier_in_int8(planted, options, strategy):
    result = searched_int8(planted, **options)
    assert result.offenders == ("conv3",)
    assert result.holds
    assert {name: layer.strategy for name, layer in result.precisions.layers.items()} == {"conv3": strategy}


def test_a_sound_network_needs_nothing():
    result = searched(chain)
    assert result.holds
    assert (result.offenders, result.steps, dict(result.precisions.layers)) == ((), (), {})
    assert result.latency_us < result.latency_fp32_us


def test_errors_that_add_up_are_met_at_the_largest_contributor_and_what_is_not_needed_is_given_back():
    model, tolerance = chain(), half_of_its_error()
    result = searched(chain, tolerance)
    assert result.final_before == pytest.approx(2, rel=1e-3)
    assert result.holds
    assert result.final <= 1
    pinned = set(result.precisions.layers)
    assert 0 < len(pinned) < len(result.before)
    for name in pinned:  # each is needed
        fewer = {key: value for key, value in result.precisions.layers.items() if key != name}
        again = Network(model, "reference")
        engine = again.candidate(type(result.precisions)("fp16", again.digest, result.precisions.names, fewer))
        exact = again.reference()
        off = max(tolerance.error(outputs(engine, x), outputs(exact, x)) for x in samples(model))
        assert off > 1, name


def test_the_result_is_what_build_makes_of_its_file(tmp_path):
    model, result = overflowing(), searched(overflowing)
    result.precisions.write(tmp_path / "precision.yaml")
    engine = ptp.build(model, engine="reference", precision=tmp_path / "precision.yaml")
    exact = ptp.build(model, engine="reference")
    errors = [COSINE.error(outputs(engine, x), outputs(exact, x)) for x in samples(model)]
    assert max(errors) == pytest.approx(result.final, rel=1e-9)


def test_bounded_memory_changes_no_result():
    whole, parts = searched(cancelling), run(cancelling(), limit_bytes=1)
    assert whole.before == parts.before
    assert whole.precisions.layers == parts.precisions.layers


def test_two_searches_are_equal():
    model = outlier_weights()
    again = run(model, "int8", parse_tolerance("cosine=0.99"), tables=scales(model), per_tensor=True)
    assert again == searched_int8(outlier_weights, per_tensor=True)


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path):
    model, path = cancelling(), tmp_path / "journal.json"
    calls = []

    def stop(text):
        calls.append(text)
        if len(calls) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(model, journal=path, advance=stop)
    assert path.exists()
    network = Network(model, "reference")
    built, candidate = [], network.candidate
    network.candidate = lambda *given: built.append(given) or candidate(*given)
    again = search(network, samples(model), COSINE, "fp16", journal=path)
    assert again == searched(cancelling)
    assert not path.exists()
    fresh = Network(model, "reference")
    all_built, fresh_candidate = [], fresh.candidate
    fresh.candidate = lambda *given: all_built.append(given) or fresh_candidate(*given)
    search(fresh, samples(model), COSINE, "fp16")
    assert 0 < len(built) < len(all_built)


def test_the_budget_ends_a_search_with_what_it_has():
    result = run(cancelling(), budget=Budget(max_runs=3))
    assert not result.holds
    assert result.reason == "3 evaluations are spent"
    assert result.runs == 3


def test_what_costs_too_much_is_not_done():
    result = run(cancelling(), budget=Budget(max_latency_ratio=1.0))
    assert not result.holds
    assert dict(result.precisions.layers) == {}
    assert "beyond the budget" in result.steps[0].tried[-1][0]
    assert min(cost for _, _, cost in result.steps[0].tried) > 0


def test_where_no_layer_is_off_alone_those_of_the_largest_own_errors_come_first():
    """The judge is never content: every layer gets its turn."""
    result = run(chain(), tolerance=parse_tolerance("map50=0.005"), judge=lambda engine: 2.0)
    own = {error.name: error.own for error in result.before if error.own > 0}
    assert max(own.values()) < 1
    assert [step.layer for step in result.steps] == sorted(own, key=own.__getitem__, reverse=True) != list(own)
    assert (result.offenders, result.holds) == ((), False)


def test_what_all_steps_cost_together_is_within_the_budget():
    """Each step costs less than the budget leaves to the first; all together cost more than it."""
    model, tolerance = chain(), half_of_its_error()
    free = searched(chain, tolerance)
    costs = np.diff([free.latency_before_us, *(step.latency_us for step in free.steps)])
    ratio = 1 + 1.01 * costs.max() / free.latency_before_us
    assert free.steps[-1].latency_us > ratio * free.latency_before_us
    result = run(model, tolerance=tolerance, budget=Budget(max_latency_ratio=ratio))
    assert result.precisions.layers
    assert max(step.latency_us for step in result.steps) <= ratio * result.latency_before_us


def test_a_layer_without_an_error_of_its_own_is_not_the_next_to_change():
    layers = [SimpleNamespace(name=name, copies=False) for name in ("a", "b")]
    now = SimpleNamespace(precision="fp16", pinned=tuple)
    state: Any = SimpleNamespace(network=SimpleNamespace(layers=layers), exhausted=set(), now=now)
    for own, wanted in (
        ((0.0, 0.5), (layers[1], False)),
        ((0.0, 0.0), (None, False)),
        ((0.5, 2.0), (layers[1], True)),
        ((1.0, 2.0), (layers[1], True)),  # 1 is just tolerated
        ((1.0, 0.5), (layers[0], False)),
    ):
        errors: Any = [SimpleNamespace(name=layer.name, own=error) for layer, error in zip(layers, own, strict=True)]
        assert _Search._next(state, errors) == wanted


def test_the_worst_output_counts():
    model = overflowing()
    model.graph.output.insert(0, helper.make_tensor_value_info("conv1", TensorProto.FLOAT, None))
    result = run(model)
    assert result.final_before == searched(overflowing).final_before > 1
    assert result.offenders == ("conv3",)


def test_the_judge_decides_where_there_is_one():
    model = overflowing()
    seen = []

    def judge(engine):
        x = samples(model)[0]
        seen.append(engine.precision)
        return 0.5 if np.isfinite(outputs(engine, x)).all() else 9.0

    result = run(model, tolerance=parse_tolerance("map50=0.005"), judge=judge)
    assert result.offenders == ("conv3",)
    assert (result.final_before, result.final) == (9.0, 0.5)
    assert set(seen) == {"fp16"}


def test_what_makes_the_outputs_hold_is_kept_whatever_it_does_to_the_layer():
    """The judge is content with conv2's better scales, which help conv2 by less than a tenth."""
    model = chain()
    good = scales(model)["minmax"]
    coarse = {name: {**good, "conv1_leaky": good["conv1_leaky"] * factor} for name, factor in (("a", 16), ("b", 15.8))}
    tables = {name: CalibrationTable(held) for name, held in coarse.items()}

    def judge(engine):
        scales_read = [numpy_helper.to_array(tensor) for tensor in engine.model.graph.initializer]
        return 0.5 if any(scale.size == 1 and scale == tables["b"]["conv1_leaky"] for scale in scales_read) else 2.0

    result = run(model, "int8", parse_tolerance("map50=0.005"), tables=tables, judge=judge)
    assert [(step.layer, step.action) for step in result.steps] == [("conv2", "scales of b")]
    assert result.holds


def test_fp8_is_searched_as_int8_is_and_its_file_is_followed(tmp_path):
    model = outlier_activations()
    loose = run(model, "fp8", parse_tolerance("cosine=0.9"), tables=scales(model))
    assert (loose.holds, loose.precisions.layers) == (True, {})
    result = run(model, "fp8", parse_tolerance("cosine=0.9999"), tables=scales(model))
    assert result.holds
    assert {layer.precision for layer in result.precisions.layers.values()} == {"fp32"}
    result.precisions.write(tmp_path / "fp8.yaml")
    engine = ptp.build(model, engine="reference", precision=tmp_path / "fp8.yaml")
    assert engine.precision == "fp8"
    pairs = [
        sum(node.op_type == "QuantizeLinear" for node in each.graph.node)
        for each in (engine.model, loose.precisions.apply(prepare(model)))
    ]
    assert pairs[0] < pairs[1]
    x = samples(model)[0]
    found, wanted = (outputs(each, x) for each in (engine, ptp.build(model, engine="reference")))
    assert parse_tolerance("cosine=0.9999").error(found, wanted) <= 1


def test_an_error_of_1_is_tolerated():
    result = run(chain(), tolerance=parse_tolerance("map50=0.005"), judge=lambda engine: 1.0)
    assert (result.holds, result.steps, result.reason, result.final) == (True, (), "within tolerance", 1)


def test_a_notebook_shows_the_layers_that_are_computed_differently():
    result = searched(overflowing)
    heads = "".join(re.findall(r"<th [^>]*>(.*?)</th>", text := result._repr_html_()))
    assert heads == "layerprecisionstrategyreason"
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text)
    assert cells == ["conv3", "fp32", "pin", "own error inf of the tolerance; pin"]
    assert "precision search, fp16: outputs within tolerance; 1 layer computed differently" in text
    spent = run(overflowing(), budget=Budget(max_runs=2))
    assert (spent.runs, spent.reason) == (2, "2 evaluations are spent")
    assert "outputs NOT within tolerance: 2 evaluations are spent" in spent._repr_html_()


@pytest.mark.parametrize("limits", [{"max_runs": 1}, {"max_latency_ratio": 0.99}, {"max_latency_ratio": float("nan")}])
def test_a_budget_of_nothing_is_refused(limits):
    with pytest.raises(UsageError, match="expected max_runs >= 2 and max_latency_ratio >= 1"):
        Budget(**limits)


def test_200_evaluations_are_the_budget_where_none_is_given():
    assert Budget() == Budget(max_runs=200, max_latency_ratio=np.inf)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"precision": "fp4"}, PrecisionError),
        ({"precision": "fp8"}, UsageError),
        ({"precision": "int8"}, UsageError),
        ({"tolerance": parse_tolerance("map50=0.005")}, UsageError),
        ({"latency": "guessed"}, UsageError),
    ],
)
def test_what_cannot_be_searched_is_refused(change, error):
    with pytest.raises(error):
        run(chain(), **change)


def test_a_network_is_built_quickly_unless_that_is_not_wanted(monkeypatch):
    monkeypatch.setattr(ReferenceEngine, "fast_build", {"sums": "float16"})
    assert Network(chain(), "reference").settings == {"sums": "float16"}
    assert Network(chain(), "reference", settings={"sums": "float32"}).settings == {"sums": "float32"}
    assert Network(chain(), "reference", fast_build=False).settings == {}


def test_no_samples_are_refused():
    with pytest.raises(NoDataError):
        search(Network(chain(), "reference"), [], COSINE, "fp16")


@pytest.mark.parametrize(("outcome", "kept"), [(0.5, 0), (1.0, 0), (1.0001, 1)])
def test_a_change_is_reverted_where_the_outputs_are_within_tolerance_without_it(monkeypatch, outcome, kept):
    search_module = sys.modules[_Search.__module__]
    monkeypatch.setattr(search_module, "_apply_all", lambda start, parts: list(parts))
    monkeypatch.setattr(search_module, "_key", str)
    part = SimpleNamespace(layers=("conv",), name="fp16")
    state = SimpleNamespace(kept=[part], now=[part], start=None, reverted=[], _evaluate=lambda parts: (outcome, 0.0))
    assert _Search._revert(state, 0.75) == (0.75 if kept else outcome)
    assert (len(state.kept), len(state.now), len(state.reverted)) == (kept, kept, 1 - kept)
