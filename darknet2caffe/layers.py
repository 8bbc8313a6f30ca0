"""Layer types of darknet: their keys, dims and parameters. Each fact is written here once; readers and writers ask."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pytrtplugins.errors import PluginError
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.plugin import Plugin

from .cfg import Section

__all__ = [
    "LAYER_TYPES",
    "Avgpool",
    "Convolutional",
    "Dropout",
    "Layer",
    "Maxpool",
    "Place",
    "PluginLayer",
    "RegionLayer",
    "ReorgLayer",
    "Route",
    "Shape",
    "Shortcut",
    "Softmax",
    "Upsample",
    "YoloLayer",
    "read_layer",
]

log = logging.getLogger(__name__)

Shape = tuple[int, int, int]
"""Channels, height and width of one image's map."""

IMAGE = -1
"""The index that stands for the network's input."""

MOST_ELEMENTS = 2**31 - 1  # darknet counts elements in a C int
ACTIVATIONS = ("leaky", "linear", "logistic", "relu")
_TRAINING_KEYS = frozenset(["truth", "onlyforward", "stopbackward", "dontsave", "learning_rate", "smooth"])

L = TypeVar("L", bound="Layer")


@dataclass(frozen=True)
class Place:
    """Where a layer stands: what is before it.

    Attributes:
        index: The layer's own index, from 0.
        image: Dims of the network's input.
        before: Dims of the layers before it.
    """

    index: int
    image: Shape
    before: Sequence[Shape]

    def dims(self, index: int) -> Shape:
        """Dims of a layer before this one, or of the image for -1."""
        return self.image if index == IMAGE else self.before[index]

    def absolute(self, section: Section, key: str, index: int) -> int:
        """Darknet's layer number as an absolute index: negative numbers count back from this layer.

        Raises:
            CfgError: there is no such layer before this one.
        """
        absolute = index if index >= 0 else self.index + index
        if not 0 <= absolute < self.index:
            valid = f"0 to {self.index - 1}" if self.index else "none, since this is the first layer"
            section.fail(
                f"{key}={index} means layer {absolute}, which is not before layer {self.index} (valid: {valid})",
                section.line_of(key),
            )
        return absolute


@dataclass(frozen=True)
class Layer:
    """One layer, with its dims worked out.

    Attributes:
        index: Darknet's index: the first layer after ``[net]`` is 0.
        line: Line of its section in the cfg.
        inputs: Absolute indices of the layers that it reads; -1 is the image.
        input_dims: Their dims (C, H, W).
        dims: Its own output's dims (C, H, W).
    """

    type: ClassVar[str]
    keys: ClassVar[frozenset[str]] = frozenset()
    training_keys: ClassVar[frozenset[str]] = frozenset()
    refused: ClassVar[Mapping[str, str]] = {}  # key → the only value at which it changes nothing

    index: int
    line: int
    inputs: tuple[int, ...]
    input_dims: tuple[Shape, ...]
    dims: Shape

    @classmethod
    def read(cls: type[L], section: Section, place: Place) -> L:
        """Make the layer from its section."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """``<index>_<type>``: the name of its output in converted files."""
        return f"{self.index}_{self.type}"

    @property
    def is_head(self) -> bool:
        """Whether its output is an output of the network."""
        return False

    @property
    def is_identity(self) -> bool:
        """Whether its output is its only input, unchanged."""
        return False

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Names and shapes of its parameters, in the order of the .weights file."""
        return ()

    @property
    def bflops(self) -> float:
        """Billions of multiplications and additions, as darknet counts them: convolutions only."""
        return 0.0


