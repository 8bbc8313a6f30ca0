"""Python's search for cycles of objects."""

import gc

import pytest

from pytrtplugins.utils.garbage import no_collection


@pytest.fixture(autouse=True)
def as_before():
    was_on = gc.isenabled()
    yield
    (gc.enable if was_on else gc.disable)()


def test_nothing_is_collected_within_it_and_again_afterwards():
    gc.enable()
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_ends_it():
    gc.enable()
    with pytest.raises(ValueError, match="wrong"), no_collection():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_who_has_turned_it_off_finds_it_off():
    gc.disable()
    with no_collection():
        pass
    assert not gc.isenabled()
