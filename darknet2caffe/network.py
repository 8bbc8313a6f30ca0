"""A darknet network: layers with dims and absolute indices, and its weights if they are given."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.atomic import write_atomic

from .cfg import Cfg, read_cfg
from .dialect import ALEXEYAB_NET_KEYS, DialectChoice, choose_dialect
from .layers import (
    IMAGE,
    MAX_ELEMENTS,
    Detection,
    Dialect,
    Layer,
    LayerContext,
    PluginLayer,
    Shape,
    YoloLayer,
    read_layer,
)
from .weights import (
    FloatArray,
    Header,
    Parameters,
    Weights,
    from_stored,
    random_parameters,
    read_weights,
    to_stored,
)

__all__ = ["Network", "read_network", "write_darknet"]

log = logging.getLogger(__name__)

INPUT_NAME = "data"

_NET_KEYS = frozenset(
    [
        *("width", "height", "channels", "inputs", "batch", "subdivisions", "time_steps", "momentum", "decay"),
        *("angle", "saturation", "exposure", "hue", "aspect", "max_crop", "min_crop", "max_ratio", "min_ratio"),
        *("center", "clip", "random", "notruth", "learning_rate", "burn_in", "max_batches", "policy", "steps"),
        *("scales", "step", "scale", "power", "gamma", "adam", "B1", "B2", "eps"),
    ]
)


@dataclass(frozen=True)
class Network:
    """A darknet network.

    Attributes:
        cfg: The sections that it was made from.
        dims: Channels, height and width of the input; (inputs, 1, 1) where the cfg has only ``inputs=``.
        weights: Header and arrays; None when only the cfg was given.
        dialect: Whose darknet the cfg is read as: ``"pjreddie"`` or ``"alexeyab"``.
    """

    cfg: Cfg = field(compare=False)
    dims: Shape
    layers: tuple[Layer, ...]
    weights: Weights | None = None
    dialect: Dialect = "pjreddie"
    dialect_reason: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The cfg's name without folder and suffix."""
        return Path(self.cfg.path).name.removesuffix(".cfg") or "network"

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """The heads in layer order, and the last layer, or the one before a ``[cost]`` at the end."""
        last = max(layer.index for layer in self.layers if layer.has_output)
        return tuple(layer for layer in self.layers if layer.is_head or layer.index == last)

    def parameters(self, layer: Layer) -> Parameters:
        """A layer's arrays, with the names and shapes of ``layer.parameters``.

        Raises:
            UsageError: the network was read without weights.
        """
        if self.weights is None:
            raise UsageError(
                f"{self.cfg.path}: the network has no weights.\n"
                "Do: read_network(cfg, weights), or network.with_random_weights(seed) to try shapes and speed."
            )
        return from_stored(layer, self.weights.header, self.weights.layers[layer.index])

    def tensor_name(self, index: int) -> str:
        """Name that a layer's output has in converted files: ``<index>_<type>``, ``data`` for the image.

        Layers that change nothing (dropout, a route to one layer) have the name of what they read.
        """
        while index != IMAGE and self.layers[index].is_identity:
            index = self.layers[index].inputs[0]
        return INPUT_NAME if index == IMAGE else self.layers[index].name

    def with_input_size(self, width: int, height: int) -> Network:
        """The network for images of another size.

        Raises:
            CfgError: a layer does not accept the size.
        """
        cfg = self.cfg.with_net(width=width, height=height)
        changed = _build(cfg, self.dialect, self.dialect_reason)
        for mine, other in zip(self.layers, changed.layers, strict=True):
            if self.weights is not None and mine.parameters != other.parameters:
                cfg.layers[mine.index].fail(
                    f"layer {mine.index} has weights for an input of {self.dims[2]} x {self.dims[1]} only, found"
                    f" {width} x {height}"
                )
        return replace(changed, weights=self.weights)

    def with_random_weights(self, seed: int = 0) -> Network:
        """The network with random weights that keep activations in range."""
        return replace(self, weights=random_parameters(self.layers, seed))

    def with_weights(self, layers: Sequence[Mapping[str, npt.ArrayLike]], header: Header | None = None) -> Network:
        """The network with given arrays, such as those of a training.

        There is one mapping per layer: the names of ``layer.parameters`` to arrays; empty where there are none.

        Raises:
            UsageError: a name or a shape is not what the layer needs.
        """
        if len(layers) != len(self.layers):
            raise UsageError(f"{self.cfg.path}: expected arrays of {len(self.layers)} layers, found {len(layers)}")
        header = header or Header()
        pairs = zip(self.layers, layers, strict=True)
        parts = tuple(to_stored(layer, header, _checked(layer, given)) for layer, given in pairs)
        return replace(self, weights=Weights(header, parts))

    def head_metadata(self) -> list[dict[str, Any]]:
        """Metadata of each output for detectors: name, type and the layer's fields."""
        heads = []
        for layer in self.outputs:
            fields = layer.plugin.fields() if isinstance(layer, PluginLayer) else {}
            if isinstance(layer, YoloLayer) and layer.distance_power is not None:
                fields = {**fields, "distance_power": layer.distance_power}
            if isinstance(layer, Detection):
                fields = {key: getattr(layer, key) for key in ("classes", "coords", "num", "side", "softmax", "sqrt")}
            heads.append({"output": layer.name, "type": layer.type, **fields})
        return heads


