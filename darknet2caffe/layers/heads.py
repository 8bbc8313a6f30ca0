"""Layers at the end of a network that are not plugins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pytrtplugins.utils.override import override

from ..cfg import Section
from ._base import Layer, LayerContext, common_fields, dims_text
from .tree import read_tree

__all__ = ["Cost", "Detection", "Softmax"]


@dataclass(frozen=True)
class Softmax(Layer):
    """``[softmax]``: over all values of an image, over each of ``groups`` equal parts, or over siblings in a tree.

    Attributes:
        tree: Parent of each class, -1 for a root; empty: no tree.
    """

    type = "softmax"
    is_head = True
    keys = frozenset(["groups", "temperature", "tree"])
    training_keys = frozenset(["noloss"])
    refused: ClassVar[Mapping[str, str]] = {"spatial": "0"}

    groups: int
    temperature: float
    tree: tuple[int, ...] = ()

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Softmax:
        dims = place.dims(place.index - 1)
        groups = section.integer("groups", 1, minimum=1)
        if math.prod(dims) % groups:
            section.fail(
                f"groups={groups} must divide the input's values ({dims_text(dims)})", section.line_of("groups")
            )
        temperature = section.number("temperature", 1.0)
        if temperature <= 0:
            section.fail(f"temperature={temperature} must be above 0", section.line_of("temperature"))
        tree = read_tree(section, math.prod(dims))
        fields = common_fields(section, place, dims, is_map=False)
        return cls(**fields, groups=groups, temperature=temperature, tree=tree)


@dataclass(frozen=True)
class Detection(Layer):
    """``[detection]``: YOLOv1's head. The values stay as they are, or get a softmax over the classes of each cell.

    The values are all cells' classes, then all cells' confidences of ``num`` boxes, then all boxes' coordinates.

    Attributes:
        classes: Number of classes.
        coords: Values per box besides the confidence.
        num: Boxes per cell.
        side: Cells in a row, and in a column.
        softmax: Softmax over the classes.
        sqrt: Width and height are square roots; for whoever decodes boxes.
    """

    type = "detection"
    is_head = True
    keys = frozenset(["classes", "coords", "num", "side", "softmax", "sqrt"])
    training_keys = frozenset(
        [
            *("rescore", "max", "coord_scale", "forced", "object_scale", "noobject_scale", "class_scale", "jitter"),
            *("random", "reorg"),  # reorg is read and not used (src/detection_layer.c)
        ]
    )
    alexeyab_training_keys = frozenset(["resize"])

    classes: int
    coords: int
    num: int
    side: int
    softmax: bool
    sqrt: bool

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Detection:
        dims = place.dims(place.index - 1)
        classes, coords = section.integer("classes", 1), section.integer("coords", 1)
        num, side = section.integer("num", 1), section.integer("side", 7, minimum=1)
        expected = side * side * ((1 + coords) * num + classes)
        if expected != math.prod(dims):
            section.fail(
                f"side={side} num={num} classes={classes} coords={coords} make {expected:,} values, the layer before has"
                f" {math.prod(dims):,}",
                section.line_of("side"),
            )
        return cls(
            **common_fields(section, place, dims, is_map=False),
            classes=classes,
            coords=coords,
            num=num,
            side=side,
            softmax=bool(section.integer("softmax", 0)),
            sqrt=bool(section.integer("sqrt", 0)),
        )

    @property
    def is_identity(self) -> bool:
        """Whether there is no softmax."""
        return not (self.softmax and self.classes)


@dataclass(frozen=True)
class Cost(Layer):
    """``[cost]``: a loss. At prediction darknet leaves its output at zero and takes the layer before as the network's."""

    type = "cost"
    has_output = False
    is_identity = True  # for converted files it is the layer before
    training_keys = frozenset(["type", "scale", "ratio", "noobj", "thresh"])

    @classmethod
    @override
    def read(cls, section: Section, place: LayerContext) -> Cost:
        return cls(**common_fields(section, place, place.dims(place.index - 1), is_map=False))
