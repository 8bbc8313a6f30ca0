from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytrtplugins.calibration import CalibrationTable, EntropyCalibrator, Histogram
from pytrtplugins.calibration.entropy import entropy_threshold, kl_divergences
from tests.oracles import entropy as oracle


def distribution(kind: str, size: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    normal = random.normal(size=size)
    return {
        "normal": normal,
        "relu": np.maximum(normal, 0),
        "leaky": np.where(normal > 0, normal, 0.1 * normal),
        "laplace": random.laplace(size=size),
        "heavy": random.standard_t(2, size),
        "uniform": random.uniform(-1, 1, size),
        "sigmoid": 1 / (1 + np.exp(-4 * normal)),
        "sparse": np.where(random.uniform(size=size) < 0.01, normal, 0),
    }[kind]


KINDS = ("normal", "relu", "leaky", "laplace", "heavy", "uniform", "sigmoid", "sparse")
SEVERAL = {"laplace", "heavy", "sigmoid", "leaky"}  # like others: `make test-slow` has them


def counts_of(values: np.ndarray) -> tuple[np.ndarray, float]:
    histogram = Histogram()
    histogram.add(values)
    return histogram.counts, histogram.width


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SEVERAL else ()) for kind in KINDS]
)
def test_thresholds_equal_the_published_algorithm_in_plain_loops(kind):
    values = distribution(kind, 20_000, 1)
    counts, width = counts_of(
        values * (4.2 / np.abs(values).max())
    )  # just above a power of two: fewer bins to loop over
    assert entropy_threshold(counts, width) == oracle.threshold(counts.tolist(), width)


@settings(max_examples=15)
@given(
    used=st.integers(1, 260),
    seed=st.integers(0, 2**32 - 1),
    largest=st.sampled_from([1, 2, 50, 10**6]),
    empty=st.floats(0, 1),
)
def test_thresholds_equal_the_oracle_for_any_counts(used, seed, largest, empty):
    random = np.random.default_rng(seed)
    counts = np.zeros(2048, np.int64)
    counts[:used] = random.integers(0, largest + 1, used) * (random.uniform(size=used) >= empty)
    assert entropy_threshold(counts, 0.25) == oracle.threshold(counts.tolist(), 0.25)


def test_divergences_equal_the_oracles():
    counts, _ = counts_of(distribution("laplace", 5_000, 2))
    candidates, divergences = kl_divergences(counts)
    bins = counts.astype(float).tolist()
    bins[0] = bins[1]
    for k in range(0, candidates.size, 97):
        expected = oracle.kl(*oracle.distributions(bins, int(candidates[k])))
        assert divergences[k] == pytest.approx(expected, abs=1e-11)


def test_a_long_tail_is_clipped_and_a_uniform_tensor_is_not():
    tail = distribution("laplace", 100_000, 3)
    clipped, width = counts_of(tail)
    assert entropy_threshold(clipped, width) < 0.8 * np.abs(tail).max()
    whole, width = counts_of(distribution("uniform", 100_000, 3))
    assert entropy_threshold(whole, width) == pytest.approx(1, abs=2 * width)


def test_a_softmax_output_gets_the_scale_that_tensorrt_writes_for_it():
    # "prob: 3c010a14" stands in the calibration caches of TensorRT's own MNIST sample: (2048 + 0.5)/2048/127.
    counts = np.zeros(2048, np.int64)
    counts[[0, 2047]] = 9_000, 1_000
    threshold = entropy_threshold(counts, 1 / 2048)
    assert CalibrationTable({"prob": threshold / 127}).to_bytes().endswith(b"prob: 3c010a14\n")


def test_the_calibrator_never_goes_above_the_largest_value():
    calibrator = EntropyCalibrator()
    calibrator.observe("x", np.float32([1.0] * 100 + [0.0] * 900))
    assert calibrator.compute_table().amax("x") == 1.0


def test_a_tensor_of_zeros_gets_the_scale_zero():
    calibrator = EntropyCalibrator()
    calibrator.observe("dead", np.zeros(10))
    assert calibrator.compute_table()["dead"] == 0
    assert entropy_threshold(np.zeros(2048, np.int64), 1.0) == 0
    candidates, divergences = kl_divergences(np.zeros(2048, np.int64))
    assert (candidates.shape, divergences.shape) == ((0,), (0,))


def test_candidates_are_all_from_128_bins_to_the_last_that_holds_something():
    counts = np.zeros(2048, np.int64)
    counts[[1, 130]] = 5, 1
    candidates, divergences = kl_divergences(counts)
    assert candidates.tolist() == [128, 129, 130, 131]
    assert np.isinf(divergences).tolist() == [True, True, True, False]


def test_the_table_does_not_depend_on_how_the_data_is_cut_into_batches():
    values = distribution("heavy", 10_000, 5).astype(np.float32)
    whole, parts = EntropyCalibrator(), EntropyCalibrator()
    whole.observe("x", values)
    for part in np.array_split(values[::-1], 7):
        parts.observe("x", part)
    assert whole.compute_table() == parts.compute_table()


def test_the_networks_input_is_not_cut_behind_the_grey_of_letterboxed_images():
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 60, 60)).astype(np.float32) / 255
    image[:, :, :20] = 0.5
    told, untold = EntropyCalibrator([{"data": image}]), EntropyCalibrator()
    for batch in told.get_batches():
        told.observe("data", batch["data"])
    untold.observe("data", image)
    assert told.compute_table().amax("data") == 1
    assert untold.compute_table().amax("data") < 0.6
