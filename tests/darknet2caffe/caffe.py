"""OpenCV's caffe importer, as an oracle for written files; a plugin for layers that caffe does not have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from google.protobuf import text_format

from darknet2caffe import Network, to_caffe
from darknet2caffe.caffe_schema import messages
from pytrtplugins import Plugin, plugin
from pytrtplugins.layers import Region, Reorg, Yolo

PLUGINS = (Region, Reorg, Yolo)


@plugin(namespace="tests.from_caffe")
class ShuffleChannel(Plugin):
    """Channels of each group, one from each in turn."""

    group: int = 1
    names: tuple[str, ...] = ()
    whole: bool = False

    def output_dims(self, x):
        return x

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.group, c // self.group, h, w).swapaxes(1, 2).reshape(x.shape)


def read_prototxt(path: Path) -> Any:
    """The file as caffe's own messages."""
    return text_format.Parse(path.read_text(), messages(PLUGINS)["NetParameter"]())


def run_opencv(text: Path, binary: Path, x: Any, blob: str) -> np.ndarray[Any, Any]:
    """A blob's values; in OpenCV a blob has the name of the last layer that writes it."""
    net = cv2.dnn.readNetFromCaffe(str(text), str(binary))
    net.setInput(x, "data")
    writer = [layer for layer in read_prototxt(text).layer if blob in layer.top][-1]
    (values,) = net.forwardAndRetrieve([writer.name])
    return np.asarray(values[list(writer.top).index(blob)])


def opencv(network: Network, prefix: Path, x: Any, **options: Any) -> np.ndarray[Any, Any]:
    """Write the network and let OpenCV compute its last output."""
    return run_opencv(*to_caffe(network, prefix, **options), x, network.outputs[-1].name)


def write_caffe(folder: Path, text: str, **weights: Sequence[Any]) -> tuple[Path, Path]:
    """A prototxt, and a caffemodel with these blobs of layers."""
    (folder / "net.prototxt").write_text(text)
    net = messages(())["NetParameter"]()
    for name, arrays in weights.items():
        layer = net.layer.add(name=name)
        for array in arrays:
            array = np.asarray(array, np.float32)
            layer.blobs.add(data=array.tobytes()).shape.dim.extend(array.shape)
    (folder / "net.caffemodel").write_bytes(net.SerializeToString())
    return folder / "net.prototxt", folder / "net.caffemodel"
