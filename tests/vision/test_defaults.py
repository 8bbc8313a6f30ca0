"""Defaults that programs of users rely on."""

from tests.public_defaults import check_listed


def test_defaults_of_public_functions_are_those_that_are_listed():
    check_listed("pytrtplugins.vision.")
