"""What in a cfg chooses the dialect, and the reason that is told."""

import pytest

from darknet2caffe.cfg import parse_cfg
from darknet2caffe.dialect import choose_dialect


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[net]\nwidth=4\nmosaic=1\n[conv]\n", "line 3: only AlexeyAB's darknet reads mosaic= in [net]"),
        ("[net]\n[conv]\n[scale_channels]\n", "line 3: [scale_channels] is a layer of AlexeyAB's darknet"),
        ("[net]\n[conv]\ndilation=2\n", "line 3: only AlexeyAB's darknet reads dilation= in [conv]"),
        ("[net]\n[conv]\nactivation=mish\n", "line 3: mish is an activation of AlexeyAB's darknet"),
    ],
)
def test_the_first_thing_that_only_the_fork_has_is_the_reason(text, reason):
    assert choose_dialect(parse_cfg(text), "auto") == ("alexeyab", reason)
    for asked in ("alexeyab", "pjreddie"):
        assert choose_dialect(parse_cfg(text), asked) == (asked, "as asked for")


def test_a_cfg_of_both_is_pjreddies():
    cfg = parse_cfg("[net]\nwidth=4\n[conv]\nactivation=leaky\n")
    assert choose_dialect(cfg, "auto") == ("pjreddie", "nothing in it is AlexeyAB's alone")
