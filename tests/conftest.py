"""Fixtures that several suites share."""

from __future__ import annotations

import pytest

from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet


@pytest.fixture(scope="session")
def libdarknet() -> LibDarknet:
    """The oracle for darknet networks; skips with the reason where it cannot be had."""
    try:
        return LibDarknet()
    except DarknetUnavailableError as error:
        pytest.skip(f"libdarknet: {error}")
