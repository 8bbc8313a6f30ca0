"""What a plugin raises in any call of a build by TensorRT for RTX reaches the caller as it was raised, and no process ends."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from typing import ClassVar

import pytest

import pytrtplugins as ptp
from benchmarks.node_tests import Outcome, run_cases
from pytrtplugins.errors import DimsError
from tests.user_plugins import Visited

from .plugin_cases import PluginCase, network
from .rtx_builds import ENGINE, build_on_rtx, needs_rtx
from .user_plugins import NonZero

pytestmark = needs_rtx
CALLBACKS = (
    *("validate", "clone", "output_dtypes", "output_dims", "supports_format", "workspace_size", "tactics", "fields"),
)
"""Callbacks that `Plugin.clone` calls, too."""
MOST_CALLS = 14
RAISED, BUILT = "raised", "built"


@ptp.plugin(namespace="test.rtx.raises")
class Failing(Visited):
    """Raises an error in a call of a method: class attributes say which."""

    method: ClassVar[str] = ""
    call: ClassVar[int] = 1
    error: ClassVar[type[BaseException]] = KeyError
    counts: ClassVar[Counter[str]] = Counter()

    def clone(self):
        return self.visit("clone", super().clone)()

    @property
    def tactics(self):
        return self.visit("tactics", ("one",))

    def fields(self):
        return self.visit("fields", super().fields)()

    @classmethod
    def visit(cls, method, value):
        cls.counts[method] += 1
        if cls.method == method and cls.counts[method] == cls.call:
            raise cls.error(f"mine, in {method}")
        return value


def build_failing(item):
    """Build in a child process, with a plugin that raises an error in one call of a method."""
    method, call, error = item
    with open(os.devnull, "w") as sink:
        os.dup2(sink.fileno(), 2)  # the bindings print each exception
    Failing.method = ""
    graph = ptp.Graph(network(PluginCase(Failing(), ((2, 3),)), around=True))
    Failing.method, Failing.call, Failing.error = method, call, error
    Failing.counts.clear()
    try:
        ptp.build(graph, engine=ENGINE, progress=False)
    except BaseException as caught:
        return Outcome(RAISED, f"{type(caught).__name__}: {caught.args[0]}")
    return Outcome(BUILT)


@cache
def outcomes():
    """What came of each item: method, number of the call, error."""
    items = [
        (method, call, error)
        for method in CALLBACKS
        for call in range(1, MOST_CALLS + 1)
        for error in ((KeyError, KeyboardInterrupt) if call == 1 else (KeyError,))
    ]
    return dict(run_cases(items, build_failing, start="forkserver"))


@pytest.mark.parametrize("method", CALLBACKS)
def test_what_each_call_of_a_callback_raises_arrives_as_it_was_raised(method):
    of_method = {item: outcome for item, outcome in outcomes().items() if item[0] == method}
    assert of_method[method, 1, KeyError].kind == of_method[method, 1, KeyboardInterrupt].kind == RAISED
    for (_, _, error), outcome in of_method.items():
        if outcome.kind != BUILT:  # such a call was not made
            assert outcome == Outcome(RAISED, f"{error.__name__}: mine, in {method}")


def test_the_build_behind_a_failed_one_is_not_affected(monkeypatch):
    model = network(PluginCase(Failing(), ((2, 3),)))
    monkeypatch.setattr(Failing, "method", "supports_format")
    Failing.counts.clear()
    with pytest.raises(KeyError, match="mine, in supports_format"):
        ptp.build(model, engine=ENGINE, progress=False)
    monkeypatch.setattr(Failing, "method", "")
    assert len(build_on_rtx(model).plugins()) == 1


def test_a_size_that_depends_on_values_is_refused_with_the_plugins_name_and_the_dim():
    with pytest.raises(DimsError, match=r"NonZero\(\): dim 'count' of output 0 is not made of the inputs' dims"):
        ptp.build(network(PluginCase(NonZero(), ((4, 4),))), engine=ENGINE, progress=False)
