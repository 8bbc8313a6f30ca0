"""What is not faster in INT8 stays in float: engines are stand-ins, and a run of one takes what its layers cost."""

import logging
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines import BuildOptions
from pytrtplugins.engines.base.arithmetic import float_reasons, layer_types
from pytrtplugins.engines.cuda import int8_choice, settings
from pytrtplugins.engines.cuda.conv.cache import TacticCache
from pytrtplugins.engines.cuda.int8_choice import build_fastest, network_microseconds
from pytrtplugins.errors import BuildError, DimsError, UsageError
from tests.engines.cuda.gpu_clock import GpuClock
from tests.engines.cuda.lower.test_int8_chains import both, parted, plain
from tests.engines.cuda.test_engine_file import build as build_on_stand_in
from tests.engines.cuda.test_engine_file import machine  # noqa: F401 - a fixture
from tests.passes.nets import calibrated, run

INT8 = BuildOptions("int8")


@pytest.fixture(autouse=True)
def comparison(monkeypatch):
    """As elsewhere than in tests: tests/conftest.py takes it away."""
    monkeypatch.setattr(int8_choice, "compares_int8", settings.compares_int8)


class Engine(SimpleNamespace):
    """What the choice asks of an engine."""

    def note_fallback(self, reason):
        self.fallback = reason

    def planned_sizes(self):
        return [{"N": 1}]

    tail = None

    def execution(self, sizes):
        return SimpleNamespace(plan=SimpleNamespace(tail=self.tail, sizes=sizes), close=lambda: None)


class Builder:
    """Builds stand-ins; notes which layers of each were in INT8, and whether kernels were timed in the network."""

    def __init__(self, folder=None, fails=()):
        self.built, self._cache, self._fails = [], folder and TacticCache({"gpu": "test"}, folder), fails

    def __call__(self, model, options):
        layers = {name for name, kind in layer_types(model).items() if kind == "int8"}
        self.built.append((layers, "network-timing" not in options.settings.get("disable", ())))
        if layers in self._fails:
            raise BuildError("too large")
        selector = SimpleNamespace(cache=self._cache)
        return Engine(model=model, layers=layers, selector=selector, choices={}, fallback="", float_precision="fp16")


def choose(make, cost, builder=None, options=INT8):
    """The engine, and the costs that were asked for."""
    model, quantized, _ = both(make)
    asked = []

    def measure(engine):
        asked.append(engine.layers)
        return cost(engine.layers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8_choice, "plan_digest", lambda plan, selector: f"digest of {plan.sizes}")
        return build_fastest(builder or Builder(), quantized, model, options, measure=measure), asked


def costs(**gains):
    """Microseconds: 100 without INT8, and so many less for each layer in INT8."""
    return lambda layers: 100.0 - sum(gains.get(name, 0.0) for name in layers)


def test_faster_int8_is_kept_with_both_times(caplog):
    engine, _ = choose(plain, costs(a=20, b=10))
    assert engine.layers == {"a", "b", "c"}
    assert engine.choices == {"int8": "int8: INT8 takes 70 µs, float16 100 µs"}
    assert not caplog.records


def test_slower_int8_falls_back_to_float16_and_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        engine, _ = choose(plain, costs(a=-20))
    assert engine.layers == set()
    assert engine.fallback == "INT8 takes 120 µs, float16 100 µs"
    assert "engine 'cuda' falls back from INT8 to float16, which is faster here" in caplog.text
    assert "pytrt build --setting int8=always" in caplog.text


@pytest.mark.parametrize(("gain", "kept"), [(0.5, True), (0.0, True), (-0.9, True), (-1.2, False)])
def test_times_that_are_about_equal_keep_int8(gain, kept):
    engine, _ = choose(plain, costs(a=gain))
    assert bool(engine.layers) == kept


@pytest.mark.parametrize(
    ("gains", "layers"),
    [
        ({"a": 10, "c": 10, "e": -5}, {"a", "b", "c", "d"}),
        ({"a": -10, "c": -10, "e": 5}, {"e"}),
        ({"a": -10, "c": 30, "e": -5}, {"a", "b", "c", "d"}),  # chains that are alike stay together
        ({"a": 10, "c": 10, "e": -0.1}, {"a", "b", "c", "d", "e"}),  # less is noise
    ],
)
def test_chains_stay_in_float_where_the_network_is_faster_so(gains, layers):
    engine, _ = choose(parted, costs(**gains))
    assert engine.layers == layers


