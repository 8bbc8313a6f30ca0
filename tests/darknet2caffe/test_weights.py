from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darknet2caffe import Weights, read_network, read_weights, write_darknet
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.weights import Header
from pytrtplugins.errors import UsageError, WeightsError
from tests.darknet2caffe.networks import network, sections

# layer 0: 4 biases, 4 scales, 4 means, 4 variances, 12 weights; layer 1: 16 biases, 64 weights; in all 432 bytes
SMALL = sections("""[net] width=4 height=4 channels=3
[convolutional] batch_normalize=1 filters=4 activation=leaky
[convolutional] filters=16 activation=linear
[region] classes=3 num=2
""")


def write(path: Path, numbers: np.ndarray | int, header: Header = Header()) -> Path:  # noqa: B008
    values = np.arange(1, numbers + 1, dtype="<f4") if isinstance(numbers, int) else numbers
    path.write_bytes(header.to_bytes() + values.tobytes())
    return path


@pytest.fixture
def net():
    return read_network(parse_cfg(SMALL, "small.cfg"))


def test_arrays_come_in_darknets_order(net, tmp_path):
    weights = read_weights(write(tmp_path / "a.weights", 108), net.layers)
    first, second, third = weights.layers
    assert list(first) == ["biases", "scales", "rolling_mean", "rolling_variance", "weights"]
    assert [first[name].flat[0] for name in first] == [1, 5, 9, 13, 17]
    assert first["weights"].shape == (4, 3, 1, 1)
    assert [second[name].flat[0] for name in second] == [29, 45]
    assert third == {}


@pytest.mark.parametrize(
    ("version", "size"), [((0, 1, 0), 16), ((0, 2, 0), 20), ((0, 2, 5), 20), ((1, 0, 0), 20), ((2000, 0, 0), 16)]
)
def test_the_header_has_16_or_20_bytes_by_version(net, tmp_path, version, size):
    header = Header(*version, seen=32013312)
    assert header.size_bytes == len(header.to_bytes()) == size
    weights = read_weights(write(tmp_path / "a.weights", 108, header), net.layers)
    assert weights.header == header
    assert weights.layers[0]["biases"][0] == 1
    assert header.transposed == (version[0] == 2000)


def test_seen_may_need_64_bits(net, tmp_path):
    header = Header(0, 2, 5, seen=2**40)
    assert read_weights(write(tmp_path / "a.weights", 108, header), net.layers).header.seen == 2**40


def test_arrays_are_mapped_from_the_file_and_cannot_be_changed(net, tmp_path):
    weights = read_weights(write(tmp_path / "a.weights", 108), net.layers)
    array = weights.layers[0]["weights"]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 0
    base: Any = array
    while not isinstance(base, np.memmap):
        base = base.base
    assert base.filename == tmp_path / "a.weights"


def test_only_filters_before_heads_explain_a_difference(tmp_path):
    net = read_network(
        parse_cfg(SMALL.replace("[convolutional]\nfilters=16", "[reorg]\nstride=2\n[convolutional]\nfilters=16"))
    )
    path = write(tmp_path / "a.weights", 28 + 16 * 17 + 4 * 17)
    with pytest.raises(WeightsError, match=r"exactly 4 more filters of layer 2 \(20 instead of 16\)\.\n"):
        read_network(net.cfg, path)


def test_a_difference_that_leaves_a_filter_is_explained_and_one_that_is_no_filters_is_not(net, tmp_path):
    with pytest.raises(WeightsError, match=r"exactly 15 fewer filters of layer 1 \(1 instead of 16\)"):
        read_network(net.cfg, write(tmp_path / "a.weights", 108 - 15 * 5))
    for numbers in (108 - 16 * 5 - 5, 108 - 3, 108 + 4):
        with pytest.raises(WeightsError, match="Causes: ") as caught:
            read_network(net.cfg, write(tmp_path / "a.weights", numbers))
        assert "filters of layer" not in str(caught.value)


def test_random_weights_have_the_deviation_of_the_products_that_are_added():
    local = "[net]\nwidth=40\nheight=40\nchannels=2\n[local]\nfilters=4\nsize=5\nactivation=leaky\n"
    (layer,) = read_network(parse_cfg(local)).with_random_weights().layers
    assert layer.fan_in == 2 * 25
    weights = read_network(parse_cfg(local)).with_random_weights().weights.layers[0]["weights"]
    assert weights.std() == pytest.approx((2 / 50) ** 0.5, rel=0.02)


