"""Every cfg of Debian's package darknet, converted and compared with libdarknet layer by layer.

python -m tests.darknet2caffe.table                                  print the table
python -m tests.darknet2caffe.table --docs docs/lab/checks_darknet.md      print it, and write it there
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnx
import onnxruntime

from darknet2caffe import Network, from_caffe, read_network, to_caffe, write_darknet, write_onnx
from darknet2caffe.layers import PluginLayer, RegionLayer
from pytrtplugins.errors import CfgError
from tests.darknet2caffe.caffe import opencv
from tests.darknet2caffe.networks import CFGS, darknet_output, first_layers, image
from tests.measures import relative_error
from tests.oracles.libdarknet import FloatArray, LibDarknet

START, END = "<!-- table of cfgs -->", "<!-- end of the table -->"


@dataclass(frozen=True)
class Row:
    """One cfg.

    Attributes:
        name: Without suffix.
        size: Input, width x height x channels; the reason where the cfg is refused.
        layers: Number of layers.
        weights: Number of weights.
        heads: Error of each output.
        worst: Largest error of all layers, and where.
        caffe: Error of the caffe files in OpenCV, at the last layer before one that is a plugin; NaN where OpenCV ends.
    """

    name: str
    size: str
    layers: int = 0
    weights: int = 0
    heads: tuple[float, ...] = ()
    worst: tuple[float, str] = (0.0, "")
    caffe: tuple[float, str] = (0.0, "")

    def text(self) -> str:
        if not self.layers:
            return f"| {self.name} | refused: {self.size} | | | | | |"
        heads = ", ".join(f"{error:.1e}" for error in self.heads)
        worst, caffe = (f"{error:.1e} ({place})" for error, place in (self.worst, self.caffe))
        if math.isnan(self.caffe[0]):
            caffe = "OpenCV ends"
        return f"| {self.name} | {self.size} | {self.layers} | {self.weights:,} | {heads} | {worst} | {caffe} |"


def compare(
    libdarknet: LibDarknet, network: Network, folder: Path
) -> tuple[dict[str, float], dict[str, float], FloatArray]:
    """Errors of the outputs and of every layer, relative to the oracle's largest magnitude, and its last output; the model runs inlined.

    A region with a tree is left out: the oracle's CPU code divides by a temperature of 0 there.
    """
    write_darknet(network, folder / "a.cfg", folder / "a.weights")
    write_onnx(network, folder / "a.onnx", custom_layers="inline")
    model = onnx.load(folder / "a.onnx")
    known = {value.name for value in model.graph.output}
    wanted = {network.tensor_name(layer.index) for layer in network.layers if layer.has_output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(wanted - known - {"data"}))
    onnx.save(model, folder / "a.onnx")
    del model
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 2
    session = onnxruntime.InferenceSession(str(folder / "a.onnx"), options, providers=["CPUExecutionProvider"])
    x = image(network)
    found = dict(zip((value.name for value in session.get_outputs()), session.run(None, {"data": x}), strict=True))
    found["data"] = x
    errors: dict[str, float] = {}
    with libdarknet.load(folder / "a.cfg", folder / "a.weights") as oracle:
        oracle.predict(x[0])
        for layer in network.layers:
            if layer.has_output and not (isinstance(layer, RegionLayer) and layer.plugin.fields()["tree"]):
                tensor = found[network.tensor_name(layer.index)]
                errors[layer.name] = relative_error(tensor, oracle.layer_output(layer.index))
        last = oracle.layer_output(network.outputs[-1].index)
    return {layer.name: errors[layer.name] for layer in network.outputs if layer.name in errors}, errors, last


def compare_caffe(
    libdarknet: LibDarknet, network: Network, path: Path, folder: Path, last: FloatArray
) -> tuple[float, str]:
    """Error of the caffe files at the last layer before one that OpenCV does not know, and that layer's name.

    The files of the whole network are written too, and read back as the same outputs. Its last output is what the oracle gave.
    """
    with_plugins = from_caffe(*to_caffe(network, folder / "whole"))
    if [value.name for value in with_plugins.graph.output] != [layer.name for layer in network.outputs]:
        raise RuntimeError(f"{network.name}: the caffe files have other outputs")
    plugins = [layer.index for layer in network.layers if isinstance(layer, PluginLayer)]
    trunk = first_layers(path, plugins[0]).with_random_weights(1) if plugins else network
    x = image(trunk)
    expected = darknet_output(libdarknet, trunk, folder, x) if plugins else last
    try:
        found = opencv(trunk, folder / "trunk", x)
    except cv2.error:
        return float("nan"), ""
    return relative_error(found, expected), trunk.outputs[-1].name


def row(libdarknet: LibDarknet, path: Path) -> Row:
    """Convert one cfg with random weights and compare it."""
    try:
        network = read_network(path, dialect="pjreddie").with_random_weights(1)
    except CfgError as error:
        return Row(path.stem, str(error).split(": ", 1)[1].split(". ")[0])
    with tempfile.TemporaryDirectory() as folder:
        heads, errors, last = compare(libdarknet, network, Path(folder))
        caffe = compare_caffe(libdarknet, network, path, Path(folder), last)
    c, h, w = network.dims
    count = sum(int(np.prod(shape)) for layer in network.layers for _, shape in layer.parameters)
    worst = max(errors, key=errors.__getitem__)
    size = f"{w} x {h} x {c}"
    return Row(path.stem, size, len(network.layers), count, tuple(heads.values()), (errors[worst], worst), caffe)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, help="Markdown file in which to replace the table")
    parser.add_argument("names", nargs="*", help="cfgs to compare, without suffix; all by default")
    chosen = parser.parse_args(arguments)
    paths = [CFGS / f"{name}.cfg" for name in chosen.names] or sorted(CFGS.glob("*.cfg"))
    libdarknet = LibDarknet()
    lines = [
        "| cfg | input | layers | weights | error of each output | largest error of a layer | caffe files in OpenCV 4 |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    rows = []
    for path in paths:
        rows.append(row(libdarknet, path))
        lines.append(rows[-1].text())
        print(lines[-1], flush=True)
    if chosen.docs:
        before, _, rest = chosen.docs.read_text().partition(START)
        after = rest.partition(END)[2]
        chosen.docs.write_text("\n".join([before + START, *lines, END]) + after)
    return int(any(max(row.worst[0], row.caffe[0]) > 1e-4 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
