"""Damaged files give a network or one of our errors, never another exception."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from darknet2caffe import read_network, write_darknet
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError, WeightsError
from tests.darknet2caffe.networks import ALL_LAYERS, network

_LINES = ALL_LAYERS.splitlines()
_VALUES = st.sampled_from(
    ["0", "-1", "1", "2", "7", "999999999", "99999999999999999999", "x", "nan", "1e9", ",", "-2,-2", "[net]"]
)


@st.composite
def damaged_text(draw: st.DrawFn) -> str:
    """A valid cfg with lines doubled, dropped, swapped, given other values, or characters changed."""
    lines = list(_LINES)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(lines) - 1))
        other = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["double", "drop", "swap", "value", "character", "cut"])):
            case "double":
                lines.insert(other, lines[place])
            case "drop" if len(lines) > 1:
                del lines[place]
            case "swap":
                lines[place], lines[other] = lines[other], lines[place]
            case "value":
                lines[place] = lines[place].partition("=")[0] + "=" + draw(_VALUES)
            case "character" if lines[place]:
                at = draw(st.integers(0, len(lines[place]) - 1))
                lines[place] = lines[place][:at] + draw(st.characters(codec="utf-8")) + lines[place][at + 1 :]
            case "cut":
                lines[place] = lines[place][: draw(st.integers(0, 10))]
    return "\n".join(lines)


@settings(max_examples=300, deadline=2000)
@given(damaged_text())
def test_a_damaged_cfg_gives_a_network_or_an_error_with_its_line(text):
    try:
        net = read_network(parse_cfg(text))
    except CfgError as error:
        line = error.line
    else:
        line = 1
        assert all(min(layer.dims) >= 1 for layer in net.layers)
    assert 1 <= line <= text.count("\n") + 1


@settings(max_examples=100, deadline=2000)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused_as_a_cfg(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "random.cfg"
    path.write_bytes(b"[net]\nwidth=4\n" + data)
    with pytest.raises(CfgError):
        read_network(path)


@settings(max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
