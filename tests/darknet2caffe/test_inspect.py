"""The table against what libdarknet prints while it loads the same cfg."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from dataclasses import FrozenInstanceError, dataclass
from hashlib import sha256

import pytest

from darknet2caffe import read_network
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.inspect import Row, describe, rows, table
from darknet2caffe.layers import Layer
from pytrtplugins.cuda.cache import cached_bytes
from tests.darknet2caffe.networks import network, published, sections

LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).load_network(sys.argv[2].encode(), None, 0)"
DEFAULT = re.compile(r"\w+: Using default '[^']*'\n")  # which darknet says in the middle of a row
LINE = re.compile(r" *(\d+) (\w+)(.*)")
NAMES = {
    "convolutional": "conv",
    "maxpool": "max",
    "shortcut": "res",
    "avgpool": "avg",
    "region": "detection",
    "deconvolutional": "deconv",
}

RARE = sections("""[net] width=24 height=24 channels=3
[crop] crop_height=20 crop_width=22
[deconvolutional] filters=6 size=3 stride=2 padding=1
[local] filters=4 size=3 stride=3
[normalization] size=5
[batchnorm]
[l2norm]
[activation] activation=elu
[upsample] stride=4
[upsample] stride=-2
[reorg] stride=2 extra=7
[connected] output=12
[dropout]
[softmax]
[logistic]
[cost]
""")


def printed(libdarknet, cfg) -> list[tuple[int, str, list[str]]]:
    """Index, type and the other numbers of each line of darknet's table, which is kept where compiled kernels are."""

    def load() -> bytes:  # which draws millions of weights
        command = [sys.executable, "-c", LOAD, str(libdarknet.path), str(cfg)]
        return subprocess.run(command, capture_output=True, check=True).stderr

    digests = [sha256(path.read_bytes()).hexdigest() for path in (libdarknet.path, cfg)]
    text = cached_bytes(["darknet's table", LOAD, *digests], ".txt", load).decode()
    matches = map(LINE.fullmatch, DEFAULT.sub("", text).splitlines())
    return [(int(m[1]), m[2], re.findall(r"-?\d+(?:\.\d+)?", m[3])) for m in matches if m]


def numbers(*cells: str) -> list[str]:
    return re.findall(r"-?\d+(?:\.\d+)?", " ".join(cells))


def expected(row: Row) -> list[str]:
    """The numbers that darknet has in a row of this type, taken from ours."""
    if row.type == "convolutional":
        window = row.size.partition(",")[0]  # darknet does not print the groups
        return numbers(row.filters, window, row.input, row.output, f"{row.bflops:.3f}")
    if row.type in ("maxpool", "reorg", "upsample"):
        return numbers(row.size, row.input, row.output)
    if row.type == "shortcut":
        return [*numbers(row.size)[1:], *numbers(row.input, row.output)]
    if row.type == "route":
        return numbers(row.size)
    if row.type == "avgpool":
        return [*numbers(row.input), numbers(row.output)[-1]]
    if row.type in ("softmax", "cost"):
        return numbers(row.output)
    assert row.type in ("region", "yolo")
    return []


@pytest.mark.parametrize("name", ["yolov2", "yolov3-tiny", "densenet201", "resnext50", "resnet18", "tiny"])
def test_the_table_has_darknets_numbers_row_by_row(libdarknet, name):
    cfg = published(name)
    ours = [(row.index, NAMES.get(row.type, row.type), expected(row)) for row in rows(read_network(cfg))]
    assert ours == printed(libdarknet, cfg)