def test_a_mixed_network_says_which_layers_are_in_float_and_why():
    engine, _ = choose(parted, costs(a=-10, c=-10, e=5))
    wanted = "int8: INT8 takes 115 µs, float16 100 µs, both 95 µs, with 'a', 'b', 'c' and 1 more in float16"
    assert engine.choices == {"int8": wanted}
    reasons = float_reasons(engine.model)
    assert {name for name, why in reasons.items() if why == "the network is faster with it in float16"} == set("abcd")


def test_kernels_are_timed_in_the_network_for_what_is_compared_in_the_end_only():
    builder = Builder()
    choose(parted, costs(a=10, c=10, e=-5), builder)
    everything = set("abcde")
    assert builder.built == [
        (everything, True), (set(), True),
        (everything, False), ({"e"}, False), (set("abcd"), False),
        (set("abcd"), True),
    ]  # fmt: skip


def test_a_form_that_gains_only_with_kernels_that_are_not_taken_in_the_end_is_not_chosen():
    """The last time of the mixture is another than the one that it was chosen by."""
    seen = []

    def cost(layers):
        seen.append(layers)
        return 200.0 if layers == set("abcd") and seen.count(layers) > 3 else costs(a=10, c=10, e=-5)(layers)

    engine, _ = choose(parted, cost)
    assert engine.layers == set("abcde")


def test_the_choice_is_remembered_for_this_network(tmp_path):
    first, asked = choose(parted, costs(a=-10, c=-10, e=5), Builder(tmp_path))
    builder = Builder(tmp_path)
    again, asked_again = choose(parted, costs(), builder)
    assert asked
    assert not asked_again
    assert (again.layers, again.choices) == (first.layers, first.choices)
    assert builder.built == [(set("abcde"), True), ({"e"}, True)]
    other, asked = choose(plain, costs(a=5), Builder(tmp_path))  # the stand-ins' plans have one digest
    assert asked
    assert other.layers == {"a", "b", "c"}


def test_forms_that_cannot_be_built_are_not_chosen():
    engine, _ = choose(parted, costs(a=-10, c=-10, e=-5), Builder(fails=[set()]))
    assert engine.layers == {"e"}
    engine, _ = choose(plain, costs(a=-10), Builder(fails=[set()]))
    assert engine.choices == {"int8": "int8: INT8 takes 110 µs"}


def test_a_network_whose_plugin_refuses_the_batch_that_nobody_asked_for_is_built_in_int8(monkeypatch):
    def execution(self, sizes):
        raise DimsError("an even batch only")

    monkeypatch.setattr(Engine, "execution", execution)
    engine, _ = choose(plain, costs(a=-10))
    assert engine.choices == {"int8": "int8, not timed: a run on made-up inputs failed: an even batch only"}


def test_a_network_that_does_not_run_on_made_up_inputs_is_built_in_int8():
    def cost(layers):
        raise RuntimeError("not such an input")

    engine, _ = choose(plain, cost)
    assert engine.layers == {"a", "b", "c"}
    assert engine.choices == {"int8": "int8, not timed: a run on made-up inputs failed: not such an input"}


@pytest.mark.parametrize(
    "options",
    [
        BuildOptions("int8", settings={"int8": "always"}),
        BuildOptions("int8", settings={"disable": "tactics"}),
        BuildOptions("int8", settings={"disable": ["graph", "tactics"]}),
        BuildOptions("fp8"),
    ],
)
def test_nothing_is_compared_where_nobody_wants_that(options):
    builder = Builder()
    engine, asked = choose(plain, costs(a=-10), builder, options)
    assert engine.layers == {"a", "b", "c"}
    assert (asked, engine.choices, len(builder.built)) == ([], {}, 1)


def test_a_network_with_free_dims_besides_the_batch_is_not_timed(monkeypatch):
    monkeypatch.setattr(Engine, "planned_sizes", lambda self: None)
    engine, asked = choose(plain, costs(a=-10))
    assert engine.choices == {"int8": "int8, not timed: dims of its inputs are free"}
    assert not asked


