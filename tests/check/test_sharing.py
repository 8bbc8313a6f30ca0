"""The rule about two threads: what clones share shows wherever the turns of the threads fall."""

import threading
from pathlib import Path

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.check import sharing
from pytrtplugins.check.search import given_cases
from pytrtplugins.layers import reorg
from tests.broken_kernels import SharedScratch, SharedScratchInEnqueue, Twice


@pytest.mark.parametrize("plugin", [SharedScratch(), SharedScratchInEnqueue()], ids=["compute", "enqueue"])
def test_one_interruption_at_each_line_finds_what_clones_share(monkeypatch, plugin):
    monkeypatch.setattr(sharing, "_ROUNDS", ())
    (case,) = given_cases(plugin, [(2, 3)], seed=0)
    assert sharing.two_threads(case).startswith("not thread-safe")


@ptp.plugin(namespace="sharing")
class Loops(Twice):
    def compute(self, x):
        out = x
        for _ in range(100):
            out = out + 0
        return out + x


def test_a_plugin_of_many_lines_is_interrupted_after_some_of_them_only(monkeypatch):
    rhythms = []

    class Recorded(sharing._Turns):
        def __init__(self, rhythm):
            rhythms.append(rhythm)
            super().__init__(rhythm)

    monkeypatch.setattr(sharing, "_Turns", Recorded)
    monkeypatch.setattr(sharing, "_ROUNDS", ())
    monkeypatch.setattr(sharing, "has_enqueue", lambda plugin: False)
    (case,) = given_cases(Loops(), [(2, 3)], seed=0)
    assert sharing.two_threads(case) == ""
    firsts = [first for first, _ in rhythms[1:]]
    assert firsts == sorted(set(firsts)), "one interruption each"
    assert 16 <= len(firsts) < 32
    assert firsts[0] == 1
    assert firsts[-1] > 190, "the last of the 203 lines too"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (__file__, True),
        (reorg.__file__, True),
        (sharing.__file__, False),
        (np.linalg.__file__, False),
        (threading.__file__, False),
        ("<frozen importlib._bootstrap>", False),
        (str(Path(threading.__file__).parent / "site-packages/acme/scale.py"), True),
    ],
)
def test_only_lines_that_may_be_the_plugins_count(file, expected):
    assert sharing._is_plugin_file(file) is expected