@dataclass(frozen=True)
class Convolutional(Layer):
    """``[convolutional]``: convolution, batch normalization or bias, activation."""

    type = "convolutional"
    keys = frozenset(["filters", "size", "stride", "pad", "padding", "groups", "activation", "batch_normalize"])
    training_keys = frozenset(["dot"])
    refused = {key: "0" for key in ("flipped", "binary", "xnor", "dontload", "dontloadscales", "numload", "antialiasing")}
    refused |= {"dilation": "1"}

    filters: int
    size: int
    stride: int
    padding: int
    groups: int
    activation: str
    batch_normalize: bool

    @classmethod
    def read(cls, section: Section, place: Place) -> Convolutional:
        c, h, w = place.dims(place.index - 1)
        filters = section.integer("filters", 1, least=1)
        size = section.integer("size", 1, least=1)
        stride = section.integer("stride", 1, least=1)
        padding = section.integer("padding", 0)
        if section.integer("pad", 0):
            padding = size // 2
        groups = section.integer("groups", 1, least=1)
        if c % groups or filters % groups:
            section.fail(
                f"groups={groups} must divide the input's {c} channels and the {filters} filters",
                section.line_of("groups"),
            )
        if filters * (c // groups) * size**2 > MOST_ELEMENTS:
            section.fail(
                f"filters={filters:,} of size {size} on {c:,} channels have {filters * (c // groups) * size**2:,} weights;"
                f" darknet counts to {MOST_ELEMENTS:,}",
                section.line_of("filters"),
            )
        dims = (filters, _window(section, h, 2 * padding, size, stride), _window(section, w, 2 * padding, size, stride))
        return cls(
            **_common(section, place, dims),
            filters=filters,
            size=size,
            stride=stride,
            padding=padding,
            groups=groups,
            activation=_activation(section, "logistic"),
            batch_normalize=bool(section.integer("batch_normalize", 0)),
        )

    @property
    def parameters(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        n, channels = self.filters, self.input_dims[0][0] // self.groups
        statistics = (("scales", (n,)), ("rolling_mean", (n,)), ("rolling_variance", (n,)))
        return (
            ("biases", (n,)),
            *(statistics if self.batch_normalize else ()),
            ("weights", (n, channels, self.size, self.size)),
        )

    @property
    def bflops(self) -> float:
        _, h, w = self.dims
        return 2.0 * self.filters * self.size**2 * (self.input_dims[0][0] // self.groups) * h * w / 1e9


@dataclass(frozen=True)
class Maxpool(Layer):
    """``[maxpool]``: what lies outside the map is ignored.

    Attributes:
        pads: Rows or columns added above, left, below and right, as darknet's loop reads them
            (src/maxpool_layer.c: it starts at ``-padding/2`` in C, and reads as far as the last window goes).
    """

    type = "maxpool"
    keys = frozenset(["size", "stride", "padding"])
    refused = {"maxpool_depth": "0", "antialiasing": "0"}

    size: int
    stride: int
    padding: int
    pads: tuple[int, int, int, int]

    @classmethod
    def read(cls, section: Section, place: Place) -> Maxpool:
        c, h, w = place.dims(place.index - 1)
        stride = section.integer("stride", 1, least=1)
        size = section.integer("size", stride, least=1)
        padding = section.integer("padding", size - 1)
        out_h, out_w = _window(section, h, padding, size, stride), _window(section, w, padding, size, stride)
        low = padding // 2
        bottom, right = (
            max(0, (out - 1) * stride + size - low - into) for out, into in ((out_h, h), (out_w, w))
        )
        if max(low, bottom, right) >= size:
            section.fail(
                f"padding={padding} is so large for size={size} that a window lies outside the map",
                section.line_of("padding"),
            )
        return cls(
            **_common(section, place, (c, out_h, out_w)),
            size=size,
            stride=stride,
            padding=padding,
            pads=(low, low, bottom, right),
        )


@dataclass(frozen=True)
class Avgpool(Layer):
    """``[avgpool]``: the mean of each channel."""

    type = "avgpool"

    @classmethod
    def read(cls, section: Section, place: Place) -> Avgpool:
        return cls(**_common(section, place, (place.dims(place.index - 1)[0], 1, 1)))


@dataclass(frozen=True)
class Route(Layer):
    """``[route]``: the named layers' channels, one after another."""

    type = "route"
    keys = frozenset(["layers"])
    refused = {"groups": "1", "group_id": "0"}

    @classmethod
    def read(cls, section: Section, place: Place) -> Route:
        named = section.integers("layers", least=-(2**31))
        if named is None:
            section.fail("layers= is missing: a route names the layers that it reads")
        sources = tuple(place.absolute(section, "layers", index) for index in named)
        shapes = [place.dims(source) for source in sources]
        if len({shape[1:] for shape in shapes}) != 1:
            sizes = ", ".join(f"layer {s}: {_text(shape)}" for s, shape in zip(sources, shapes, strict=True))
            section.fail(f"maps of different sizes cannot be joined ({sizes})", section.line_of("layers"))
        channels = sum(shape[0] for shape in shapes)
        return cls(**_common(section, place, (channels, *shapes[0][1:]), sources))

    @property
    def is_identity(self) -> bool:
        return len(self.inputs) == 1


@dataclass(frozen=True)
class Shortcut(Layer):
    """``[shortcut]``: the sum of the layer before and another one, then an activation."""

    type = "shortcut"
    keys = frozenset(["from", "activation"])
    refused = {"alpha": "1", "beta": "1", "weights_type": "none"}

    activation: str

    @classmethod
    def read(cls, section: Section, place: Place) -> Shortcut:
        named = section.integers("from", least=-(2**31))
        if named is None or len(named) != 1:
            section.fail("from= must name one layer to add", section.line_of("from"))
        source = place.absolute(section, "from", named[0])
        dims, other = place.dims(place.index - 1), place.dims(source)
        if dims != other:
            section.fail(
                f"adding maps of different shapes is not supported (layer {place.index - 1}: {_text(dims)},"
                f" layer {source}: {_text(other)})",
                section.line_of("from"),
            )
        return cls(
            **_common(section, place, dims, (place.index - 1, source)), activation=_activation(section, "linear")
        )


@dataclass(frozen=True)
class Upsample(Layer):
    """``[upsample]``: each value ``stride`` x ``stride`` times."""

    type = "upsample"
    keys = frozenset(["stride"])
    refused = {"scale": "1"}

    stride: int

    @classmethod
    def read(cls, section: Section, place: Place) -> Upsample:
        stride = section.integer("stride", 2, least=1)
        c, h, w = place.dims(place.index - 1)
        return cls(**_common(section, place, (c, h * stride, w * stride)), stride=stride)


@dataclass(frozen=True)
class Dropout(Layer):
    """``[dropout]``: nothing at inference."""

    type = "dropout"
    training_keys = frozenset(["probability"])
    refused = {"dropblock": "0"}

    @classmethod
    def read(cls, section: Section, place: Place) -> Dropout:
        return cls(**_common(section, place, place.dims(place.index - 1)))

    @property
    def is_identity(self) -> bool:
        return True


@dataclass(frozen=True)
class Softmax(Layer):
    """``[softmax]``: over all values of an image, or over each of ``groups`` equal parts of them."""

    type = "softmax"
    keys = frozenset(["groups", "temperature"])
    training_keys = frozenset(["noloss"])
    refused = {"tree": "", "spatial": "0"}

    groups: int
    temperature: float

    @classmethod
    def read(cls, section: Section, place: Place) -> Softmax:
        dims = place.dims(place.index - 1)
        groups = section.integer("groups", 1, least=1)
        if dims[0] * dims[1] * dims[2] % groups:
            section.fail(f"groups={groups} must divide the input's values ({_text(dims)})", section.line_of("groups"))
        temperature = section.number("temperature", 1.0)
        if temperature <= 0:
            section.fail(f"temperature={temperature} must be above 0", section.line_of("temperature"))
        return cls(**_common(section, place, dims), groups=groups, temperature=temperature)

    @property
    def is_head(self) -> bool:
        return True


@dataclass(frozen=True)
class PluginLayer(Layer):
    """A layer that is a plugin: its shape rule and its computation are the plugin's.

    Attributes:
        plugin: The layer as a plugin, with the cfg's values.
    """

    plugin: Plugin

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        """The plugin that the section describes."""
        raise NotImplementedError

    @classmethod
    def read(cls: type[L], section: Section, place: Place) -> L:
        c, h, w = place.dims(place.index - 1)
        try:
            plugin = cls.make_plugin(section)  # type: ignore[attr-defined]
            ((_, *dims),) = plugin.all_output_dims([(1, c, h, w)])
        except PluginError as error:
            section.fail(f"layer {place.index}: {error}".rstrip("."))
        return cls(**_common(section, place, tuple(dims)), plugin=plugin)


@dataclass(frozen=True)
class ReorgLayer(PluginLayer):
    """``[reorg]``: blocks of pixels become channels."""

    type = "reorg"
    keys = frozenset(["stride", "reverse"])
    refused = {"flatten": "0", "extra": "0"}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        return Reorg(stride=section.integer("stride", 1, least=1), reverse=bool(section.integer("reverse", 0)))


@dataclass(frozen=True)
class RegionLayer(PluginLayer):
    """``[region]``: YOLOv2's head."""

    type = "region"
    keys = frozenset(["anchors", "classes", "coords", "num", "softmax", "background"])
    training_keys = frozenset(
        "log sqrt max jitter rescore thresh classfix absolute random coord_scale object_scale noobject_scale mask_scale"
        " class_scale bias_match".split()
    )
    refused = {"tree": "", "map": ""}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        num = section.integer("num", 1, least=1, most=10_000)
        return Region(
            anchors=_anchors(section, num),
            classes=section.integer("classes", 20),
            coords=section.integer("coords", 4),
            num=num,
            softmax=bool(section.integer("softmax", 0)),
            background=bool(section.integer("background", 0)),
        )

    @property
    def is_head(self) -> bool:
        return True


@dataclass(frozen=True)
class YoloLayer(PluginLayer):
    """``[yolo]``: YOLOv3's head."""

    type = "yolo"
    keys = frozenset(["anchors", "mask", "classes", "num"])
    training_keys = frozenset(
        "max jitter ignore_thresh truth_thresh random iou_thresh cls_normalizer iou_normalizer obj_normalizer iou_loss"
        " nms_kind beta_nms label_smooth_eps resize counters_per_class focal_loss max_delta show_details objectness_smooth"
        " iou_thresh_kind".split()
    )
    refused = {"map": "", "scale_x_y": "1", "new_coords": "0"}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        num = section.integer("num", 1, least=1, most=10_000)
        mask = section.integers("mask", least=0, most=num - 1)
        return Yolo(
            anchors=_anchors(section, num),
            mask=tuple(range(num)) if mask is None else mask,
            classes=section.integer("classes", 20),
        )

    @property
    def is_head(self) -> bool:
        return True


LAYER_TYPES: Mapping[str, type[Layer]] = {
    "conv": Convolutional,
    "convolutional": Convolutional,
    "max": Maxpool,
    "maxpool": Maxpool,
    "avg": Avgpool,
    "avgpool": Avgpool,
    "route": Route,
    "shortcut": Shortcut,
    "upsample": Upsample,
    "dropout": Dropout,
    "soft": Softmax,
    "softmax": Softmax,
    "reorg": ReorgLayer,
    "region": RegionLayer,
    "yolo": YoloLayer,
}
"""Section names that darknet takes (src/parser.c, string_to_layer_type) and that this package converts."""

_RECURRENT = ("rnn", "gru", "lstm", "crnn")


def read_layer(section: Section, place: Place) -> Layer:
    """Make the layer that a section describes.

    Raises:
        CfgError: the type or a value is unknown, not supported or does not fit what stands before.
    """
    cls = LAYER_TYPES.get(section.type)
    if cls is None:
        reason = "recurrent layers are not converted" if section.type in _RECURRENT else "unknown or not supported"
        section.fail(
            f"layer {place.index} is of the type [{section.type}]: {reason}."
            f" Converted types: {', '.join(sorted({known.type for known in LAYER_TYPES.values()}))}"
        )
    _check_keys(section, cls)
    layer = cls.read(section, place)
    c, h, w = layer.dims
    if c * h * w > MOST_ELEMENTS:
        section.fail(f"layer {place.index} has {c * h * w:,} outputs ({_text(layer.dims)}); darknet counts to {MOST_ELEMENTS:,}")
    return layer


def _check_keys(section: Section, cls: type[Layer]) -> None:
    known = cls.keys | cls.training_keys | _TRAINING_KEYS
    for option in section.options:
        if option.key in cls.refused:
            neutral = cls.refused[option.key]
            if not neutral or option.value != neutral and not _equal_numbers(section, option.key, neutral):
                section.fail(f"{option.key}={option.value} is not supported", option.line)
        elif option.key not in known:
            log.warning(
                "%s:%d: [%s]: unknown key %s=%s is ignored", section.path, option.line, section.type, option.key, option.value
            )


def _equal_numbers(section: Section, key: str, neutral: str) -> bool:
    return neutral.isdigit() and section.number(key, 0.0) == float(neutral)


def _common(section: Section, place: Place, dims: Shape, inputs: tuple[int, ...] | None = None) -> dict[str, Any]:
    inputs = (place.index - 1,) if inputs is None else inputs
    return {
        "index": place.index,
        "line": section.line,
        "inputs": inputs,
        "input_dims": tuple(place.dims(index) for index in inputs),
        "dims": dims,
    }


def _window(section: Section, into: int, padding: int, size: int, stride: int) -> int:
    out = (into + padding - size) // stride + 1
    if out < 1:
        section.fail(f"size={size} is larger than the input: {into} values with {padding} of padding", section.line_of("size"))
    return out


def _activation(section: Section, default: str) -> str:
    activation = section.text("activation", default)
    if activation not in ACTIVATIONS:
        section.fail(
            f"activation={activation} is unknown or not supported (supported: {', '.join(ACTIVATIONS)})",
            section.line_of("activation"),
        )
    return activation


def _anchors(section: Section, num: int) -> tuple[float, ...]:
    anchors = section.numbers("anchors")
    if anchors is None:
        return (0.5,) * (2 * num)  # darknet's default
    if len(anchors) != 2 * num:
        section.fail(f"num={num} needs {2 * num} anchor values, found {len(anchors)}", section.line_of("anchors"))
    return anchors


def _text(dims: Shape) -> str:
    c, h, w = dims
    return f"{w} x {h} x {c}"
