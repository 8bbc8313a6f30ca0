"""The files of an exported plugin, as people read them."""

import pytest

from pytrtplugins.export._expressions import Scope
from pytrtplugins.export._values import Expr
from pytrtplugins.export.source import source_files
from pytrtplugins.export.trace import trace_plugin
from pytrtplugins.layers import Reorg

HEAD = """// darknet::Reorg version 1, written in Python and exported by pytrt export-plugin.
// Fields that it has as Python's class has them; each branch on them, on dims and on types is kept.
#include <pytrtplugins/exported.h>
#ifdef PYTRTPLUGINS_TENSORRT
#include <pytrtplugins/tensorrt.h>
#endif

namespace {

using namespace pytrtplugins;
using namespace pytrtplugins::exported;

PYTRTPLUGINS_IMAGE(0)
PYTRTPLUGINS_KERNEL(k0_reorg_float, 0, image0, "reorg<float>")
"""
TAIL = """
PYTRTPLUGINS_REGISTER(Reorg, "darknet", "1")

}  // namespace

#ifdef PYTRTPLUGINS_TENSORRT
PYTRTPLUGINS_TENSORRT_LIBRARY
#endif
"""


def test_the_source_has_its_parts_in_this_order_with_lines_between_them():
    text = source_files(trace_plugin(Reorg))["plugin.cpp"]
    assert text.startswith(HEAD)
    assert text.endswith(TAIL)
    assert "\n\n\n" not in text


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
