from __future__ import annotations

import dataclasses
import logging
import re

import numpy as np
import pytest

from pytrtplugins.calibration import EntropyCalibrator, Histogram, MinMaxCalibrator, PercentileCalibrator
from pytrtplugins.calibration.clipping import MAX_LOST_DB, clipping_of, expected_sqnr
from pytrtplugins.precision.scales import make_tables
from tests.engines.networks import conv_net, image


def measured_sqnr(values: np.ndarray, amax: float) -> float:
    """What int8 makes of the values themselves: round, saturate, compare."""
    step = amax / 127
    rounded = np.clip(np.rint(values / step), -127, 127) * step
    return 10 * np.log10((values**2).sum() / ((values - rounded) ** 2).sum())


def values_of(kind: str, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    values = {
        "normal": random.normal(size=100_000),
        "relu": np.maximum(random.normal(size=100_000), 0),
        "heavy": random.standard_t(3, 100_000),
        "spike": np.concatenate([random.normal(0, 0.02, 90_000), random.normal(4, 0.5, 10_000)]),
        "tiny": np.concatenate([random.normal(0, 1e-4, 99_000), random.uniform(0, 8, 1_000)]),
    }
    return values[kind].astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "relu", "heavy", "spike", "tiny"])
@pytest.mark.parametrize("part", [1, 0.6, 0.2, 0.05])
def test_the_expected_sqnr_is_that_of_rounding_the_values(kind, part):
    values = values_of(kind)
    histogram = Histogram()
    histogram.add(values)
    amax = part * histogram.maximum
    assert expected_sqnr(histogram, amax) == pytest.approx(measured_sqnr(values, amax), abs=0.5)


def test_nothing_lost_is_an_infinite_ratio():
    histogram = Histogram()
    histogram.add(np.zeros(5))
    assert expected_sqnr(histogram, 1.0) == np.inf


def test_a_threshold_is_told_of_only_where_it_costs_more_than_it_gains():
    histogram = Histogram()
    values = values_of("normal")
    histogram.add(values)
    good, bad = 0.9 * histogram.maximum, 0.3 * histogram.maximum
    assert clipping_of("x", histogram, histogram.maximum) is None
    assert clipping_of("x", histogram, good) is None
    found = clipping_of("x", histogram, bad)
    assert found is not None
    assert found.lost > MAX_LOST_DB
    assert found.share == pytest.approx((np.abs(values) > bad).mean(), rel=0.02)
    assert clipping_of("x", Histogram(), 1.0) is None


def test_the_expected_sqnr_of_evenly_spread_values_is_exact():
    values = (np.arange(2048 * 64) + 0.5) * (4 / (2048 * 64))
    values = values[values > 4 / 2048]  # those of bin 0 are taken for zeros
    histogram = Histogram()
    histogram.add(values.astype(np.float32))
    for amax in (0.5, 3.0, 4.0):
        assert expected_sqnr(histogram, amax) == pytest.approx(measured_sqnr(values, amax), abs=2e-3)


def test_a_clipping_has_the_share_above_the_threshold_and_says_its_figures():
    histogram = Histogram()
    histogram.add(np.float32([0.25] * 60 + [0.75] * 30 + [3.0] * 10))
    found = clipping_of("x", histogram, 0.75 - 1 / 512)  # bins are 1/512 wide: 0.75 lies in the one that begins here
    assert (found.tensor, found.maximum, found.share) == ("x", 3.0, 0.4)
    assert found.lost == found.unclipped_sqnr - found.sqnr > 1
    half = clipping_of("x", histogram, 0.5)
    assert half is not None
    assert half.share == 0.4
    assert clipping_of("x", histogram, 0.75 + 1 / 512).share == 0.1
    text = str(dataclasses.replace(half, share=0.55, sqnr=12.345, unclipped_sqnr=40.0))
    assert text == "'x' saturates at 0.5 of 3 (55 % of its values): 12.3 dB instead of 40.0"
    with pytest.raises(dataclasses.FrozenInstanceError):
        half.share = 0


def test_a_threshold_of_zero_or_above_all_values_clips_nothing():
    histogram = Histogram()
    histogram.add(values_of("tiny"))
    assert clipping_of("x", histogram, 0.0) is None
    assert clipping_of("x", histogram, histogram.maximum * 2) is None


def observed(calibrator, tensors):
    for name, values in tensors.items():
        calibrator.observe(name, values)
    return calibrator


def test_a_calibrator_warns_of_what_it_clips_too_much_worst_first(caplog):
    tensors = {"least": values_of("spike"), "more": values_of("normal"), "most": values_of("tiny")}
    with caplog.at_level(logging.WARNING):
        found = observed(PercentileCalibrator(percentile=95), tensors)
        table = found.compute_table()
    assert [each.tensor for each in found.clippings()] == ["most", "more", "least"]
    (record,) = caplog.records
    text = record.getMessage()
    assert "3 of 3 tensors" in text
    assert text.index("'most'") < text.index("'more'") < text.index("'least'")
    assert "Do: MinMaxCalibrator" in text
    assert table == super(PercentileCalibrator, found).compute_table()


def test_entropy_collapses_behind_a_spike_and_says_so(caplog):
    """Dark text on a plain page: nearly all values are close to 0, and the few large ones are the letters."""
    page = np.concatenate([np.full(97_000, 0.05), np.random.default_rng(0).uniform(0, 9, 3_000)])
    calibrator = observed(EntropyCalibrator(), {"letters": page})
    with caplog.at_level(logging.WARNING):
        amax = calibrator.compute_table().amax("letters")
    assert amax < 0.5 * page.max()
    assert "'letters' saturates at" in caplog.text


@pytest.mark.parametrize("calibrator", [MinMaxCalibrator(), PercentileCalibrator(percentile=100), EntropyCalibrator()])
def test_what_gains_by_its_threshold_is_not_warned_of(calibrator, caplog):
    with caplog.at_level(logging.WARNING):
        observed(calibrator, {"x": np.random.default_rng(0).uniform(-1, 1, 50_000)}).compute_table()
    assert caplog.text == ""


@pytest.mark.parametrize(("count", "more"), [(5, []), (8, ["and 3 more"])])
def test_a_warning_names_no_more_than_five(caplog, count, more):
    tensors = {f"t{index}": values_of("spike", index) for index in range(count)}
    with caplog.at_level(logging.WARNING):
        observed(PercentileCalibrator(percentile=90), tensors).compute_table()
    assert caplog.text.count("saturates at") == 5
    assert re.findall(r"and \d+ more|(?<= )more$", caplog.text, re.MULTILINE) == more


def test_the_search_tries_every_algorithm_without_warning(caplog):
    with caplog.at_level(logging.WARNING):
        make_tables(conv_net(), [{"data": image()}])
    assert "clip more" not in caplog.text
