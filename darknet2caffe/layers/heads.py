"""Softmax, and the layers that are plugins."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pytrtplugins.errors import PluginError
from pytrtplugins.layers import Region, Reorg, Yolo
from pytrtplugins.plugin import Plugin

from ..cfg import Section
from ._base import Layer, Place, common_fields, dims_text

__all__ = ["PluginLayer", "RegionLayer", "ReorgLayer", "Softmax", "YoloLayer"]


@dataclass(frozen=True)
class Softmax(Layer):
    """``[softmax]``: over all values of an image, or over each of ``groups`` equal parts of them."""

    type = "softmax"
    keys = frozenset(["groups", "temperature"])
    training_keys = frozenset(["noloss"])
    refused: ClassVar[Mapping[str, str]] = {"tree": "", "spatial": "0"}

    groups: int
    temperature: float

    @classmethod
    def read(cls, section: Section, place: Place) -> Softmax:
        """Make the layer from its section."""
        dims = place.dims(place.index - 1)
        groups = section.integer("groups", 1, least=1)
        if dims[0] * dims[1] * dims[2] % groups:
            section.fail(
                f"groups={groups} must divide the input's values ({dims_text(dims)})", section.line_of("groups")
            )
        temperature = section.number("temperature", 1.0)
        if temperature <= 0:
            section.fail(f"temperature={temperature} must be above 0", section.line_of("temperature"))
        return cls(**common_fields(section, place, dims), groups=groups, temperature=temperature)

    @property
    def is_head(self) -> bool:
        """Its output is an output of the network."""
        return True


@dataclass(frozen=True)
class PluginLayer(Layer):
    """A layer that is a plugin: its shape rule and its computation are the plugin's.

    Attributes:
        plugin: The layer as a plugin, with the cfg's values.
    """

    plugin: Plugin

    @classmethod
    @abstractmethod
    def make_plugin(cls, section: Section) -> Plugin:
        """The plugin that the section describes."""

    @classmethod
    def read(cls, section: Section, place: Place) -> PluginLayer:
        """Make the layer from its section."""
        c, h, w = place.dims(place.index - 1)
        try:
            plugin = cls.make_plugin(section)
            ((_, *dims),) = plugin.all_output_dims([(1, c, h, w)])
            c, h, w = (operator.index(dim) for dim in dims)
        except PluginError as error:
            section.fail(f"layer {place.index}: {error}".rstrip("."))
        return cls(**common_fields(section, place, (c, h, w)), plugin=plugin)


@dataclass(frozen=True)
class ReorgLayer(PluginLayer):
    """``[reorg]``: blocks of pixels become channels."""

    type = "reorg"
    keys = frozenset(["stride", "reverse"])
    refused: ClassVar[Mapping[str, str]] = {"flatten": "0", "extra": "0"}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        """The plugin that the section describes."""
        return Reorg(stride=section.integer("stride", 1, least=1), reverse=bool(section.integer("reverse", 0)))


@dataclass(frozen=True)
class RegionLayer(PluginLayer):
    """``[region]``: YOLOv2's head."""

    type = "region"
    keys = frozenset(["anchors", "classes", "coords", "num", "softmax", "background"])
    training_keys = frozenset(
        [
            "log",
            "sqrt",
            "max",
            "jitter",
            "rescore",
            "thresh",
            "classfix",
            "absolute",
            "random",
            "coord_scale",
            "object_scale",
            "noobject_scale",
            "mask_scale",
            "class_scale",
            "bias_match",
        ]
    )
    refused: ClassVar[Mapping[str, str]] = {"tree": "", "map": ""}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        """The plugin that the section describes."""
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
        """Its output is an output of the network."""
        return True


@dataclass(frozen=True)
class YoloLayer(PluginLayer):
    """``[yolo]``: YOLOv3's head."""

    type = "yolo"
    keys = frozenset(["anchors", "mask", "classes", "num"])
    training_keys = frozenset(
        [
            "max",
            "jitter",
            "ignore_thresh",
            "truth_thresh",
            "random",
            "iou_thresh",
            "cls_normalizer",
            "iou_normalizer",
            "obj_normalizer",
            "iou_loss",
            "nms_kind",
            "beta_nms",
            "label_smooth_eps",
            "resize",
            "counters_per_class",
            "focal_loss",
            "max_delta",
            "show_details",
            "objectness_smooth",
            "iou_thresh_kind",
        ]
    )
    refused: ClassVar[Mapping[str, str]] = {"map": "", "scale_x_y": "1", "new_coords": "0"}

    @classmethod
    def make_plugin(cls, section: Section) -> Plugin:
        """The plugin that the section describes."""
        num = section.integer("num", 1, least=1, most=10_000)
        mask = section.integers("mask", least=0, most=num - 1)
        return Yolo(
            anchors=_anchors(section, num),
            mask=tuple(range(num)) if mask is None else mask,
            classes=section.integer("classes", 20),
        )

    @property
    def is_head(self) -> bool:
        """Its output is an output of the network."""
        return True


def _anchors(section: Section, num: int) -> tuple[float, ...]:
    anchors = section.numbers("anchors")
    if anchors is None:
        return (0.5,) * (2 * num)  # darknet's default
    if len(anchors) != 2 * num:
        section.fail(f"num={num} needs {2 * num} anchor values, found {len(anchors)}", section.line_of("anchors"))
    return anchors
