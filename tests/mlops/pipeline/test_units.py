"""Amounts as people write them: each row of each table of units."""

import pytest

from pytrtplugins.mlops.pipeline import units
from pytrtplugins.mlops.pipeline.units import read_bytes, read_cores, read_count, read_seconds

BYTES = {  # IEC's prefixes are powers of 1,024, SI's of 1,000; Kubernetes writes them without the B
    **{"": 1, "B": 1, "k": 1000, "K": 1000, "M": 1_000_000, "G": 1_000_000_000, "T": 1_000_000_000_000},
    **{"KB": 1000, "MB": 1_000_000, "GB": 1_000_000_000, "TB": 1_000_000_000_000},
    **{"Ki": 1024, "Mi": 1_048_576, "Gi": 1_073_741_824, "Ti": 1_099_511_627_776},
    **{"KiB": 1024, "MiB": 1_048_576, "GiB": 1_073_741_824, "TiB": 1_099_511_627_776},
}
SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
CORES = {"": 1, "m": 0.001}


def test_every_unit_of_sizes_and_times_is_worth_what_it_says():
    assert {unit: read_bytes(f"2{unit}") for unit in units._SIZES} == {unit: 2 * size for unit, size in BYTES.items()}
    assert {unit: read_seconds(f"1.5 {unit}") for unit in units._TIMES} == {u: 1.5 * s for u, s in SECONDS.items()}
    assert {unit: read_cores(f"250{unit}") for unit in CORES} == {"": 250.0, "m": 0.25}


def test_numbers_are_taken_as_they_are():
    assert (read_bytes(7), read_bytes("1.5KiB"), read_bytes(2.4), read_seconds(0.5), read_cores(2)) == (
        7,
        1536,
        2,
        0.5,
        2,
    )
    assert (read_count(3), read_count("12")) == (3, 12)


@pytest.mark.parametrize("read", [read_bytes, read_seconds, read_cores, read_count])
@pytest.mark.parametrize("value", ["", "x", "1 parsec", "-1", "1e3", True, None, float("nan"), float("inf"), [1]])
def test_what_is_no_amount_is_refused(read, value):
    with pytest.raises(ValueError, match=r"expected .*found"):
        read(value)
