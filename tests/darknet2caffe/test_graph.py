"""The image of a network: all of it, once, readable, and the same each time."""

from __future__ import annotations

import re
import subprocess
import sys
import webbrowser
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from darknet2caffe import read_network
from darknet2caffe.cfg import parse_cfg
from darknet2caffe.graph import draw_svg, kind_of, lay_out, open_svg, write_svg
from darknet2caffe.layers import dims_text
from pytrtplugins.errors import MissingExtraError
from tests.darknet2caffe.networks import network, published, sections

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"

IMAGED = sections("""[net] width=8 height=12 channels=3
[convolutional] batch_normalize=1 filters=4 size=3 pad=1 activation=leaky
[maxpool] size=2 stride=2
[convolutional] filters=4 activation=linear
[shortcut] from=-2
[upsample] stride=2
[route] layers=-1,0
[convolutional] filters=18 activation=linear
[region] classes=4 num=2
[dropout]
[route] layers=-4,0
[avgpool]
[softmax]
""")
"""A network with every kind of box, two lanes of curves, and two outputs."""


def boxes(image: str) -> dict[str, ElementTree.Element]:
    """The groups of layers by the first line of what they say under the mouse; the input's is ``data``."""
    found = {}
    for group in ElementTree.fromstring(image.encode()).iter(f"{SVG}g"):
        if group.get("class", "").startswith("layer"):
            title = group.findtext(f"{SVG}title", "data").partition(",")[0]
            assert title not in found
            found[title] = group
    return found


def edges(image: str) -> list[tuple[int, int]]:
    """Pairs of layers that arrows join, -1 for the input."""
    root = ElementTree.fromstring(image.encode())
    titles = (path.findtext(f"{SVG}title") for path in root.iter(f"{SVG}path"))
    pairs = (title.replace("data", "-1").split(" → ") for title in titles if title)
    return sorted((int(source), int(target)) for source, target in pairs)


def read_edges(net) -> list[tuple[int, int]]:
    return sorted({(source, layer.index) for layer in net.layers for source in layer.inputs})


@st.composite
def networks(draw):
    """Networks that read layers before them at random."""
    sections = ["[net]\nwidth=4\nheight=4\nchannels=2\n[activation]"]
    for index in range(1, draw(st.integers(1, 30))):
        before = st.integers(0, index - 1)
        kind = draw(st.sampled_from(["route", "shortcut", "activation"]))
        if kind == "route":
            named = draw(st.lists(before, min_size=1, max_size=4))
            sections.append(f"[route]\nlayers={','.join(map(str, named))}\n[convolutional]\nfilters=2\nsize=1")
        else:
            sections.append(f"[shortcut]\nfrom={draw(before)}" if kind == "shortcut" else "[activation]")
    return read_network(parse_cfg("\n".join(sections)))


@given(networks())
def test_every_layer_is_drawn_once_and_every_edge(net):
    image = draw_svg(net)
    assert list(boxes(image)) == ["data", *(layer.name for layer in net.layers)]
    assert edges(image) == read_edges(net)


@given(networks())
def test_curves_in_one_lane_never_share_a_stretch(net):
    curves = lay_out(net)
    for curve in curves:
        assert list(curve.targets) == sorted(set(curve.targets))
        for other in curves:
            if other is not curve and other.lane == curve.lane:
                assert curve.targets[-1] <= other.source or other.targets[-1] <= curve.source


def test_curves_far_from_the_boxes_are_drawn_below_those_near():
    text = (
        "[net]\nwidth=4\nheight=4\nchannels=3\n"
        + "[activation]\n" * 4
        + "".join(f"[route]\nlayers=-1,{place}\n" for place in (2, 1, 0))
    )
    net = read_network(parse_cfg(text))
    lanes = {curve.source: curve.lane for curve in lay_out(net)}
    assert lanes == {2: 0, 1: 1, 0: 2}
    drawn = re.findall(r"<title>(\d) → \d</title>", draw_svg(net))
    assert [source for source in drawn if source in "012"][:3] == ["0", "1", "2"]


@given(networks())
def test_no_curve_crosses_a_box_and_all_is_inside_the_image(net):
    image = draw_svg(net)
    root = ElementTree.fromstring(image.encode())
    right = max(float(r.get("x")) + float(r.get("width")) for g in boxes(image).values() for r in g.iter(f"{SVG}rect"))
    for path in root.iter(f"{SVG}path"):
        if "edge" in path.get("class", "") and "Q" in path.get("d"):
            xs = [*re.findall(r"[MH](-?[\d.]+)", path.get("d")), *re.findall(r"Q(-?[\d.]+)", path.get("d"))]
            assert right <= min(map(float, xs))
            assert max(map(float, xs)) < float(root.get("width"))
    bottoms = [float(r.get("y")) + float(r.get("height")) for g in boxes(image).values() for r in g.iter(f"{SVG}rect")]
    assert max(bottoms) < float(root.get("height"))


def test_a_box_says_what_the_layer_is_and_gives():
    net = network()
    for layer in net.layers:
        group = boxes(draw_svg(net))[layer.name]
        texts = [text.text for text in group.iter(f"{SVG}text")]
        assert texts[:2] == [str(layer.index), layer.type]
        assert (dims_text(layer.dims) if layer.is_map else "16") in texts
        assert ("output" in texts) == (layer in net.outputs)
        assert group.get("class") == f"layer {kind_of(layer)}"


