from __future__ import annotations

import json
import logging
import tracemalloc

import numpy as np
import pytest

from pytrtplugins import calibration
from pytrtplugins.calibration import (
    CalibrationTable,
    Calibrator,
    EntropyCalibrator,
    Histogram,
    MinMaxCalibrator,
    PercentileCalibrator,
)
from pytrtplugins.calibration.percentile import percentile_threshold
from pytrtplugins.errors import CalibrationError, CalibrationTableError, NoDataError, UsageError

CALIBRATORS = (EntropyCalibrator, MinMaxCalibrator, PercentileCalibrator)
TENSORS = ("data", "conv")


def batches(count: int = 2, factor: float = 1.0):
    random = np.random.default_rng(0)
    return [{"data": factor * random.normal(size=(2, 3, 8, 8)).astype(np.float32)} for _ in range(count)]


def calibrated(calibrator: Calibrator) -> CalibrationTable:
    """What an engine does, with a network that doubles its input."""
    for batch in calibrator.get_batches():
        calibrator.observe("data", batch["data"])
        calibrator.observe("conv", 2 * batch["data"])
    return calibrator.compute_table()


@pytest.mark.parametrize("kind", CALIBRATORS)
def test_a_table_has_a_scale_for_every_tensor_in_order_of_appearance(kind):
    table = calibrated(kind(batches()))
    assert list(table) == list(TENSORS)
    assert table["conv"] <= 2 * table["data"]  # the input is never clipped
    assert table.algorithm == kind.algorithm


def test_min_max_takes_the_largest_magnitude():
    data = batches()
    table = calibrated(MinMaxCalibrator(data))
    largest = max(np.abs(batch["data"]).max() for batch in data)
    assert table["data"] == np.float32(float(largest) / 127)


def test_a_percentile_clips_that_share():
    values = np.arange(1, 100_001, dtype=np.float32)
    calibrator = PercentileCalibrator(percentile=99)
    calibrator.observe("x", values)
    assert calibrator.compute_table().amax("x") == pytest.approx(99_000, abs=131_072 / 2048)
    whole = PercentileCalibrator(percentile=100)
    whole.observe("x", values)
    assert whole.compute_table().amax("x") == pytest.approx(100_000, rel=1e-6)


@pytest.mark.parametrize(("percentile", "last"), [(10, 1), (25, 3), (30, 3), (31, 4), (99.9, 10)])
def test_no_less_than_the_share_stays_below_the_threshold(percentile, last):
    """Of 1 to 10 at least 2.5 lie below: 3 do. Bins are 16 / 2,048 wide."""
    calibrator = PercentileCalibrator(percentile=percentile)
    calibrator.observe("x", np.arange(1, 11))
    assert calibrator.compute_table().amax("x") == pytest.approx(min(last + 1 / 128, 10), rel=1e-6)


def test_a_percentile_of_zeros_is_zero():
    calibrator = PercentileCalibrator()
    calibrator.observe("x", np.zeros(3))
    calibrator.observe("empty", np.zeros(0))
    assert calibrator.compute_table()["x"] == 0
    assert calibrator.compute_table()["empty"] == 0


def test_a_percentile_of_no_values_is_zero():
    assert percentile_threshold(Histogram(), 99.0) == 0.0


def test_the_percentile_is_99_99_unless_given():
    assert PercentileCalibrator().signature == "LegacyCalibration percentile=99.99"
    assert PercentileCalibrator(percentile=100).signature == "LegacyCalibration percentile=100"


@pytest.mark.parametrize("percentile", [0, -1, 100.1, float("nan")])
def test_a_percentile_out_of_range_is_refused(percentile):
    with pytest.raises(UsageError, match="percentile"):
        PercentileCalibrator(percentile=percentile)


@pytest.mark.parametrize("kind", CALIBRATORS)
def test_memory_does_not_grow_with_the_number_of_batches(kind):
    def peak(count: int) -> int:
        random = np.random.default_rng(0)
        source = ({"data": random.normal(size=(2, 3, 64, 64)).astype(np.float32)} for _ in range(count))
        tracemalloc.start()
        try:
            calibrator = kind(source)
            for batch in calibrator.get_batches():
                calibrator.observe("data", batch["data"])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)
    few, many = peak(10), min(peak(200) for _ in range(3))  # other threads of the process allocate, too
    assert many < few + 65_536


