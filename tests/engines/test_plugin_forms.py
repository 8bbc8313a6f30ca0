"""Every engine runs a plugin in the form that the policy, or the user, chooses."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines import calibrate
from pytrtplugins.engines.registry import engine_class
from pytrtplugins.errors import EngineFileError, UsageError
from pytrtplugins.plugin.policy import FORMS, chosen_form
from tests.engines.networks import Affine, Complete, Launching, NeedsDims, Witness, conv_net, image
from tests.engines.networks import run as run_once

COMPILED = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")
CLASSES = [Complete, pytest.param(Launching, marks=COMPILED)]


def name_of(cls):
    return f"test.engines::{cls.__name__}"


def run(engine, x):
    return run_once(engine, {"data": x})["y"]


def check_runs(engine, form, x):
    """The engine computes, and ran the plugin in this form alone; a decomposition runs without the plugin."""
    found = run(engine, x)
    wanted = run(ptp.build(conv_net(Affine(3.0)), engine="reference"), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert set(Witness.calls) == {form}


@pytest.fixture(autouse=True)
def calls():
    Witness.calls.clear()


@pytest.mark.parametrize("cls", CLASSES)
def test_an_engine_runs_the_form_of_the_policy(engine_name, cls):
    engine = ptp.build(conv_net(cls()), engine=engine_name)
    assert not [about for about in engine.choices if about.startswith("plugin ")]
    check_runs(engine, chosen_form(cls, engine_class(engine_name).plugin_forms), image())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cls", CLASSES)
def test_an_engine_runs_the_form_that_the_user_asks_for(engine_name, cls, form, tmp_path):
    if engine_name == "reference" and form == "decomposition":
        with pytest.raises(UsageError, match="is never run by engine 'reference'"):
            ptp.build(conv_net(cls()), engine=engine_name, plugins={name_of(cls): form})
        return
    engine = ptp.build(conv_net(cls()), engine=engine_name, plugins={name_of(cls): form})
    assert engine.choices[f"plugin {name_of(cls)}"] == form
    check_runs(engine, form, image())
    engine.save(tmp_path / "x.engine")
    Witness.calls.clear()
    loaded = ptp.load_engine(tmp_path / "x.engine")
    assert loaded.options.plugins == {name_of(cls): form}
    found = run(loaded, image())
    assert set(Witness.calls) <= {form}  # engine cuda and TensorRT save what they wrote of the decomposition
    np.testing.assert_array_equal(found, run(engine, image()))


def test_where_free_dims_are_needed_the_next_form_runs_and_the_engine_says_so(engine_name):
    if engine_name == "reference":
        pytest.skip("it runs no decomposition")
    asked = {name_of(NeedsDims): "decomposition"}
    engine = ptp.build(conv_net(NeedsDims(), batch="N"), engine=engine_name, plugins=asked)
    assert engine.choices[f"plugin {name_of(NeedsDims)}"] == "enqueue, since its decomposition needs dims that are free"
    Witness.calls.clear()
    check_runs(engine, "enqueue", image())


def test_a_form_that_cannot_be_is_refused_before_anything_is_built(engine_name):
    for asked, words in (
        (
            {"test.engines::Affine": "decomposition"},
            r"cannot run as 'decomposition'[\s\S]*Do: plugins={'test.engines::Affine': 'compute'}$",
        ),
        ({"test.engines::Afine": "compute"}, r"no plugin 'test\.engines::Afine'; it has test\.engines::Affine"),
        ({"test.engines::Affine": "fast"}, "form 'fast' is unknown"),
    ):
        with pytest.raises(UsageError, match=words):
            ptp.build(conv_net(Affine()), engine=engine_name, plugins=asked)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cls", CLASSES)
def test_calibration_runs_the_form_that_int8_will_run(cls, form):
    asked, seen = {name_of(cls): form}, []

    class Watching(MinMaxCalibrator):
        def compute_table(self):
            seen.append(set(Witness.calls))
            return super().compute_table()

    options = {"calibration": Watching([{"data": image()}]), "settings": {"int8": "always"}, "plugins": asked}
    ptp.build(conv_net(cls()), engine="cpu", precision="int8", progress=False, **options)
    assert seen == [{form}]
    Witness.calls.clear()
    for engine in ("cpu", "onnxruntime"):
        calibrate(conv_net(cls()), Watching([{"data": image()}]), engine=engine, plugins=asked, progress=False)
    assert seen[1:] == 2 * seen[:1]


def test_calibration_refuses_forms_that_are_not_there():
    batches = MinMaxCalibrator([{"data": image()}])
    asked = {name_of(Complete): "decomposition"}
    with pytest.raises(UsageError, match="is never run by engine 'reference'"):
        calibrate(conv_net(Complete()), batches, engine="reference", plugins=asked, progress=False)
    with pytest.raises(UsageError, match="no plugin 'a::B'"):
        calibrate(conv_net(Complete()), batches, plugins={"a::B": "compute"}, progress=False)


def test_a_forged_form_in_an_engine_file_is_refused(tmp_path, monkeypatch):
    engine = ptp.build(conv_net(Affine()), engine="reference")
    monkeypatch.setitem(engine.options.plugins, "test.engines::Affine", "decomposition")
    engine.save(tmp_path / "x.engine")
    with pytest.raises(EngineFileError, match="cannot run as 'decomposition'"):
        ptp.load_engine(tmp_path / "x.engine")
