"""The step in front of calibration, from model to model."""

import numpy as np
import pytest
from onnx import numpy_helper

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines import calibrate, equalize
from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.errors import CalibrationTableError, NoDataError

from .networks import conv_net, image, run


@pytest.fixture
def uneven():
    """A network whose channels between the convolutions have very different ranges."""
    model = conv_net()
    for constant in model.graph.initializer:
        if constant.name in ("w1", "b1"):
            array = numpy_helper.to_array(constant)
            ranges = 3.0 ** np.arange(-4, 4).reshape(-1, *[1] * (array.ndim - 1))
            constant.CopyFrom(numpy_helper.from_array((array * ranges).astype(np.float32), constant.name))
    return model


def test_the_model_given_does_not_change(uneven):
    before = uneven.SerializeToString(deterministic=True)
    equalize(uneven, [{"data": image()}], engine="reference", progress=False)
    assert uneven.SerializeToString(deterministic=True) == before


def test_the_network_computes_the_same_with_other_weights(uneven):
    equalized = equalize(uneven, [{"data": image(batch=4)}], engine="reference", progress=False)
    assert network_digest(equalized) != network_digest(ptp.passes.prepare(uneven))
    expected, actual = (
        run(ptp.build(model, engine="reference"), {"data": image(seed=7)})["y"] for model in (uneven, equalized)
    )
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_its_calibration_cache_is_not_that_of_the_network_before(uneven, tmp_path):
    batches, cache = [{"data": image(batch=4)}], tmp_path / "net.cache"
    equalized = equalize(uneven, batches, engine="reference", progress=False)
    calibrator = MinMaxCalibrator(batches, cache=cache)
    table = calibrate(uneven, calibrator, engine="reference", progress=False)
    calibrator.store_table(table, network=network_digest(ptp.passes.prepare(uneven)))
    with pytest.raises(CalibrationTableError, match="another network"):
        ptp.build(equalized, engine="reference", precision="int8", calibration=cache)


def test_it_needs_images(uneven):
    with pytest.raises(NoDataError):
        equalize(uneven, [], engine="reference", progress=False)
