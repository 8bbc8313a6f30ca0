"""Calibrators that users derive: batches, scales and caches of their own."""

from __future__ import annotations

import numpy as np
import pytest

from pytrtplugins.calibration import (
    EntropyCalibrator,
    MinMaxCalibrator,
)
from pytrtplugins.errors import UsageError
from tests.calibration.test_calibrator import TENSORS, batches, calibrated


def test_tables_can_be_kept_elsewhere():
    class InDatabase(EntropyCalibrator):
        rows: dict = {}  # noqa: RUF012

        def read_calibration_cache(self):
            return self.rows.get("yolo")

        def write_calibration_cache(self, cache):
            self.rows["yolo"] = cache

    first = InDatabase(batches())
    assert first.cached_table(TENSORS) is None
    table = calibrated(first)
    first.store_table(table)
    assert InDatabase.rows["yolo"].startswith(b"TRT-")
    assert InDatabase().cached_table(TENSORS) == table


class TensorRTStyle(MinMaxCalibrator):
    """As written for TensorRT, but with host arrays."""

    def __init__(self, give, **options):
        super().__init__(**options)
        self.left = 3
        self.give = give
        self.names = []

    def get_batch_size(self):
        return 2

    def get_batch(self, names):
        self.names.append(names)
        if self.left == 0:
            return None
        self.left -= 1
        return self.give(np.full((2, 3, 4, 4), float(self.left), np.float32))


@pytest.mark.parametrize("give", [lambda x: {"data": x}, lambda x: [x], lambda x: (x,), lambda x: x])
def test_code_written_for_tensorrt_keeps_its_get_batch(give):
    calibrator = TensorRTStyle(give)
    calibrator.bind({"data": (2, 3, 4, 4)})
    assert [float(batch["data"].max()) for batch in calibrator.get_batches()] == [2, 1, 0]
    assert calibrator.names[0] == ["data"]


def test_an_empty_list_ends_the_data_too():
    class Ends(MinMaxCalibrator):
        calls = 0

        def get_batch(self, names):
            self.calls += 1
            return [np.ones((1, 1), np.float32)] if self.calls == 1 else []

    calibrator = Ends()
    calibrator.bind({"data": (1, 1)})
    assert len(list(calibrator.get_batches())) == 1


@pytest.mark.parametrize("give", [lambda x: [140_000_000], lambda x: {"data": 140_000_000}, lambda x: [x, x]])
def test_device_addresses_and_wrong_counts_are_refused(give):
    calibrator = TensorRTStyle(give)
    calibrator.bind({"data": (2, 3, 4, 4)})
    with pytest.raises(UsageError):
        list(calibrator.get_batches())


def test_get_batches_can_be_overridden():
    class Mine(EntropyCalibrator):
        def get_batches(self):
            yield from batches(1)

    assert list(calibrated(Mine())) == list(TENSORS)
    assert Mine().get_algorithm() == "EntropyCalibration2"


def test_an_exception_in_get_batch_reaches_the_caller():
    class Broken(EntropyCalibrator):
        def get_batch(self, names):
            raise KeyError("photos")

    with pytest.raises(KeyError):
        list(Broken().get_batches())
