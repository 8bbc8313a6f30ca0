"""Drawn networks give darknet's numbers, layer by layer; `tests.darknet2caffe.campaign` draws many more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from darknet2caffe import _onnx_activations, read_network
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError
from tests.darknet2caffe import campaign
from tests.darknet2caffe.comparison import MismatchError, compare
from tests.darknet2caffe.strategies import Case, cases, wild_cases
from tests.oracles.darknet_worker import DarknetCrashError, DarknetWorker
from tests.oracles.libdarknet import LibDarknet

MAP = "[net]\nwidth=6\nheight=5\nchannels=3\n"


@pytest.fixture(scope="module")
def worker(libdarknet: LibDarknet) -> Iterator[DarknetWorker]:
    with DarknetWorker() as worker:
        yield worker


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@settings(suppress_health_check=list(HealthCheck))
@given(cases())
def test_random_networks_give_darknets_numbers_layer_by_layer(worker, folder, case):
    assert compare(case, worker, folder)


@settings(suppress_health_check=list(HealthCheck))
@given(wild_cases())
def test_blind_values_are_refused_or_give_darknets_numbers(worker, folder, case):
    try:
        results = compare(case, worker, folder)
    except CfgError as error:
        line = error.line
    else:
        line = len(results)
    assert 1 <= line <= case.text.count("\n")


@pytest.mark.parametrize(
    "layers",
    [
        "[crop]\ncrop_width=2\ncrop_height=4\n[shortcut]\nfrom=-1\n[upsample]\n[shortcut]\nfrom=0\n[crop]\ncrop_width=1\n"
        "crop_height=4\n[shortcut]\nfrom=0",
        "[detection]\nside=1",
        "[yolo]\nclasses=3",
        "[region]\nclasses=3",
        "[softmax]\ngroups=4",
    ],
)
def test_what_darknet_ends_on_is_refused(worker, tmp_path, layers):
    path = tmp_path / "a.cfg"
    path.write_text(f"{MAP}{layers}\n")
    with pytest.raises(CfgError):
        read_network(path, dialect="pjreddie")
    with pytest.raises(DarknetCrashError, match=r"Assertion `.*' failed"):
        worker.run(path, None, np.zeros((1, 3, 5, 6), np.float32))


@pytest.mark.parametrize(
    "layers",
    [
        "[dropout]\n[logistic]",  # parse_network_cfg reads the layer before the first one
        "[softmax]\n[shortcut]\nfrom=0",  # from here on: division by zero
        "[reorg]\nstride=2",
        "[reorg]\nstride=0\nextra=2",
        "[convolutional]\ngroups=0",
        "[upsample]\nstride=0\n[convolutional]\nsize=3\npad=1",  # reads memory that is not there, as the next one
        "[rnn]\n[convolutional]",
    ],
)
def test_what_is_undefined_in_darknet_is_refused(layers):
    """Darknet may end, or give any numbers: that depends on the processor and on what lies in memory, so it is not asked."""
    with pytest.raises(CfgError):
        read_network(parse_cfg(f"{MAP}{layers}\n"), dialect="pjreddie")


@pytest.mark.parametrize(("key", "value"), [("stride", 2), ("padding", 1)])
def test_a_convolution_of_size_1_that_darknet_computes_wrongly_is_refused(key, value):
    cfg = parse_cfg(f"{MAP}[convolutional]\nsize=1\n{key}={value}\n")
    with pytest.raises(CfgError, match="im2col") as caught:
        read_network(cfg, dialect="pjreddie")
    assert caught.value.line == 7


def test_a_wrong_conversion_is_found(worker, folder, monkeypatch):
    """The comparison itself: a slope of 0.11 instead of 0.1 does not pass."""
    case = Case(f"{MAP}[activation]\nactivation=leaky\n[upsample]\nscale=-1\n[activation]\nactivation=leaky\n")
    assert [result.kind for result in compare(case, worker, folder)] == ["activation", "upsample", "activation"]
    monkeypatch.setitem(_onnx_activations._OPERATORS, "leaky", ("LeakyRelu", {"alpha": 0.11}))
    with pytest.raises(MismatchError, match="2_activation alone differs"):
        compare(case, worker, folder)


def test_the_campaign_sums_up_what_it_tried(libdarknet, capsys):
    assert campaign.main(["--networks", "4", "--blind", "4", "--mutations", "10", "--seed", "7"]) == 0
    told = capsys.readouterr()
    assert "10 damaged files:" in told.out
    assert "largest error layer by layer:" in told.out
    assert "0 failed" in told.out
    assert "networks: 4 tried, 0 failed" in told.err
