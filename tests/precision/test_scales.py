"""Scales of several calibrators from one run."""

import numpy as np
import pytest

from pytrtplugins.calibration import EntropyCalibrator, MinMaxCalibrator, PercentileCalibrator
from pytrtplugins.engines import calibrate
from pytrtplugins.errors import NoDataError, UsageError
from pytrtplugins.precision.scales import make_tables
from tests.engines.networks import conv_net

KINDS = {"minmax": MinMaxCalibrator, "entropy": EntropyCalibrator, "percentile": PercentileCalibrator}


def spiked(seed):
    """Values near zero, and one that is far above them, which percentiles and entropy would clip."""
    x = np.random.default_rng(seed).uniform(0, 0.01, (1, 3, 8, 8)).astype(np.float32)
    x[0, 1, 2, 3] = 1 + seed
    return {"data": x}


def test_the_networks_input_is_clipped_by_none_of_them():
    tables = make_tables(conv_net(), [spiked(seed) for seed in range(100)], progress=False)
    assert {name: table["data"] for name, table in tables.items()} == dict.fromkeys(KINDS, np.float32(100 / 127))
    assert tables["percentile"]["c1"] < tables["minmax"]["c1"]  # others are


@pytest.mark.parametrize("name", KINDS)
def test_a_table_is_that_of_its_calibrator_alone(name):
    batches = [spiked(seed) for seed in range(20)]
    assert list(tables := make_tables(conv_net(), batches, ["entropy", "minmax", "percentile"], progress=False)) == [
        "entropy",
        "minmax",
        "percentile",
    ]
    assert tables[name] == calibrate(conv_net(), KINDS[name](batches), progress=False)


def test_unknown_names_and_no_data_are_refused():
    with pytest.raises(UsageError, match="expected some of minmax, entropy, percentile, found \\['kl'\\]"):
        make_tables(conv_net(), [spiked(0)], ["kl"])
    with pytest.raises(NoDataError):
        make_tables(conv_net(), [], progress=False)