@pytest.mark.parametrize("count", [0, 1, 12, 15, 19, 20, 23, 451])
def test_a_file_cut_short_is_refused_with_the_byte(net, tmp_path, count):
    path = write(tmp_path / "a.weights", 108)
    path.write_bytes(path.read_bytes()[:count])
    with pytest.raises(WeightsError) as caught:
        read_network(net.cfg, path)
    assert caught.value.offset == count


def test_a_missing_file_is_refused(net, tmp_path):
    with pytest.raises(WeightsError, match="No such file"):
        read_network(net.cfg, tmp_path / "absent.weights")
    with pytest.raises(WeightsError, match="cannot be read"):
        read_network(net.cfg, tmp_path)


def test_huge_sizes_in_the_cfg_take_no_memory(tmp_path):
    text = SMALL.replace("filters=4", "filters=120000000").replace("filters=16", "filters=2")
    cfg = parse_cfg(text.replace("[region]\nclasses=3\nnum=2", "[dropout]"))
    path = write(tmp_path / "a.weights", 108)
    tracemalloc.start()
    with pytest.raises(WeightsError, match="the file ends inside layer 0"):
        read_network(cfg, path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_reading_takes_no_memory_for_the_numbers(tmp_path):
    text = "[net]\nwidth=4\nheight=4\nchannels=1024\n[conv]\nfilters=4096\nsize=1\nactivation=linear\n"
    net = read_network(parse_cfg(text)).with_random_weights()
    write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")
    tracemalloc.start()
    read_network(tmp_path / "a.cfg", tmp_path / "a.weights")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6_000_000  # of 16.8 MB; the check for NaN takes a byte a number


def test_written_and_read_again_the_network_is_identical(tmp_path):
    net = network()
    write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")
    again = read_network(tmp_path / "a.cfg", tmp_path / "a.weights")
    assert again == net
    assert again.cfg.to_text() == net.cfg.to_text()
    write_darknet(again, tmp_path / "b.cfg", tmp_path / "b.weights")
    assert (tmp_path / "b.weights").read_bytes() == (tmp_path / "a.weights").read_bytes()


def test_another_network_is_not_identical(tmp_path):
    net = network()
    assert network(seed=1) != net
    assert net.with_input_size(64, 64) != net
    header, layers = net.weights.header, list(net.weights.layers)
    assert Weights(Header(seen=1), tuple(layers)) != net.weights
    layers[0] = {**layers[0], "biases": layers[0]["biases"] + 1}
    assert Weights(header, tuple(layers)) != net.weights


def test_the_cfg_alone_can_be_written(tmp_path):
    net = read_network(parse_cfg(SMALL))
    write_darknet(net, tmp_path / "a.cfg")
    assert read_network(tmp_path / "a.cfg") == net
    with pytest.raises(UsageError, match="no weights to write"):
        write_darknet(net, tmp_path / "a.cfg", tmp_path / "a.weights")


def test_the_header_is_darknets_own():
    assert Header(0, 2, 5, 7).to_bytes() == struct.pack("<iiiQ", 0, 2, 5, 7)
    assert Header().to_bytes() == struct.pack("<iiiQ", 0, 2, 0, 0)  # as darknet's save_weights_upto writes it
    assert Header(0, 1, 0, 7).to_bytes() == struct.pack("<iiii", 0, 1, 0, 7)


CLASSES = (
    "Causes: (1) the .cfg has another class count than the weights; (2) the two files belong to different networks"
)
SHORT = f"{CLASSES}; (3) the download was cut short.\n"
FIRST, SECOND = "layer 0 (convolutional, line 5 of small.cfg)", "layer 1 (convolutional, line 9 of small.cfg)"


@pytest.mark.parametrize(
    ("numbers", "offset", "message"),
    [
        (128, 452, "80 bytes left after the last layer with weights (1, convolutional): expected 452 bytes in all, found 532.\n"
         f"The remainder is exactly 4 more filters of layer 1 (20 instead of 16).\n{CLASSES}.\n"),
        (359, 452, "1,004 bytes left after the last layer with weights (1, convolutional): expected 452 bytes in all, found"
         f" 1,456.\n{CLASSES}.\n"),
        (98, 412, f"the file ends inside {SECOND}: expected 452 bytes in all, found 412.\n"
         f"The gap is exactly 2 fewer filters of layer 1 (14 instead of 16).\n{SHORT}"),
        (107, 448, f"the file ends inside {SECOND}: expected 452 bytes in all, found 448.\n{SHORT}"),
        (28, 132, f"the file ends exactly before {SECOND}: expected 452 bytes in all, found 132.\n"
         f"The file may hold only a trunk to start training from.\n{SHORT}"),
        (12, 68, f"the file ends inside {FIRST}: expected 452 bytes in all, found 68.\n{SHORT}"),
        (0, 20, f"the file ends exactly before {FIRST}: expected 452 bytes in all, found 20.\n"
         f"The file may hold only a trunk to start training from.\n{SHORT}"),
    ],
)  # fmt: skip
def test_a_file_of_another_size_is_told_with_its_numbers(net, tmp_path, numbers, offset, message):
    path = write(tmp_path / "a.weights", numbers)
    with pytest.raises(WeightsError) as caught:
        read_network(net.cfg, path)
    assert str(caught.value) == f"{path}: {message}Do: darknet2caffe inspect small.cfg {path}"
    assert (caught.value.offset, caught.value.expected, caught.value.found) == (offset, 452, 20 + 4 * numbers)


NOT_FINITE = "it is not a finite number"
INFINITE = (np.inf, -np.inf)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        *((5, value, f"scales[1] of {FIRST}, at byte 40, is {value}: {NOT_FINITE}") for value in (np.nan, *INFINITE)),
        *(
            (107, value, f"weights[63] of {SECOND}, at byte 448, is {value}: {NOT_FINITE}")
            for value in (np.nan, *INFINITE)
        ),
        (0, np.nan, f"biases[0] of {FIRST}, at byte 20, is nan: {NOT_FINITE}"),
        (12, -2, f"rolling_variance[0] of {FIRST}, at byte 68, is -2.0: it is negative, which no variance can be"),
        (14, -1, f"rolling_variance[2] of {FIRST}, at byte 76, is -1.0: it is negative, which no variance can be"),
        (15, -1, f"rolling_variance[3] of {FIRST}, at byte 80, is -1.0: it is negative, which no variance can be"),
        (30, -np.inf, f"biases[2] of {SECOND}, at byte 140, is -inf: {NOT_FINITE}"),
    ],
)
def test_a_number_that_cannot_be_is_told_with_its_place(net, tmp_path, place, value, message):
    values = np.arange(1, 109, dtype="<f4")
    values[place] = value
    path = write(tmp_path / "a.weights", values)
    with pytest.raises(WeightsError) as caught:
        read_network(net.cfg, path)
    assert str(caught.value) == (
        f"{path}: {message}.\nCauses: (1) the file is damaged; (2) the two files belong to different networks; (3) the training"
        f" diverged.\nDo: darknet2caffe inspect small.cfg {path}"
    )
    assert (caught.value.offset, caught.value.layer) == (20 + 4 * place, int(place >= 28))


