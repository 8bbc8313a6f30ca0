"""Sizes in messages."""

import pytest

from pytrtplugins.validation.limits import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 30, "1 GiB"),
        ((1 << 60) - 1, "1024 PiB"),
        (1 << 69, "512 EiB"),
        (1 << 70, "2^70 bytes"),
        (3 << 80, "2^81 bytes"),
    ],
)
def test_a_size_is_told_in_the_largest_unit_that_it_fills(count, text):
    assert size_text(count) == text
