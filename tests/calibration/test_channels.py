"""The largest magnitude of each channel."""

import numpy as np
import pytest

from pytrtplugins.calibration import ChannelMaximaCalibrator
from pytrtplugins.errors import CalibrationError


def test_channels_keep_their_largest_magnitude_over_all_batches_and_images():
    calibrator = ChannelMaximaCalibrator()
    first = np.float32([[[[1, -4], [2, 0]], [[0.5, 0.25], [0, 0]]], [[[0, 0], [0, 3]], [[-6, 1], [1, 1]]]])
    second = np.float32([[[[-5, 1], [1, 1]], [[2, 2], [2, 2]]]])
    calibrator.observe("x", first)
    np.testing.assert_array_equal(calibrator.channels["x"], [4, 6])
    calibrator.observe("x", second)
    np.testing.assert_array_equal(calibrator.channels["x"], [5, 6])
    assert calibrator.channels["x"].dtype == np.float32
    assert calibrator.compute_table().amax("x") == 6


def test_each_tensor_of_two_and_more_axes_has_its_own():
    calibrator = ChannelMaximaCalibrator()
    calibrator.observe("flat", np.float32([[1, -2, 3], [-4, 0, 0]]))
    calibrator.observe("volume", np.float32([1, -7]).reshape(1, 2, 1, 1, 1))
    calibrator.observe("line", np.float32([1, 2]))
    found = {name: values.tolist() for name, values in calibrator.channels.items()}
    assert found == {"flat": [4, 2, 3], "volume": [1, 7]}
    calibrator.reset()
    assert calibrator.channels == {}


def test_what_is_not_finite_is_refused_and_changes_nothing():
    calibrator = ChannelMaximaCalibrator()
    calibrator.observe("x", np.float32([[1, 2]]))
    with pytest.raises(CalibrationError, match="'x'"):
        calibrator.observe("x", np.float32([[9, np.inf]]))
    np.testing.assert_array_equal(calibrator.channels["x"], [1, 2])
