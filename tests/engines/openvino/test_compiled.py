"""A network of engine `cpu` after a failed run: compiled again where dims are free, and right in every context."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.openvino.compiled import CompiledNetwork
from pytrtplugins.errors import ExecutionError
from tests.interleaving import Interleaving

SUMS = "{} => (float[a,4] y) {{ p = Sigmoid (x)  q = Tanh (z)  s = Add (p, q)  y = Sqrt (s) }}"


def built(inputs):
    text = f'<ir_version: 8, opset_import: ["" : 17]> g {SUMS.format(inputs)}'
    return ptp.build(onnx.parser.parse_model(text), engine="cpu", threads=1)


def feeds(rows, other_rows):
    return {"x": np.zeros((rows, 4), np.float32), "z": np.zeros((other_rows, 4), np.float32)}


def test_a_run_as_large_as_the_last_good_one_is_right_after_a_failed_one_in_each_context():
    engine = built("(float[N,4] x, float[M,4] z)")
    with engine.create_context() as one, engine.create_context() as other:
        one.run(feeds(3, 3))
        first = engine._network.compiled
        with pytest.raises(ExecutionError, match=r"node with name '[psqy]'"):
            one.run(feeds(2, 5))
        for context in (other, one):
            np.testing.assert_allclose(context.run(feeds(3, 3))["y"], np.full((3, 4), 0.5**0.5), rtol=1e-6)
        assert engine._network.compiled is not first


def test_runs_that_do_not_fail_keep_the_compiled_network():
    engine = built("(float[N,4] x, float[M,4] z)")
    first = engine._network.compiled
    with engine.create_context() as context:
        for rows in (3, 2, 3):
            assert context.run(feeds(rows, rows))["y"].shape == (rows, 4)
    assert engine._network.compiled is first


def test_runs_of_a_network_with_free_dims_take_turns():
    network = CompiledNetwork(lambda: None, free_dims=True)
    both = Interleaving(network._lock)
    network._lock = both.lock
    runs = SimpleNamespace(infer=lambda inputs, share_inputs: both.inside() or inputs)
    request: Any = SimpleNamespace(of=lambda compiled: runs)
    results: list[Any] = both.run(
        lambda: network.infer(request, feeds(1, 1)), lambda: network.infer(request, feeds(2, 2))
    )
    assert [len(each["x"]) for each in results] == [1, 2]
    assert both.order == ["first", "second"]
