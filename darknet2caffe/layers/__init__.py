"""Layer types of darknet: their keys, dims and parameters, for readers and writers."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..cfg import Section
from ._base import ALEXEYAB_ACTIVATIONS, IMAGE, MAX_ELEMENTS, Dialect, Layer, LayerContext, Shape, dims_text
from .activation import Activation, Logistic
from .convolution import Convolutional, Deconvolutional
from .dense import Connected, Local
from .heads import Cost, Detection, Softmax
from .joins import Route, Sam, ScaleChannels, Shortcut
from .normalization import Batchnorm, L2norm, Normalization
from .plugins import PluginLayer, RegionLayer, YoloLayer
from .reorg import Extra, Flatten, Reorg3d, ReorgLayer
from .resampling import Avgpool, Crop, Dropout, Maxpool, Upsample

__all__ = [
    "ALEXEYAB_ACTIVATIONS",
    "ALEXEYAB_TRAINING_KEYS",
    "ALEXEYAB_TYPES",
    "IMAGE",
    "LAYER_TYPES",
    "MAX_ELEMENTS",
    "Activation",
    "Avgpool",
    "Batchnorm",
    "Connected",
    "Convolutional",
    "Cost",
    "Crop",
    "Deconvolutional",
    "Detection",
    "Dialect",
    "Dropout",
    "Extra",
    "Flatten",
    "L2norm",
    "Layer",
    "LayerContext",
    "Local",
    "Logistic",
    "Maxpool",
    "Normalization",
    "PluginLayer",
    "RegionLayer",
    "Reorg3d",
    "ReorgLayer",
    "Route",
    "Sam",
    "ScaleChannels",
    "Shape",
    "Shortcut",
    "Softmax",
    "Upsample",
    "YoloLayer",
    "dims_text",
    "read_layer",
]

log = logging.getLogger(__name__)

_TRAINING_KEYS = frozenset(["truth", "onlyforward", "stopbackward", "dontsave", "learning_rate", "smooth"])
ALEXEYAB_TRAINING_KEYS = frozenset(["clip", "dont_update", "burnin_update", "train_only_bn"])
"""Keys of every layer that only the fork reads; they belong to training."""

_CLASSES: tuple[type[Layer], ...] = (
    *(
        Activation,
        Avgpool,
        Batchnorm,
        Connected,
        Convolutional,
        Cost,
        Crop,
        Deconvolutional,
        Detection,
        Dropout,
        L2norm,
    ),
    *(Local, Logistic, Maxpool, Normalization, RegionLayer, ReorgLayer, Route, Shortcut, Softmax, Upsample, YoloLayer),
)

LAYER_TYPES: Mapping[str, type[Layer]] = {
    **{cls.type: cls for cls in _CLASSES},
    "avg": Avgpool,
    "conn": Connected,
    "conv": Convolutional,
    "deconv": Deconvolutional,
    "lrn": Normalization,
    "max": Maxpool,
    "soft": Softmax,
}
"""Section names that darknet takes (src/parser.c, string_to_layer_type) and that this package converts."""

PJREDDIE_TYPES = frozenset(["deconv", "deconvolutional", "l2norm", "logistic"])
"""Those of them that the fork does not know; it ends on them."""

ALEXEYAB_TYPES: Mapping[str, type[Layer]] = {"reorg3d": Reorg3d, "sam": Sam, "scale_channels": ScaleChannels}
"""What AlexeyAB's fork adds to them."""

_RECURRENT = ("rnn", "gru", "lstm", "crnn", "conv_lstm")


def read_layer(section: Section, place: LayerContext) -> Layer:
    """Make the layer that a section describes.

    Raises:
        CfgError: the type or a value is unknown, not supported or does not fit what stands before.
    """
    fork = place.dialect == "alexeyab"
    types = {**LAYER_TYPES, **ALEXEYAB_TYPES} if fork else LAYER_TYPES
    if fork and section.type in PJREDDIE_TYPES:
        section.fail(f"[{section.type}] is not a layer of AlexeyAB's darknet", action="convert with --dialect pjreddie")
    cls = types.get(section.type)
    if cls is None:
        known = f"Converted types: {', '.join(sorted({known.type for known in types.values()}))}"
        if section.type in ALEXEYAB_TYPES:
            section.fail(f"[{section.type}] is a layer of AlexeyAB's darknet", action="convert with --dialect alexeyab")
        reason = "recurrent layers are not converted" if section.type in _RECURRENT else "unknown or not supported"
        section.fail(f"layer {place.index} is of the type [{section.type}]: {reason}. {known}")
    _check_keys(section, cls, place.dialect)
    layer = cls.read(section, place)
    c, h, w = layer.dims
    if c * h * w > MAX_ELEMENTS:
        section.fail(
            f"layer {place.index} has {c * h * w:,} outputs ({dims_text(layer.dims)}); darknet counts to {MAX_ELEMENTS:,}"
        )
    return layer


def _check_keys(section: Section, cls: type[Layer], dialect: Dialect) -> None:
    fork = dialect == "alexeyab"
    refused = {**cls.refused, **(cls.alexeyab_refused if fork else {})}
    known_keys = cls.keys | cls.training_keys | _TRAINING_KEYS
    known_keys |= cls.alexeyab_keys | cls.alexeyab_training_keys | ALEXEYAB_TRAINING_KEYS if fork else cls.pjreddie_keys
    for option in section.first_options:
        if option.key in refused:
            neutral = refused[option.key]
            if not neutral or (option.value != neutral and not _equal_numbers(section, option.key, neutral)):
                section.fail(f"{option.key}={option.value} is not supported", option.line)
        elif option.key not in known_keys:
            facts = (section.path, option.line, section.type, option.key, option.value)
            log.warning("%s:%d: [%s]: unknown key %s=%s is ignored", *facts)


def _equal_numbers(section: Section, key: str, neutral: str) -> bool:
    return neutral.isdigit() and section.number(key, 0.0) == float(neutral)