@pytest.mark.parametrize("kind", CALIBRATORS)
def test_a_value_that_is_not_finite_is_reported_with_its_tensor(kind):
    calibrator = kind()
    with pytest.raises(CalibrationError, match="'conv'") as error:
        calibrator.observe("conv", np.float32([1, np.nan]))
    assert error.value.tensor == "conv"


@pytest.mark.parametrize("kind", CALIBRATORS)
def test_nothing_observed_gives_no_table(kind):
    with pytest.raises(NoDataError, match="observed"):
        kind().compute_table()


@pytest.mark.parametrize("source", [None, [], iter([])])
def test_no_batches_are_an_error(source):
    with pytest.raises(NoDataError, match="nothing to calibrate with"):
        list(EntropyCalibrator(source).get_batches())


def test_reset_forgets():
    calibrator = MinMaxCalibrator(batches())
    calibrated(calibrator)
    calibrator.reset()
    assert calibrator.observed() == ()


# --- cache and sidecar ---------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "net.cache"


def stored(cache, kind=EntropyCalibrator, network="net-1", source=None) -> CalibrationTable:
    calibrator = kind(source or Data(), cache=cache)
    table = calibrated(calibrator)
    calibrator.store_table(table, network=network)
    return table


class Data(list):
    """Batches with a digest, as ImageBatches has."""

    def __init__(self, name: str = "photos"):
        super().__init__(batches())
        self.name = name

    def digest(self) -> str:
        return self.name


def test_a_cache_that_is_not_there_gives_none(cache):
    assert EntropyCalibrator(batches(), cache=cache).cached_table(TENSORS) is None
    assert EntropyCalibrator(batches()).cached_table(TENSORS) is None


def test_a_stored_table_is_found_again(cache):
    table = stored(cache)
    assert cache.read_bytes() == table.to_bytes()
    assert EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-1") == table
    assert EntropyCalibrator(cache=cache).cached_table(TENSORS, network="net-1") == table


def test_the_sidecar_names_network_data_and_algorithm(cache):
    stored(cache)
    facts = json.loads(cache.with_name("net.cache.json").read_text())
    assert facts["network"] == "net-1"
    assert facts["data"] == "photos"
    assert facts["algorithm"] == "EntropyCalibration2"
    assert facts["tensors"] == 2
    assert facts["created_by"].startswith("pytrtplugins ")
    assert sorted(path.name for path in cache.parent.iterdir()) == ["net.cache", "net.cache.json"]


def test_a_cache_of_another_network_is_refused(cache):
    stored(cache)
    with pytest.raises(CalibrationTableError) as error:
        EntropyCalibrator(Data(), cache=cache).cached_table(["data", "other"], network="net-2")
    assert error.value.only_in_table == ("conv",)
    assert error.value.only_in_network == ("other",)
    assert f"--cache {cache}" in str(error.value).splitlines()[-1]


def test_a_cache_without_sidecar_is_accepted_if_its_names_fit(cache):
    cache.write_bytes(b"TRT-8601-EntropyCalibration2\ndata: 3c010204\nconv: 3c010204\n(Unnamed Layer* 1): 3c010204\n")
    table = EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-1")
    assert table is not None
    assert table.version == 8601
    with pytest.raises(CalibrationTableError):
        EntropyCalibrator(Data(), cache=cache).cached_table([*TENSORS, "more"], network="net-1")


def test_a_table_of_other_data_or_algorithm_is_made_anew(cache, caplog):
    stored(cache)
    with caplog.at_level(logging.WARNING):
        assert EntropyCalibrator(Data("others"), cache=cache).cached_table(TENSORS, network="net-1") is None
        assert MinMaxCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-1") is None
        assert "made from other data" in caplog.text
        assert "made by EntropyCalibration2, not MinMaxCalibration" in caplog.text


def test_another_percentile_is_another_algorithm(cache):
    calibrator = PercentileCalibrator(Data(), cache=cache, percentile=99)
    calibrator.store_table(calibrated(calibrator))
    assert PercentileCalibrator(Data(), cache=cache, percentile=99).cached_table(TENSORS) is not None
    assert PercentileCalibrator(Data(), cache=cache, percentile=99.9).cached_table(TENSORS) is None


def test_a_cache_without_sidecar_of_another_algorithm_is_made_anew_if_there_are_batches(cache, caplog):
    CalibrationTable({"data": 1, "conv": 1}, "MinMaxCalibration").write(cache)
    assert MinMaxCalibrator(Data(), cache=cache).cached_table(TENSORS) is not None
    assert caplog.text == ""
    assert EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS) is None
    assert "made by MinMaxCalibration, not EntropyCalibration2; calibrating again" in caplog.text
    found = EntropyCalibrator(cache=cache).cached_table(TENSORS)
    assert found is not None
    assert found["data"] == 1
    assert "since there are no batches to calibrate with" in caplog.text


