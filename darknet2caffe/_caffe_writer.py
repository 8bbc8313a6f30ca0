"""Writer of a caffe network: layers are written at once, blobs when the file is saved."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.atomic import atomic_path
from pytrtplugins.utils.optional import require

from ._onnx_writer import Constant, Options, length_delimited
from .caffe_schema import messages
from .layers import Layer, PluginLayer
from .network import INPUT_NAME, Network
from .weights import FloatArray

__all__ = ["CaffeWriter", "corner", "pooled_size"]

MAX_BYTES = 2**31 - 2**20
"""protobuf reads no file of 2 GiB; a little is left for what is not a blob."""


class CaffeWriter:
    """Layers and blobs of one network; only layer types of BVLC's caffe, and plugins.

    A layer is written in place of its input only where nobody else reads that: caffe's Reshape, and Concat of one blob,
    share their input's array.
    """

    def __init__(self, network: Network, options: Options) -> None:
        self.network, self.options = network, options
        plugins = {type(layer.plugin) for layer in network.layers if isinstance(layer, PluginLayer)}
        self.messages = messages(tuple(sorted(plugins, key=lambda plugin: plugin.plugin_key())))
        self.net = self.messages["NetParameter"](name=network.name)
        self.blobs: list[list[Constant]] = []

    def write(self, write_layer: Callable[[Layer, CaffeWriter], None]) -> None:
        """Write all layers. Unread results are silenced, since caffe would treat them as outputs."""
        network = self.network
        data = self.layer("Input", [], INPUT_NAME)
        data.input_param.shape.add(dim=[self.options.batch, *network.dims])
        read = {network.tensor_name(index) for layer in network.layers for index in layer.inputs}
        read |= {layer.name for layer in network.outputs}
        for layer in network.layers:
            if not layer.is_identity:
                write_layer(layer, self)
                if layer.name not in read:
                    self.silence(layer.name)
        for layer in network.outputs:
            if layer.is_identity:
                self.identity(network.tensor_name(layer.index), layer.name)

    def refuse(self, layer: Layer, reason: str) -> NoReturn:
        """Raise the error for a layer that caffe cannot express."""
        raise UsageError(
            f"layer {layer.index} ({layer.type}, line {layer.line} of {self.network.cfg.path}) cannot be written for"
            f" caffe: {reason}.\nDo: use the ONNX file.",
            layer=layer.index,
        )

    def bottoms(self, layer: Layer) -> list[str]:
        """The blobs that a layer reads."""
        return [self.network.tensor_name(index) for index in layer.inputs]

    # -- layers of caffe ---------------------------------------------------------------------------------------

    def layer(self, kind: str, bottoms: Sequence[str], *tops: str, name: str = "") -> Any:
        """Add a layer, by default with its first top's name."""
        self.blobs.append([])
        return self.net.layer.add(type=kind, name=name or tops[0], bottom=bottoms, top=tops)

    def blob(self, dims: tuple[int, ...], make: Callable[[], FloatArray]) -> None:
        """Add a blob to the last layer, computed when the file is written."""
        self.blobs[-1].append(Constant("", dims, make))

    def array(self, *arrays: FloatArray) -> None:
        """Add arrays as blobs to the last layer."""
        for array in arrays:
            self.blob(array.shape, lambda array=array: array)  # type: ignore[misc]

    def silence(self, blob: str) -> None:
        """Silence an unread blob; one per layer, since OpenCV 4 crashes on a Silence of two."""
        self.layer("Silence", [blob], name=f"{blob}.silence")

    def identity(self, bottom: str, top: str) -> None:
        """Copy a blob to another name, by Power."""
        self.power(bottom, top)

    def power(
        self, bottom: str, top: str, *, scale: float = 1, shift: float = 0, power: float = 1, name: str = ""
    ) -> None:
        """(scale · x + shift) to the power."""
        fields = {"scale": (scale, 1), "shift": (shift, 0), "power": (power, 1)}
        target = self.layer("Power", [bottom], top, name=name or f"{top}.power").power_param
        for field, (value, default) in fields.items():
            if value != default:
                setattr(target, field, value)

    def reshape(self, bottom: str, top: str, dims: Sequence[int]) -> None:
        """Reshape a blob; 0 keeps a dim, -1 is inferred."""
        self.layer("Reshape", [bottom], top, name=f"{top}.dims").reshape_param.shape.dim.extend(dims)

    def product(self, bottoms: Sequence[str], top: str, name: str = "") -> None:
        """Value by value."""
        self.layer("Eltwise", bottoms, top, name=name).eltwise_param.operation = 0

    def slice(self, bottom: str, top: str, axis: int, begin: int, end: int, size: int) -> str:
        """A part of one axis; returns the blob it is in, which is ``bottom`` where all is kept."""
        if (begin, end) == (0, size):
            return bottom
        tops = [*([f"{top}.before"] if begin else []), top, *([f"{top}.after"] if end < size else [])]
        target = self.layer("Slice", [bottom], *tops, name=f"{top}.slice").slice_param
        target.axis = axis
        target.slice_point.extend(point for point in (begin, end) if 0 < point < size)
        for name in tops:
            if name != top:
                self.silence(name)
        return top

    def cut(self, bottom: str, top: str, axis: int, points: Sequence[int]) -> list[str]:
        """Slice an axis at the given points; returns the blobs ``top0``, ``top1`` and so on."""
        tops = [f"{top}{number}" for number in range(len(points) + 1)]
        target = self.layer("Slice", [bottom], *tops, name=f"{top}.slice").slice_param
        target.axis = axis
        target.slice_point.extend(points)
        return tops

    def depthwise(self, kind: str, bottom: str, top: str, kernel: FloatArray, channels: int, stride: int) -> None:
        """A Convolution or Deconvolution of each channel alone, all with one (h, w) kernel."""
        parameters = self.layer(kind, [bottom], top).convolution_param
        parameters.num_output = parameters.group = channels
        parameters.bias_term = False
        if kernel.shape[0] == kernel.shape[1]:
            parameters.kernel_size.append(kernel.shape[0])
        else:
            parameters.kernel_h, parameters.kernel_w = kernel.shape
        parameters.stride.append(stride)
        self.blob((channels, 1, *kernel.shape), lambda: np.tile(kernel, (channels, 1, 1, 1)))

    def pointwise_convolution(self, bottom: str, top: str, matrix: FloatArray, bias: FloatArray | None = None) -> None:
        """Write a 1x1 convolution with a matrix of (outputs, inputs)."""
        target = self.layer("Convolution", [bottom], top).convolution_param
        target.num_output, target.bias_term = len(matrix), bias is not None
        target.kernel_size.append(1)
        self.array(matrix[:, :, None, None], *([] if bias is None else [bias]))

    # -- files -------------------------------------------------------------------------------------------------

    def save(self, text: Path, binary: Path) -> None:
        """Write both files, whole or not at all."""
        text_format = require("google.protobuf.text_format", extra="caffe", package="protobuf")
        size = sum(constant.size_bytes for blobs in self.blobs for constant in blobs)
        if size > MAX_BYTES:
            raise UsageError(
                f"{self.network.name}: its weights have {size:,} bytes, and nobody reads a .caffemodel of 2 GiB.\n"
                "Do: use the ONNX file."
            )
        with contextlib.ExitStack() as stack:
            written_text, written_binary = (stack.enter_context(atomic_path(path)) for path in (text, binary))
            with written_binary.open("wb") as file:
                self._stream(file)
            written_text.write_text(text_format.MessageToString(self.net), encoding="utf-8")

    def _stream(self, file: IO[bytes]) -> None:
        """Write layer after layer, with one blob in memory.

        A repeated field is its elements one after the other: NetParameter.layer is field 100, LayerParameter.blobs 7,
        BlobProto.data 5.
        """
        file.write(self.messages["NetParameter"](name=self.net.name).SerializeToString())
        for layer, blobs in zip(self.net.layer, self.blobs, strict=True):
            heads = []
            for constant in blobs:
                blob = self.messages["BlobProto"]()
                blob.shape.dim.extend(constant.dims)
                head = blob.SerializeToString() + length_delimited(5, constant.size_bytes)
                heads.append(length_delimited(7, len(head) + constant.size_bytes) + head)
            start = layer.SerializeToString()
            total = len(start) + sum(map(len, heads)) + sum(constant.size_bytes for constant in blobs)
            file.write(length_delimited(100, total) + start)
            for head, constant in zip(heads, blobs, strict=True):
                file.write(head)
                file.write(constant.data().data)


def pooled_size(into: int, pad: int, size: int, stride: int, *, padded: bool, up: bool = True) -> int:
    """How many windows caffe's pooling has, rounded up or down (BVLC/caffe, src/caffe/layers/pooling_layer.cpp, Reshape).

    If one of the two axes is padded, caffe leaves out the last window that lies outside of the map on either axis.
    """
    left = into + 2 * pad - size
    out = (-(-left // stride) if up else left // stride) + 1
    return out - 1 if padded and (out - 1) * stride >= into + pad else out


def corner(h: int, w: int, y: int = 0, x: int = 0) -> FloatArray:
    """A kernel that is 1 at one tap and 0 elsewhere."""
    window = np.zeros((h, w), np.float32)
    window[y, x] = 1
    return window