def read_network(
    cfg: str | Path | Cfg, weights: str | Path | None = None, *, dialect: DialectChoice = "auto"
) -> Network:
    """Read a darknet network.

    Args:
        cfg: The .cfg file, or what `read_cfg` gave.
        weights: The .weights file; without it the network has layers and dims only.
        dialect: Whose darknet the cfg is for: ``"pjreddie"``, ``"alexeyab"``, or ``"auto"``, which takes the fork's where
            the cfg has something that only the fork knows; ``network.dialect_reason`` says what.

    Returns:
        The network, with absolute layer indices and all dims.

    Raises:
        CfgError: the cfg is broken, contradicts itself, or has a layer that is not converted.
        WeightsError: the weights do not fit the cfg exactly.
        UsageError: ``dialect`` is none of the choices.

    Example:
        >>> network = read_network("yolov2-voc.cfg", "yolov2-voc.weights")      # doctest: +SKIP
        >>> network.outputs[0].name, network.outputs[0].dims                    # doctest: +SKIP
        ('31_region', (125, 13, 13))
    """
    cfg = cfg if isinstance(cfg, Cfg) else read_cfg(cfg)
    network = _build(cfg, *choose_dialect(cfg, dialect))
    if weights is None:
        return network
    return replace(network, weights=read_weights(weights, network.layers, cfg.path, network.dialect))


def write_darknet(network: Network, cfg: str | Path, weights: str | Path | None = None) -> None:
    """Write a network as darknet files: the .cfg, and the .weights if a path for them is given.

    Reading them again gives the identical network; darknet gives the identical output. Comments of the cfg are lost.

    Raises:
        UsageError: weights are asked for and the network has none.
    """
    if weights is not None and network.weights is None:
        raise UsageError(f"{network.cfg.path}: the network has no weights to write.\nDo: write_darknet(network, cfg).")
    write_atomic(cfg, network.cfg.to_text().encode())
    if weights is not None and network.weights is not None:
        write_atomic(weights, network.weights.to_bytes())


def _build(cfg: Cfg, dialect: Dialect, reason: str) -> Network:
    known_keys = _NET_KEYS | (ALEXEYAB_NET_KEYS if dialect == "alexeyab" else frozenset())
    for option in cfg.net.first_options:
        if option.key not in known_keys:
            log.warning("%s:%d: [net]: unknown key %s=%s is ignored", cfg.path, option.line, option.key, option.value)
    dims, is_map = _input_dims(cfg)
    if not cfg.layers:
        cfg.net.fail("there are no layers after it")
    layers: list[Layer] = []
    for index, section in enumerate(cfg.layers):
        layers.append(read_layer(section, LayerContext(index, dims, layers, dialect, is_map)))
    if not any(layer.has_output for layer in layers):
        cfg.layers[0].fail("the network has no layer with an output")
    return Network(cfg, dims, tuple(layers), dialect=dialect, dialect_reason=reason)


def _input_dims(cfg: Cfg) -> tuple[Shape, bool]:
    """Dims of the input, and whether they are a map; ``inputs=`` alone is none (src/parser.c, parse_net_options)."""
    net = cfg.net
    c, h, w = (net.integer(key, 0) for key in ("channels", "height", "width"))
    inputs = net.integer("inputs", c * h * w, minimum=1) if net.option("inputs") else c * h * w
    if not any((c, h, w)) and inputs:
        return (inputs, 1, 1), False
    if not all((c, h, w)):
        key = ("channels", "height", "width")[(c, h, w).index(0)]
        net.fail(f"{key} is 0 or missing; width, height and channels of the input are needed", net.line_of(key))
    if inputs != c * h * w:
        net.fail(f"inputs={inputs:,} is not width x height x channels = {c * h * w:,}", net.line_of("inputs"))
    if inputs > MAX_ELEMENTS:
        net.fail(f"an input of {w:,} x {h:,} x {c:,} values is too large; darknet counts to {MAX_ELEMENTS:,}")
    return (c, h, w), True


def _checked(layer: Layer, values: Mapping[str, npt.ArrayLike]) -> Parameters:
    expected = dict(layer.parameters)
    if values.keys() != expected.keys():
        raise UsageError(f"layer {layer.index} ({layer.type}): expected {list(expected)}, found {list(values)}")
    arrays: dict[str, FloatArray] = {name: np.array(values[name], dtype="<f4") for name in expected}
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise UsageError(
                f"layer {layer.index} ({layer.type}): {name} has shape {arrays[name].shape}, expected {shape}"
            )
        arrays[name].flags.writeable = False
    return arrays