@pytest.mark.parametrize(("kept", "asked"), [("", "net-2"), ("net-1", ""), ("net-1", "net-1")])
def test_models_are_compared_only_where_both_digests_are_known(cache, kept, asked):
    table = stored(cache, network=kept)
    assert EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network=asked) == table


def test_a_model_with_other_weights_is_refused_though_the_names_agree(cache):
    stored(cache, network="net-1")
    with pytest.raises(CalibrationTableError, match="other weights or shapes"):
        EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-2")


def test_a_cache_larger_than_4_mebibytes_is_refused(cache):
    text = b"TRT-8601-EntropyCalibration2\ndata: 3c010204\nconv: 3c010204\n"
    cache.write_bytes(text + b"x" * (4 * 1024**2 - len(text) - 3) + b": 0")
    assert EntropyCalibrator(cache=cache).cached_table(TENSORS) is not None
    cache.write_bytes(cache.read_bytes() + b"\n")
    with pytest.raises(CalibrationTableError, match="expected at most 4,194,304 bytes, found 4,194,305"):
        EntropyCalibrator(cache=cache).cached_table(TENSORS)


def test_nothing_to_calibrate_with_says_whether_there_could_be_a_cache(cache):
    with pytest.raises(NoDataError, match=r"no batches were given\.\nDo: MinMaxCalibrator\(ImageBatches"):
        list(MinMaxCalibrator().get_batches())
    with pytest.raises(NoDataError, match=r"no batches were given, and there is no cache .*net\.cache\.\n"):
        list(MinMaxCalibrator(cache=cache).get_batches())
    with pytest.raises(NoDataError, match="list gave no batch"):
        list(MinMaxCalibrator([]).get_batches())


def test_batches_are_told_the_only_input_of_a_network():
    class Told(list):
        told = None

        def set_default_input(self, name, dims):
            self.told = name, dims

    source = Told(batches())
    MinMaxCalibrator(source).bind({"a": (1, 2), "b": (1,)})
    assert source.told is None
    MinMaxCalibrator(source).bind({"a": ["N", 2]})
    assert source.told == ("a", ("N", 2))


def test_a_table_of_another_algorithm_is_used_where_there_is_nothing_to_calibrate_with(cache, caplog):
    table = stored(cache)
    assert MinMaxCalibrator(cache=cache).cached_table(TENSORS, network="net-1") == table
    assert "used anyway" in caplog.text


def test_a_sidecar_of_another_cache_is_refused_and_says_what_to_do(cache):
    stored(cache)
    CalibrationTable({"data": 1, "conv": 1}).write(cache)
    with pytest.raises(CalibrationTableError, match="belongs to another cache") as error:
        EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-2")
    assert error.value.path == cache.with_name("net.cache.json")
    assert f"Do: rm {error.value.path} " in str(error.value)
    error.value.path.unlink()
    found = EntropyCalibrator(Data(), cache=cache).cached_table(TENSORS, network="net-2")
    assert found is not None
    assert found["conv"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"format": "other"}',
        '{"format": "pytrtplugins calibration 1"}',
        '{"format": "pytrtplugins calibration 1", "earlier": 1}',
        "\x00\xff",
        "[" * 100_000,
        '{"format": "' + "x" * 100_000 + '"}',
    ],
    ids=range(8),
)
def test_a_damaged_sidecar_is_an_error_with_its_path(cache, text):
    stored(cache)
    sidecar = cache.with_name("net.cache.json")
    sidecar.write_text(text, encoding="latin-1")
    with pytest.raises(CalibrationTableError, match="Do: rm") as error:
        EntropyCalibrator(cache=cache).cached_table(TENSORS)
    assert error.value.path == sidecar
    assert len(str(error.value)) < 1000


def test_a_damaged_cache_is_an_error_with_its_line(cache):
    cache.write_bytes(b"TRT-8601-EntropyCalibration2\ndata: zz\n")
    with pytest.raises(CalibrationTableError) as error:
        EntropyCalibrator(batches(), cache=cache).cached_table(TENSORS)
    assert (error.value.path, error.value.line) == (cache, 2)


def test_every_algorithm_has_its_name():
    assert {
        "minmax": MinMaxCalibrator,
        "entropy": EntropyCalibrator,
        "percentile": PercentileCalibrator,
    } == calibration.CALIBRATORS
