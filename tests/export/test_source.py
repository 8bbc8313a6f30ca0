"""The files of an exported plugin, as people read them."""

from pathlib import Path

import pytest

from pytrtplugins.export._expressions import Scope
from pytrtplugins.export._values import Expr
from pytrtplugins.export.source import source_files
from pytrtplugins.export.trace import trace_plugin

from .layers import Scale

EXPECTED = Path(__file__).with_name("scale.cpp")


def test_the_source_is_the_same_in_every_release():
    assert source_files(trace_plugin(Scale))["plugin.cpp"] == EXPECTED.read_text(), (
        f"libraries that users build of their exported plugins change, too; where that is intended, correct {EXPECTED.name}"
    )


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), "std::string()"),
        (("a",), 'std::string("a")'),
        (("a", Expr("field", ("k",), "i")), 'std::string("a") + show(Dim(k_))'),
        ((Expr("field", ("k",), "i"), "a"), 'show(Dim(k_)) + "a"'),
        (("a", "b"), 'std::string("a") + "b"'),
    ],
)
def test_a_message_begins_with_a_text_of_its_own(parts, text):
    assert Scope("inputs[{}].dims").message(parts) == text
