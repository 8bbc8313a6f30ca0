"""Whole networks, from ONNX to a run, with TensorRT played on a CPU: plugins live in their adapters all the way."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.tensorrt.creators import unregister
from pytrtplugins.errors import BuildError, DimsError, PluginError
from pytrtplugins.passes import prepare, quantize
from pytrtplugins.plugin.policy import FORMS
from tests.engines.networks import Affine, Complete, Witness, conv_net, image
from tests.engines.networks import run as run_once
from tests.user_plugins import Visited

from .builds import build, table_of
from .user_plugins import Offsets


class UsersOwnError(Exception):
    """What only the user's code raises."""


@ptp.plugin(namespace="test.tensorrt")
class Turn(ptp.Plugin):
    """Moves values only, so int8 passes through."""

    int8: ClassVar[str] = "pass_through"
    axes: tuple[int, ...] = (0, 1, 3, 2)

    def output_dims(self, x):
        return tuple(x[axis] for axis in self.axes)

    def compute(self, x):
        return x.transpose(self.axes) + 0


MIDDLE = Affine(3.0), Turn(), Turn(axes=(0, 2, 1, 3))


@ptp.plugin(namespace="test.tensorrt")
class Fragile(Visited):
    breaks: ClassVar[str] = ""
    answers: ClassVar[dict[str, object]] = {}
    workspace_bytes: ClassVar[int] = 16

    def visit(self, method, value):
        if self.breaks == method:
            raise UsersOwnError(f"from {method}")
        return self.answers.get(method, value)

    def compute(self, x):
        return x + x


@pytest.fixture
def fragile(monkeypatch):
    """Set where `Fragile` breaks, or what it answers, at a given time."""

    def set_(breaks="", **answers):
        monkeypatch.setattr(Fragile, "breaks", breaks)
        monkeypatch.setattr(Fragile, "answers", answers)

    return set_


def run(engine, x):
    return run_once(engine, {"data": x})["y"]


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 2e-2)])
def test_a_network_computes_what_the_reference_computes(player, precision, tolerance):
    model = conv_net(*MIDDLE, batch="N")
    engine = build(model, precision=precision)
    with engine.create_context() as context, ptp.build(model, engine="reference").create_context() as reference:
        for n in (1, 3, 3):
            x = image(n)
            expected, found = reference.run({"data": x})["y"], context.run({"data": x})["y"]
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
            assert found.dtype == np.float32
    kind = {"fp32": "float32", "fp16": "float16"}[precision]
    assert player.enqueued[-3:] == [("Affine", kind), ("Turn", kind), ("Turn", kind)]


def test_weights_reach_plugins_through_the_parser_and_the_plan(player):
    model = conv_net(Offsets(by=np.linspace(-1, 1, 8)), batch="N")
    expected = run(ptp.build(model, engine="reference"), image(2))
    np.testing.assert_allclose(run(build(model), image(2)), expected, rtol=1e-5, atol=1e-5)


def test_an_int8_network_runs_moving_plugins_on_int8_and_the_others_in_float(player):
    model = prepare(conv_net(*MIDDLE))
    model = quantize(model, table_of(model), float_last=False)
    expected = run(ptp.build(model, engine="reference", precision="int8"), image())
    np.testing.assert_array_equal(run(build(model, precision="int8"), image()), expected)
    assert player.enqueued == [("Affine", "float32"), ("Turn", "int8"), ("Turn", "int8")]


def test_a_saved_engine_computes_the_same_from_the_fields_that_it_holds(player, tmp_path):
    model = conv_net(Affine(7.0), batch="N")
    built = build(model)
    built.save(tmp_path / "x.engine")
    unregister(Affine)
    loaded = ptp.load_engine(tmp_path / "x.engine")
    assert loaded.plan == built.plan
    np.testing.assert_array_equal(run(loaded, image(2)), run(built, image(2)))


@pytest.mark.parametrize("form", FORMS)
def test_the_form_that_is_asked_for_runs_in_the_built_engine_and_in_the_loaded_one(player, tmp_path, form):
    built = build(conv_net(Complete()), plugins={"test.engines::Complete": form})
    built.save(tmp_path / "x.engine")
    expected = run(ptp.build(conv_net(Affine(3.0)), engine="reference"), image())
    for engine in (built, ptp.load_engine(tmp_path / "x.engine")):
        Witness.calls.clear()
        np.testing.assert_allclose(run(engine, image()), expected, rtol=1e-5, atol=1e-5)
        assert set(Witness.calls) == ({form} if form != "decomposition" else set())
        assert engine.choices["plugin test.engines::Complete"] == form


DURING_BUILDS = ["validate", "output_dims", "output_dtypes", "supports_format", "workspace_size"]
DURING_RUNS = ["configure", "initialize", "enqueue"]


@pytest.mark.parametrize("method", DURING_BUILDS + DURING_RUNS)
def test_what_a_plugin_raises_in_tensorrt_is_raised_by_build_as_it_was_raised(player, fragile, method):
    player.before_parse = lambda: fragile(method)
    with pytest.raises(UsersOwnError, match=f"from {method}") as caught:
        build(conv_net(Fragile()))
    assert any(entry.name == "visit" for entry in caught.traceback)


@pytest.mark.parametrize("method", DURING_RUNS)
def test_what_a_plugin_raises_in_a_run_is_raised_by_run_and_the_next_run_works(player, fragile, method):
    engine = build(conv_net(Fragile(), batch="N"))
    with engine.create_context() as context:
        fragile(method)
        with pytest.raises(UsersOwnError, match=f"from {method}"):
            context.run({"data": image()})
        fragile()
        np.testing.assert_array_equal(context.run({"data": image()})["y"], run(engine, image()))


@pytest.mark.parametrize(
    ("answers", "kind", "words"),
    [
        ({"output_dims": (1, -4)}, DimsError, "ints of at least 0"),
        ({"output_dims": ((1, 8), (1, 8))}, DimsError, "gives 2 outputs; expected 1"),
        ({"output_dtypes": "float64"}, PluginError, "gives float64, which is not an element type of plugins"),
        ({"workspace_size": -1}, PluginError, "must give a number of bytes, found -1"),
        ({"supports_format": False}, BuildError, "cannot build the model"),
    ],
)
def test_a_bad_plugin_is_named_by_build(player, fragile, answers, kind, words):
    player.before_parse = lambda: fragile(**answers)
    with pytest.raises(kind, match=words):
        build(conv_net(Fragile()))
