"""A written model is given to TensorRT for RTX where that is installed; elsewhere the check says how to get it."""

import pytest

from pytrtplugins.engines.registry import availability_of
from pytrtplugins.export import parser_check
from pytrtplugins.export.parser_check import check_parser
from tests.engines.networks import conv_net


def test_what_is_not_installed_is_said():
    if availability_of("tensorrt_rtx").builds:
        pytest.skip("TensorRT for RTX is installed")
    found = check_parser(conv_net())
    assert (found.library, found.bytes, found.refused) == ("", 0, False)
    assert found.problem == 'TensorRT for RTX is not installed.\nDo: pip install "pytrtplugins[rtx]"'


def test_a_refusal_is_told_from_a_library_that_is_missing():
    assert parser_check.ParserCheck("TensorRT for RTX 1.7", 0, "no such operator").refused
    assert not parser_check.ParserCheck("TensorRT for RTX 1.7", 12, "").refused