def test_the_table_of_rare_layers_has_each_number_that_darknet_prints(libdarknet, tmp_path):
    cfg = tmp_path / "rare.cfg"
    cfg.write_text(RARE)
    ours, theirs = rows(read_network(cfg)), printed(libdarknet, cfg)
    assert [index for index, _, _ in theirs] == [row.index for row in ours]
    for row, (_, _, found) in zip(ours, theirs, strict=True):
        if row.type == "dropout":
            found = found[1:]  # the probability, which changes nothing at prediction
        counts = [str(math.prod(map(int, numbers(cell)))) for cell in (row.input, row.output)]
        known = Counter([*counts, *numbers(row.filters, row.size, row.input, row.output)])
        assert not Counter(found) - known, (row, found)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[convolutional]\nfilters=4\nsize=3\npad=1\ngroups=2", "3 x 3 / 1, 2 groups"),
        ("[deconvolutional]\nfilters=4\nsize=2\nstride=2", "2 x 2 / 2"),
        ("[local]\nsize=3", "3 x 3 / 1"),
        ("[route]\nlayers=-1", "layer 1"),
        ("[route]\nlayers=-1, 0", "layers 1 0"),
        ("[route]\nlayers=1\ngroups=2\ngroup_id=1", "layer 1, part 2 of 2"),
        ("[shortcut]\nfrom=0", "layers 1 + 0"),
        ("[sam]\nfrom=0", "layers 1 x 0"),
        ("[upsample]\nstride=2", "x 2"),
        ("[upsample]\nstride=-2", "/ 2"),
        ("[reorg]\nstride=2", "/ 2"),
        ("[reorg]\nstride=2\nreverse=1", "x 2"),
        ("[reorg]\nstride=2\nflatten=1", "channels last"),
        ("[reorg]\nstride=2\nflatten=1\nreverse=1", "channels first"),
        ("[reorg]\nextra=9", "9 zeros more"),
        ("[reorg3d]\nstride=2", "/ 2"),
        ("[normalization]\nsize=3", "3 channels"),
        ("[activation]\nactivation=elu", "elu"),
        ("[logistic]", ""),
        ("[softmax]\ngroups=2", "2 groups"),
        ("[softmax]", ""),
        ("[avgpool]", ""),
        ("[detection]\nside=2\nclasses=60\nnum=1\ncoords=3", "60 classes"),
        ("[region]\nclasses=3\nanchors=1,2", "3 classes"),
    ],
)
def test_the_column_size_says_what_a_layer_does(section, words):
    convolutions = "[convolutional]\nfilters=4\nsize=1\n" * 2
    side = "width=8\nheight=8"
    if section.startswith("[region]"):
        convolutions = convolutions.replace("filters=4", "filters=8")
    net = read_network(parse_cfg(f"[net]\n{side}\nchannels=4\n{convolutions}{section}\n"))
    assert describe(net.layers[-1]) == words


def test_a_layer_of_a_type_that_is_unknown_to_the_table_is_described_by_nothing():
    @dataclass(frozen=True)
    class Novel(Layer):
        type = "novel"

        @classmethod
        def read(cls, section, place):
            raise NotImplementedError

    assert describe(Novel(0, 1, (-1,), ((3, 4, 4),), (3, 4, 4))) == ""


def test_the_table_has_each_row_and_adds_up_operations_and_parameters():
    net, found = network(), rows(network())
    assert table(net).show_footer
    columns = {column.header: [*column.cells, column.footer] for column in table(net).columns}
    assert list(columns) == ["layer", "type", "filters", "size", "input", "output", "BFLOPs", "parameters"]
    count = sum(row.parameters for row in found)
    assert columns["BFLOPs"][-1] == f"{sum(row.bflops for row in found):.3f}"
    assert columns["parameters"] == [*(f"{row.parameters:,}" if row.parameters else "" for row in found), f"{count:,}"]
    assert columns["type"] == [*(row.type for row in found), "total"]


def test_a_row_cannot_be_changed():
    row = rows(network())[0]
    with pytest.raises(FrozenInstanceError):
        row.filters = "3"


def test_a_name_in_brackets_stays_as_it_is(tmp_path):
    (tmp_path / "[red]a.cfg").write_text("[net]\nwidth=4\nheight=4\nchannels=3\n[maxpool]\nsize=2\n")
    assert str(table(read_network(tmp_path / "[red]a.cfg")).title) == "[red]a: 4 x 4 x 3 → 0_maxpool"
