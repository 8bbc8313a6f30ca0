"""Weights rounded over photos, from model to model."""

from __future__ import annotations

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate, round_weights
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.errors import NoDataError
from pytrtplugins.passes import quantize

from .networks import conv_net, photo


def run(model, precision="fp32"):
    with ptp.build(model, engine="reference", precision=precision).create_context() as context:
        return context.run({"data": photo(seed=7)})["y"]


def noise(given, levels, exact):
    batches = [{"data": photo(batch=4)}]
    table = calibrate(given, MinMaxCalibrator(batches), engine="reference", progress=False)
    return np.square(run(quantize(given, table, weight_levels=levels), "int8") - exact).sum()


def test_the_model_given_does_not_change():
    model = conv_net()
    before = model.SerializeToString(deterministic=True)
    rounded = round_weights(model, [{"data": photo()}], levels=8, engine="reference", progress=False)
    assert model.SerializeToString(deterministic=True) == before
    assert network_digest(rounded) != network_digest(ptp.passes.prepare(model))


def test_int8_with_few_levels_loses_less():
    model = ptp.passes.prepare(conv_net())
    rounded = round_weights(model, [{"data": photo(batch=8, seed=3)}], levels=8, engine="reference", progress=False)
    exact = run(model)
    assert noise(rounded, 8, exact) < noise(model, 8, exact)


def test_it_needs_photos():
    with pytest.raises(NoDataError):
        round_weights(conv_net(), [], engine="reference", progress=False)
