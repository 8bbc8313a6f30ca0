"""Layer types of darknet: their keys, dims and parameters. Each fact is written here once; readers and writers ask."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..cfg import Section
from ._base import IMAGE, MOST_ELEMENTS, Layer, Place, Shape, dims_text
from .convolution import Convolutional
from .heads import PluginLayer, RegionLayer, ReorgLayer, Softmax, YoloLayer
from .joins import Route, Shortcut
from .resampling import Avgpool, Dropout, Maxpool, Upsample

__all__ = [
    "IMAGE",
    "LAYER_TYPES",
    "MOST_ELEMENTS",
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

_TRAINING_KEYS = frozenset(["truth", "onlyforward", "stopbackward", "dontsave", "learning_rate", "smooth"])

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
        section.fail(
            f"layer {place.index} has {c * h * w:,} outputs ({dims_text(layer.dims)}); darknet counts to {MOST_ELEMENTS:,}"
        )
    return layer


def _check_keys(section: Section, cls: type[Layer]) -> None:
    known = cls.keys | cls.training_keys | _TRAINING_KEYS
    for option in section.options:
        if option.key in cls.refused:
            neutral = cls.refused[option.key]
            if not neutral or (option.value != neutral and not _equal_numbers(section, option.key, neutral)):
                section.fail(f"{option.key}={option.value} is not supported", option.line)
        elif option.key not in known:
            log.warning(
                "%s:%d: [%s]: unknown key %s=%s is ignored",
                section.path,
                option.line,
                section.type,
                option.key,
                option.value,
            )


def _equal_numbers(section: Section, key: str, neutral: str) -> bool:
    return neutral.isdigit() and section.number(key, 0.0) == float(neutral)
