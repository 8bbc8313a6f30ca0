"""bf16 on engine ``cpu``, where the CPU has it."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.engines.openvino import engine as openvino
from pytrtplugins.errors import UsageError
from pytrtplugins.passes import LayerPrecision, Precisions, layer_names, prepare
from pytrtplugins.utils.cpu_features import describe_cpu
from tests.engines.networks import conv_net, image
from tests.measures import relative


def built(precision, **settings):
    return ptp.build(conv_net(), engine="cpu", precision=precision, settings=settings, progress=False)


def test_always_means_that_nothing_is_timed_and_values_are_rounded(tmp_path):
    try:
        engine = built("bf16", bf16="always")
    except ptp.errors.UnavailableError as error:
        pytest.skip(str(error))
    engine.save(tmp_path / "net.engine")
    exact = built("fp32")
    x = {exact.inputs[0].name: np.random.default_rng(0).standard_normal(exact.inputs[0].dims, np.float32)}
    (wanted,) = exact.create_context().run(x).values()
    for each in (engine, ptp.load_engine(tmp_path / "net.engine")):
        assert each.choices == {}
        (found,) = each.create_context().run(x).values()
        assert 1e-4 < relative(found, wanted) < 2e-2


def with_bf16():
    if "bf16" not in describe_cpu():
        pytest.skip(f"this CPU has no bf16: {describe_cpu()}")


@pytest.mark.parametrize("settings", [{}, {"bf16": "always"}])
def test_a_precision_file_is_followed_layer_by_layer_without_timing(settings, monkeypatch):
    with_bf16()
    monkeypatch.setattr(openvino, "run_seconds", lambda runs: pytest.fail("timed"))
    model = prepare(conv_net())
    names = layer_names(model)
    pinned = {name: LayerPrecision("fp32", "pin", "why") for name in names}
    x = {"data": image(seed=5)}
    wanted = built("fp32").create_context().run(x)["y"]
    for kept in (["conv1", "leaky1"], ["conv2"]):
        precisions = Precisions("bf16", network_digest(model), names, {name: pinned[name] for name in kept})
        engine = built(precisions, **settings)
        assert engine.arithmetic.layers == {name: "fp32" if name in kept else "bf16" for name in ("conv1", "conv2")}
        assert 1e-4 < relative(engine.create_context().run(x)["y"], wanted) < 2e-2


def test_float32_that_is_faster_is_chosen_and_named(monkeypatch, caplog):
    with_bf16()
    for seconds, precision in (({"float32": 0.94, "bf16": 1.0}, "fp32"), ({"float32": 1.0, "bf16": 0.94}, "bf16")):
        monkeypatch.setattr(openvino, "run_seconds", lambda runs, seconds=seconds: seconds)
        engine = built("bf16")
        assert (engine.arithmetic.precision, set(engine.arithmetic.layers.values())) == (precision, {precision})
    assert engine.choices == {"bf16": "bf16: bf16 takes 940 ms, float32 1e+03 ms"}
    assert 'Do: settings={"bf16": "always"}, or pytrt build --setting bf16=always' in caplog.text


def test_another_word_is_refused():
    with pytest.raises(UsageError, match="setting bf16: expected 'measured' or 'always', found 'never'"):
        built("fp32", bf16="never")
