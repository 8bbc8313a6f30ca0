"""Layers that are plugins: their shape rule and their computation are the plugin's."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from pytrtplugins.errors import PluginError
from pytrtplugins.layers import Region, Yolo
from pytrtplugins.plugin.base import Plugin
from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Dialect, Layer, LayerContext, common_fields
from .tree import read_tree

__all__ = ["PluginLayer", "RegionLayer", "YoloLayer"]


@dataclass(frozen=True)
class PluginLayer(Layer):
    """A layer that is a plugin."""

    plugin: Plugin

    @classmethod
    @abstractmethod
    def make_plugin(cls, section: Section, place: LayerContext) -> Plugin:
        """The plugin that the section describes."""

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> PluginLayer:
        c, h, w = place.map_dims(section)
        try:
            plugin = cls.make_plugin(section, place)
            ((_, *dims),) = plugin.all_output_dims([(1, c, h, w)])
            c, h, w = (operator.index(dim) for dim in dims)
        except PluginError as error:
            section.fail(f"layer {place.index}: {error}".rstrip("."))
        return cls(**common_fields(section, place, (c, h, w)), plugin=plugin)


@dataclass(frozen=True)
class RegionLayer(PluginLayer):
    """``[region]``: YOLOv2's head; with a tree of classes, YOLO9000's.

    The fork writes the same numbers in another order, and applies the logistic to x and y when it makes boxes; the layer
    is pjreddie's here, so that one decoder does for both.
    """

    type = "region"
    is_head = True
    keys = frozenset(["anchors", "classes", "coords", "num", "softmax", "tree"])
    pjreddie_keys = frozenset(["background"])
    training_keys = frozenset(
        [
            *("log", "sqrt", "max", "jitter", "rescore", "thresh", "classfix", "absolute", "random", "bias_match"),
            *("coord_scale", "object_scale", "noobject_scale", "mask_scale", "class_scale"),
            "map",  # data/coco9k.map: which classes count in an evaluation; src/region_layer.c reads it for boxes only
        ]
    )
    alexeyab_training_keys = frozenset(["focal_loss", "resize"])

    @classmethod
    @override
    def make_plugin(cls, section: Section, place: LayerContext) -> Plugin:
        num = section.integer("num", 1, minimum=1, maximum=10_000)
        classes, coords = section.integer("classes", 20), section.integer("coords", 4)
        softmax, tree = bool(section.integer("softmax", 0)), read_tree(section, classes)
        fork = place.dialect == "alexeyab"
        background = 0 if fork else section.integer("background", 0)
        if background not in (0, 1) and softmax and not tree:
            section.fail(
                f"background={background}: darknet would take its softmax over {classes} + {background} values of a box"
                f" that has {classes} + 1 (src/region_layer.c, forward_region_layer)",
                section.line_of("background"),
                "set background to 0 or 1",
            )
        if fork and (coords != 4 or not (softmax or tree)):
            section.fail(
                f"coords={coords} softmax={int(softmax)}: the fork's region is converted with 4 coords and softmax=1 or a"
                " tree only; it leaves classes raw otherwise (src/region_layer.c, forward_region_layer)",
                section.line_of("coords" if coords != 4 else "softmax"),
            )
        return Region(
            anchors=_anchors(section, num, place.dialect),
            classes=classes,
            coords=coords,
            num=num,
            softmax=softmax,
            background=bool(background),
            tree=tree,
        )


@dataclass(frozen=True)
class YoloLayer(PluginLayer):
    """``[yolo]``: YOLOv3's head, and that of YOLOv4 and its relatives.

    Attributes:
        distance_power: How the fork suppresses boxes (`pytrtplugins.vision.nms`): None with nms_kind=default, the power of
            the distance with greedynms and diounms (src/box.c, diounms_sort).
    """

    type = "yolo"
    is_head = True
    keys = frozenset(["anchors", "mask", "classes", "num"])
    alexeyab_keys = frozenset(["scale_x_y", "new_coords", "nms_kind", "beta_nms"])
    training_keys = frozenset(["max", "jitter", "ignore_thresh", "truth_thresh", "random", "map"])
    alexeyab_training_keys = frozenset(
        [
            *("iou_thresh", "cls_normalizer", "iou_normalizer", "obj_normalizer", "delta_normalizer", "iou_loss"),
            *("label_smooth_eps", "resize", "counters_per_class", "focal_loss", "max_delta"),
            *("show_details", "objectness_smooth", "iou_thresh_kind", "track_history_size", "sim_thresh"),
            *("dets_for_track", "dets_for_show", "track_ciou_norm"),
        ]
    )
    alexeyab_refused: ClassVar[Mapping[str, str]] = {"embedding_layer": ""}

    distance_power: float | None = None

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> YoloLayer:
        layer = super().read(section, place)
        assert isinstance(layer, YoloLayer)
        return replace(layer, distance_power=_distance_power(section)) if place.dialect == "alexeyab" else layer

    @classmethod
    @override
    def make_plugin(cls, section: Section, place: LayerContext) -> Plugin:
        num = section.integer("num", 1, minimum=1, maximum=10_000)
        mask = section.integers("mask", minimum=0, maximum=num - 1)
        fork = place.dialect == "alexeyab"
        return Yolo(
            anchors=_anchors(section, num, place.dialect),
            mask=tuple(range(num)) if mask is None else mask,
            classes=section.integer("classes", 20),
            scale_x_y=section.number("scale_x_y", 1.0) if fork else 1.0,
            new_coords=bool(section.integer("new_coords", 0)) if fork else False,
        )


def _distance_power(section: Section) -> float | None:
    """The power of the distance in the fork's suppression; it takes a kind that it does not know for the default."""
    kind, beta = section.text("nms_kind", "default"), section.number("beta_nms", 0.6)
    if kind not in ("default", "greedynms", "diounms"):
        section.fail(
            f"nms_kind={kind}: expected default, greedynms or diounms (src/parser.c, parse_yolo)",
            section.line_of("nms_kind"),
        )
    if beta < 0:
        section.fail(f"beta_nms={beta}: expected a number of at least 0", section.line_of("beta_nms"))
    return {"default": None, "greedynms": 0.6}.get(kind, float(np.float32(beta)))


def _anchors(section: Section, num: int, dialect: Dialect) -> tuple[float, ...]:
    """Pairs of width and height; 0.5 is darknet's default, with which the fork fills up, and it leaves out what is too much."""
    anchors = section.numbers("anchors")
    if anchors is None or (dialect == "alexeyab" and len(anchors) != 2 * num):
        return (*(anchors or ()), *(0.5,) * (2 * num))[: 2 * num]
    if len(anchors) != 2 * num:
        section.fail(f"num={num} needs {2 * num} anchor values, found {len(anchors)}", section.line_of("anchors"))
    return anchors