@pytest.mark.parametrize(("op", "timed"), [("DequantizeLinear", False), ("Slice", True)])
def test_a_network_is_timed_up_to_its_data_dependent_dims_if_nothing_behind_is_quantized(monkeypatch, op, timed):
    node = SimpleNamespace(op_type=op, domain="")
    monkeypatch.setattr(Engine, "tail", SimpleNamespace(nodes=(node,)))
    engine, asked = choose(plain, costs(a=-10))
    assert bool(asked) == timed
    assert timed or engine.choices == {"int8": "int8, not timed: dims of quantized tensors depend on values"}


def test_the_time_of_an_engine_is_that_of_all_its_batches():
    """Of milliseconds on a clock that only runs while a network does; what an execution needs is freed."""
    clock, closed = GpuClock(), []
    clock.Device, clock.runtime = lambda number: nullcontext(), SimpleNamespace(deviceSynchronize=lambda: None)

    def execution(sizes):
        segments = [clock.work(sizes["N"] / 8), lambda stream: pytest.fail("the tail ran")]
        return SimpleNamespace(
            plan=SimpleNamespace(inputs=(), tail=SimpleNamespace(nodes=())),
            segments=segments,
            capture=lambda stream: None,
            queue=lambda stream: [queue(stream) for queue in segments],
            close=lambda: closed.append(sizes),
        )

    engine = SimpleNamespace(
        device=SimpleNamespace(number=0, xp=SimpleNamespace(cuda=clock)),
        capturing=threading.Lock(),
        planned_sizes=lambda: [{"N": 1}, {"N": 4}],
        execution=execution,
    )
    assert network_microseconds(engine) == pytest.approx(125 + 500)
    assert closed == [{"N": 1}, {"N": 4}]


@pytest.fixture
def chosen_by(machine, monkeypatch):  # noqa: F811
    """Builds with calibration on a machine without timing of kernels, by what networks cost."""

    def build(make, cost):
        model, _, _ = both(make)
        monkeypatch.setattr(int8_choice, "compares_int8", lambda options: options.precision == "int8")
        monkeypatch.setattr(
            int8_choice,
            "network_microseconds",
            lambda engine: cost({name for name, kind in engine.arithmetic.layers.items() if kind == "int8"}),
        )
        return build_on_stand_in(model, precision="int8", calibration=calibrated(model)), model

    return build


def output(engine, x):
    execution = engine.execution({"N": len(x)})
    execution.input("data")[...] = x
    execution.queue(None)
    (name,) = execution.plan.outputs
    return execution.output(name).copy()


@pytest.mark.parametrize(
    ("gains", "layers", "precision"),
    [
        ({"a": 10}, set("abcde"), "int8"),
        ({"a": -10}, set(), "fp16"),
        ({"a": -10, "e": 3}, {"e"}, "int8"),
    ],
)
def test_the_engine_computes_as_was_chosen_and_its_file_says_so(chosen_by, tmp_path, gains, layers, precision):
    engine, model = chosen_by(parted, costs(**gains))
    computed = engine.arithmetic
    assert {name for name, kind in computed.layers.items() if kind == "int8"} == layers
    assert {kind for name, kind in computed.layers.items() if name not in layers} == {"fp16"}
    assert (engine.precision, computed.precision) == ("int8", precision)
    assert engine.choices["int8"].startswith("int8: INT8 takes" if layers else "float16: INT8 takes")
    x = np.random.default_rng(0).random((2, 8, 8, 8), dtype=np.float32)
    found, (wanted,) = output(engine, x), run(model, x, [model.graph.output[0].name]).values()
    assert np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)
    engine.save(tmp_path / "net.engine")
    loaded = ptp.load_engine(tmp_path / "net.engine")
    assert loaded.arithmetic.layers == computed.layers
    assert loaded.arithmetic.reasons == computed.reasons
    assert np.array_equal(output(loaded, x), found)


def test_another_value_of_the_setting_is_refused(machine):  # noqa: F811
    with pytest.raises(UsageError, match=r"setting int8: expected 'measured' or 'always', found 'never'"):
        build_on_stand_in(both(plain)[0], settings={"int8": "never"}, precision="int8")