def test_details_are_under_the_mouse():
    title = boxes(draw_svg(network()))["0_convolutional"].findtext(f"{SVG}title")
    lines = title.splitlines()
    assert lines[1:3] == ["3 x 3 / 1, leaky", "32 x 48 x 3 → 32 x 48 x 8"]
    assert lines[3:] == ["batch normalization", "248 parameters", "0.001 BFLOPs"]


@pytest.mark.parametrize(
    ("type_", "kind"),
    [("convolutional", "convolution"), ("maxpool", "pooling"), ("upsample", "pooling"), ("route", "route"),
     ("shortcut", "sum"), ("yolo", "head"), ("region", "head"), ("softmax", "head"), ("dropout", "other")],
)  # fmt: skip
def test_colours_go_by_what_a_layer_is(type_, kind):
    assert {kind_of(layer) for layer in network().layers if layer.type == type_} == {kind}


def test_the_legend_names_the_colours_that_are_used():
    text = "[net]\nwidth=4\nheight=4\nchannels=3\n[maxpool]\nsize=2\n"
    image = draw_svg(read_network(parse_cfg(text)))
    assert ">pooling, resizing<" in image
    assert ">route<" not in image


def test_long_facts_are_shortened_in_the_box_and_whole_under_the_mouse():
    named = ",".join(["0"] * 20)
    text = f"[net]\nwidth=4\nheight=4\nchannels=3\n[maxpool]\nsize=2\n[route]\nlayers={named}\n"
    group = boxes(draw_svg(read_network(parse_cfg(text))))["1_route"]
    assert "layers 0 0 0 0 0 0 0 0 0 0 0 …" in [item.text for item in group.iter(f"{SVG}text")]
    assert "layers " + " ".join(["0"] * 20) in group.findtext(f"{SVG}title")


@pytest.mark.parametrize("name", ["a<b>&amp;\"c'", "]]>--><!--", "tab\tand\x1bescape", "\udcff", "網"])
def test_any_name_of_a_cfg_gives_a_image(name):
    cfg = parse_cfg("[net]\nwidth=4\nheight=4\nchannels=3\n[maxpool]\nsize=2\n", name + ".cfg")
    root = ElementTree.fromstring(draw_svg(read_network(cfg)).encode())
    shown = "".join(character if character.isprintable() else "�" for character in name)
    assert [root.findtext(f"{SVG}title"), root.findtext(f"{SVG}text")] == [shown, shown]


def test_the_same_network_gives_the_same_bytes_in_any_process(tmp_path):
    cfg = published("yolov3-tiny")
    here = draw_svg(read_network(cfg)).encode()
    code = "import sys, darknet2caffe.graph as g, darknet2caffe as d; g.write_svg(d.read_network(sys.argv[1]), sys.argv[2])"
    for seed in ("1", "2"):
        there = tmp_path / f"{seed}.svg"
        command = [sys.executable, "-c", code, str(cfg), str(there)]
        subprocess.run(command, check=True, cwd=ROOT, env={"PYTHONHASHSEED": seed})
        assert there.read_bytes() == here


@pytest.mark.parametrize(("name", "layers"), [("densenet201", 305), ("resnet152", 205), ("yolov3", 107)])
def test_long_networks_are_drawn_whole(name, layers):
    net = read_network(published(name))
    image = draw_svg(net)
    assert len(boxes(image)) == layers + 1
    assert edges(image) == read_edges(net)


def test_the_image_is_saved_as_it_is_drawn(tmp_path):
    write_svg(network(), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text(encoding="utf-8") == draw_svg(network())
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]


@pytest.mark.parametrize("shown", [True, False])
def test_the_image_opens_in_the_browser(tmp_path, monkeypatch, shown):
    asked = []
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(webbrowser, "open", lambda address: asked.append(address) or shown)
    path, answer = open_svg(network())
    assert answer == shown
    assert asked == [path.as_uri()]
    assert path.read_text(encoding="utf-8") == draw_svg(network())


def test_without_the_library_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "drawsvg", None)
    with pytest.raises(
        MissingExtraError, match=r'needs the package \'drawsvg\'.*\n.*pip install "pytrtplugins\[cli\]"'
    ):
        draw_svg(network())


def outline(element: ElementTree.Element, indent: str = "") -> Iterator[str]:
    """An element and those inside it, a line each: tag, attributes in alphabetical order, text."""
    attributes = "".join(f" {key}={value}" for key, value in sorted(element.attrib.items()))
    text = " ".join((element.text or "").split())
    yield f"{indent}{element.tag.removeprefix(SVG)}{attributes}{f': {text}' if text else ''}"
    for inner in element:
        yield from outline(inner, indent + " ")


def test_places_and_sizes_stay_as_they_were_written_down():
    """After a change of the drawing, look at the image, and write ``image.txt`` anew from `outline`, a line each."""
    image = ElementTree.fromstring(draw_svg(read_network(parse_cfg(IMAGED, "small.cfg"))).encode())
    expected = Path(__file__).with_name("image.txt").read_text(encoding="utf-8")
    assert list(outline(image)) == expected.splitlines()
