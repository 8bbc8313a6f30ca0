"""Weights rounded over images, from model to model."""

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate, round_weights
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.engines.host import int8
from pytrtplugins.engines.weights import _GramCalibrator
from pytrtplugins.errors import NoDataError
from pytrtplugins.passes import quantize

from .model_parts import parsed
from .networks import conv_net, image
from .networks import run as run_once


def run(model, precision="fp32"):
    engine = ptp.build(model, engine="reference", precision=precision)
    return run_once(engine, {"data": image(seed=7)})["y"]


def noise(given, levels, exact):
    batches = [{"data": image(batch=4)}]
    table = calibrate(given, MinMaxCalibrator(batches), engine="reference", progress=False)
    return np.square(run(quantize(given, table, weight_levels=levels), "int8") - exact).sum()


def test_the_model_given_does_not_change():
    model = conv_net()
    before = model.SerializeToString(deterministic=True)
    rounded = round_weights(model, [{"data": image()}], levels=8, engine="reference", progress=False)
    assert model.SerializeToString(deterministic=True) == before
    assert network_digest(rounded) != network_digest(ptp.passes.prepare(model))


def test_int8_with_few_levels_loses_less():
    model = ptp.passes.prepare(conv_net())
    rounded = round_weights(model, [{"data": image(batch=8, seed=3)}], levels=8, engine="reference", progress=False)
    exact = run(model)
    assert noise(rounded, 8, exact) < noise(model, 8, exact)


@pytest.mark.parametrize("levels", [8, 100])
def test_weights_are_whole_codes_of_the_levels_that_were_asked_for(levels):
    """A filter's scale is its largest weight over the levels; none is more than a few codes from where it was."""
    model = ptp.passes.prepare(conv_net())
    rounded = round_weights(model, [{"data": image(batch=4)}], levels=levels, engine="reference", progress=False)
    before, after = (
        next(numpy_helper.to_array(tensor) for tensor in each.graph.initializer if tensor.name == "w1")
        for each in (model, rounded)
    )
    scales = np.abs(before).max(axis=(1, 2, 3), keepdims=True).astype(np.float64) / levels
    codes = after / scales
    np.testing.assert_allclose(codes, np.rint(codes), atol=1e-4)
    assert np.abs(np.rint(codes)).max(axis=(1, 2, 3)).tolist() == [levels] * len(codes)
    assert 0.5 < np.abs(codes - before / scales).max() < 4  # some are not at the nearest code


@pytest.mark.parametrize(("features", "levels"), [({"avx2"}, 64), ({"vnni"}, 127)])
def test_the_levels_are_those_of_int8_on_this_cpu(monkeypatch, features, levels):
    monkeypatch.setattr(int8, "cpu_features", lambda: frozenset(features))
    model, batches = conv_net(), [{"data": image(batch=4)}]
    default, asked = (
        round_weights(model, batches, levels=each, engine="reference", progress=False) for each in (None, levels)
    )
    assert network_digest(default) == network_digest(asked)


def test_it_needs_images():
    with pytest.raises(NoDataError):
        round_weights(conv_net(), [], engine="reference", progress=False)


@pytest.mark.parametrize("attributes", ["", "strides = [2, 1],", "dilations = [2, 1],", "group = 3,"])
def test_gram_matrices_are_of_what_a_convolution_multiplies(attributes):
    groups, random = 3 if "group" in attributes else 1, np.random.default_rng(0)
    weights = random.normal(size=(3, 3 // groups, 3, 2)).astype(np.float32)
    conv = f"Conv <{attributes} pads = [1, 0, 2, 1]> (x, w)"
    model = parsed(f"(float[1,3,9,8] x) => (float[] y) {{ y = {conv} }}", 18, 10, w=weights)
    batches = [random.normal(size=(count, 3, 9, 8)).astype(np.float32) for count in (1, 2)]
    with ptp.build(model, engine="reference").create_context() as context:
        y = np.concatenate([context.run({"x": image[None]})["y"] for batch in batches for image in batch])
    calibrator = _GramCalibrator([], list(ptp.passes.to_ir(model).graph))
    for batch in batches:  # sums over all images of all batches
        calibrator.observe("x", batch)
    rows = weights.reshape(groups, -1, weights[0].size)
    expected = np.einsum("gfk,gkl,gfl->gf", rows, calibrator.grams["y"], rows).ravel()
    np.testing.assert_allclose(np.square(y).sum((0, 2, 3)), expected, rtol=1e-4)
