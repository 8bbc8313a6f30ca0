"""Damaged files give a network or one of our errors, never another exception, and cost little.

`tests.darknet2caffe.campaign` damages many more.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darknet2caffe import read_network, to_onnx, write_darknet
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError, UsageError, WeightsError
from tests.darknet2caffe.mutations import LimitError, Mutation, attempt, limited, mutations
from tests.darknet2caffe.networks import network

SMALL = "[net]\nwidth=2\nheight=2\nchannels=1\n"
HUGE = "[net]\nwidth=20000\nheight=20000\nchannels=1\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


@settings(suppress_health_check=list(HealthCheck))
@given(mutations())
def test_damaged_files_give_a_network_or_one_of_our_errors_at_little_cost(folder, mutation):
    outcome = attempt(mutation, folder)
    assert outcome.result in ("converted", "read", "CfgError", "WeightsError", "UsageError")


@settings(suppress_health_check=list(HealthCheck))
@given(mutations())
def test_errors_in_a_damaged_cfg_have_a_line(mutation):
    text = mutation.cfg.decode(errors="replace")
    try:
        net = read_network(parse_cfg(text), dialect=mutation.dialect)
    except CfgError as error:
        line = error.line
    else:
        line = 1
        assert all(min(layer.dims) >= 1 for layer in net.layers)
    assert 1 <= line <= text.count("\n") + 1


@settings(deadline=10_000)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_a_cfg(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.cfg"
    path.write_bytes(b"[net]\nwidth=4\n" + data)
    with pytest.raises(CfgError):
        read_network(path)


@settings(deadline=10_000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_weights_give_the_same_numbers_or_an_error_with_the_byte(tmp_path, data):
    net = network()
    write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")
    original = (tmp_path / "a.weights").read_bytes()
    damaged = bytearray(original[: data.draw(st.integers(0, len(original)))] if data.draw(st.booleans()) else original)
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, min(len(damaged) - 1, 400)))] = data.draw(st.integers(0, 255))
    damaged += bytes(data.draw(st.integers(0, 50)) if data.draw(st.booleans()) else 0)
    (tmp_path / "b.weights").write_bytes(damaged)
    try:
        again = read_network(net.cfg, tmp_path / "b.weights")
    except WeightsError as error:
        offset = error.offset
    else:
        offset = 0
        assert again.weights.to_bytes() == damaged
        assert all(np.isfinite(array).all() for arrays in again.weights.layers for array in arrays.values())
    assert 0 <= offset <= max(len(damaged), len(original))


@pytest.mark.parametrize(
    "text",
    [
        f"{HUGE}[logistic]\n[route]\nlayers=0,0\n[shortcut]\nfrom=0\nalpha=.5\n",
        f"{HUGE}[maxpool]\nstride=2\n[route]\nlayers=0\n[upsample]\n[shortcut]\nfrom=0\n",
        f"{HUGE}[softmax]\ngroups=1000000\n",
        f"{HUGE}[upsample]\nstride=-20000\n",
        f"{SMALL}{'[logistic]' * 9999}".replace("][", "]\n["),
        f"{SMALL}{'a=1' * 200_000}[logistic]\n".replace("1a", "1\na").replace("1[", "1\n["),
        f"{SMALL}[logistic]\n[route]\nlayers={','.join(['0'] * 50_000)}\n",
        "[net]\nwidth=1\nheight=1\nchannels=100000\n[normalization]\n",
        f"{SMALL}[connected]\noutput=500000000\n",
        f"{SMALL}[upsample]\nscale={'9' * 1_000_000}\n",
        f"[net]\nwidth={'9' * 1_000_000}\n",
        f"{SMALL}{'x' * 1_000_000}",
    ],
    ids=range(12),
)
def test_large_numbers_and_long_files_cost_little(tmp_path, text):
    assert attempt(Mutation("written", text.encode(), None), tmp_path).bytes < 64 << 20


@pytest.mark.parametrize("value", ["1e39", "-3.5e38", "1e300"])
def test_numbers_beyond_float32_are_refused(value):
    with pytest.raises(CfgError, match="expected a float32 number") as caught:
        read_network(parse_cfg(f"{SMALL}[upsample]\nscale={value}\n"))
    assert caught.value.line == 6


@pytest.mark.parametrize("name", ["weights", "rolling_mean"])
def test_weights_that_leave_float32_when_they_are_folded_are_refused(name):
    net = read_network(parse_cfg(f"{SMALL}[convolutional]\nbatch_normalize=1\n")).with_random_weights()
    arrays = {key: np.full_like(array, 0.01) for key, array in net.parameters(net.layers[0]).items()}
    large = net.with_weights([{**arrays, name: np.full_like(arrays[name], 3e38), "scales": np.full(1, 3.0)}])
    with pytest.raises(UsageError, match="float32 ends at"):
        to_onnx(large)
    assert to_onnx(large, fold=False).graph.node


def test_a_message_leaves_out_the_middle_of_a_long_value():
    with pytest.raises(CfgError) as caught:
        read_network(parse_cfg(f"{SMALL}[upsample]\nscale={'9' * 100_000}\n"))
    assert len(str(caught.value)) < 1200
    assert "scale=999" in str(caught.value)


def test_a_repeated_unknown_key_is_told_once(caplog):
    read_network(parse_cfg(f"{SMALL}{'colour=3' * 9}[logistic]\n".replace("3c", "3\nc").replace("3[", "3\n[")))
    assert len(caplog.records) == 2  # unknown, and given again


def test_the_limits_find_time_and_memory():
    with pytest.raises(LimitError, match=r"more than 0\.[28] s of processor time"), limited(1 << 20, 0.2):
        sum(1 for _ in iter(time.process_time, -1.0))  # for ever
    with pytest.raises(LimitError, match="bytes"), limited(1 << 20):
        np.ones(1 << 26)
    with pytest.raises(LimitError, match="asked for"), limited(1 << 20):
        np.empty(1 << 30)