@pytest.mark.parametrize("size", [0, 3, 15, 16, 19])
def test_a_file_shorter_than_its_header_is_told(net, tmp_path, size):
    path = tmp_path / "a.weights"
    path.write_bytes(Header().to_bytes()[:size])
    with pytest.raises(WeightsError) as caught:
        read_network(net.cfg, path)
    assert str(caught.value) == f"{path}: the file has {size} bytes; a darknet weights file has a header of 16 or 20."
    assert caught.value.offset == size


@pytest.mark.parametrize(
    ("major", "minor", "dialect", "wide", "transposed"),
    [
        (0, 0, "pjreddie", False, False),
        (0, 1, "pjreddie", False, False),
        (0, 2, "pjreddie", True, False),
        (1, 0, "pjreddie", True, False),
        (0, 999, "pjreddie", True, False),
        (0, 1000, "pjreddie", False, False),
        (0, 1001, "pjreddie", False, True),
        (999, 0, "pjreddie", True, False),
        (1000, 0, "pjreddie", False, False),
        (1001, 0, "pjreddie", False, True),
        (-1, 12, "pjreddie", True, False),
        (0, 1, "alexeyab", False, False),
        (1000, 0, "alexeyab", True, False),
        (0, 1001, "alexeyab", True, True),
    ],
)
def test_the_versions_at_which_the_header_changes(major, minor, dialect, wide, transposed):
    """src/parser.c: ``major * 10 + minor >= 2``, for pjreddie's both below 1000 too; transposed above 1000."""
    header = Header(major, minor, dialect=dialect)
    assert (header.wide_seen, header.transposed, header.size_bytes) == (wide, transposed, 20 if wide else 16)
