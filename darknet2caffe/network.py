"""A darknet network: layers with dims worked out and absolute indices, and its weights where they were given."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pytrtplugins.errors import UsageError

from .cfg import Cfg, read_cfg
from .layers import IMAGE, MOST_ELEMENTS, Layer, Place, PluginLayer, Shape, read_layer
from .weights import FloatArray, Header, Parameters, Weights, random_parameters, read_weights

__all__ = ["Network", "read_network"]

log = logging.getLogger(__name__)

INPUT_NAME = "data"

_NET_KEYS = frozenset(
    [
        "width",
        "height",
        "channels",
        "batch",
        "subdivisions",
        "time_steps",
        "momentum",
        "decay",
        "angle",
        "saturation",
        "exposure",
        "hue",
        "learning_rate",
        "burn_in",
        "max_batches",
        "policy",
        "steps",
        "scales",
        "step",
        "scale",
        "power",
        "gamma",
        "max_crop",
        "min_crop",
        "max_ratio",
        "min_ratio",
        "center",
        "clip",
        "aspect",
        "random",
        "adam",
        "B1",
        "B2",
        "eps",
        "notruth",
        "inputs",
        "letter_box",
        "mosaic",
        "cutmix",
        "mixup",
        "flip",
        "blur",
        "gaussian_noise",
        "track",
        "optimized_memory",
        "workspace_size_limit_MB",
    ]
)


@dataclass(frozen=True)
class Network:
    """A darknet network.

    Attributes:
        cfg: The sections that it was made from.
        dims: Channels, height and width of the input.
        layers: The layers, in darknet's order.
        weights: Header and arrays; None when only the cfg was given.
    """

    cfg: Cfg = field(compare=False)
    dims: Shape
    layers: tuple[Layer, ...]
    weights: Weights | None = None

    @property
    def name(self) -> str:
        """The cfg's name without folder and suffix."""
        return Path(self.cfg.path).name.removesuffix(".cfg") or "network"

    @property
    def outputs(self) -> tuple[Layer, ...]:
        """The heads in layer order; the last layer where there is no head."""
        return tuple(layer for layer in self.layers if layer.is_head) or self.layers[-1:]

    def parameters(self, layer: Layer) -> Parameters:
        """A layer's arrays.

        Raises:
            UsageError: the network was read without weights.
        """
        if self.weights is None:
            raise UsageError(
                f"{self.cfg.path}: the network has no weights.\n"
                "Do: read_network(cfg, weights), or network.with_random_weights(seed) to try shapes and speed."
            )
        return self.weights.layers[layer.index]

    def tensor_name(self, index: int) -> str:
        """Name that a layer's output has in converted files: ``<index>_<type>``, ``data`` for the image.

        Layers that change nothing (dropout, a route to one layer) have the name of what they read.
        """
        while index != IMAGE and self.layers[index].is_identity:
            index = self.layers[index].inputs[0]
        return INPUT_NAME if index == IMAGE else self.layers[index].name

    def with_input_size(self, width: int, height: int) -> Network:
        """The same network for photos of another size.

        Raises:
            CfgError: a layer does not accept the size.
        """
        return replace(_build(self.cfg.with_net(width=width, height=height)), weights=self.weights)

    def with_random_weights(self, seed: int = 0) -> Network:
        """The same network with random weights that keep activations in range."""
        return replace(self, weights=random_parameters(self.layers, seed))

    def with_weights(self, layers: Sequence[Mapping[str, Any]], header: Header | None = None) -> Network:
        """The same network with given arrays, such as those of a training.

        Args:
            layers: One mapping per layer: the names of ``layer.parameters`` to arrays; empty where there are none.
            header: Version and images seen.

        Raises:
            UsageError: a name or a shape is not what the layer needs.
        """
        if len(layers) != len(self.layers):
            raise UsageError(f"{self.cfg.path}: expected arrays of {len(self.layers)} layers, found {len(layers)}")
        parts = tuple(_checked(layer, given) for layer, given in zip(self.layers, layers, strict=True))
        return replace(self, weights=Weights(header or Header(), parts))

    def head_metadata(self) -> list[dict[str, Any]]:
        """What a detector needs to know of each output: name, type and the layer's fields."""
        heads = []
        for layer in self.outputs:
            fields = layer.plugin.fields() if isinstance(layer, PluginLayer) else {}
            heads.append({"output": layer.name, "type": layer.type, **fields})
        return heads


def read_network(cfg: str | Path | Cfg, weights: str | Path | None = None) -> Network:
    """Read a darknet network.

    Args:
        cfg: The .cfg file, or what `read_cfg` gave.
        weights: The .weights file; without it the network has layers and dims only.

    Returns:
        The network, with absolute layer indices and all dims.

    Raises:
        CfgError: the cfg is broken, contradicts itself, or has a layer that is not converted.
        WeightsError: the weights do not fit the cfg exactly.

    Example:
        >>> network = read_network("yolov2-voc.cfg", "yolov2-voc.weights")      # doctest: +SKIP
        >>> network.outputs[0].name, network.outputs[0].dims                    # doctest: +SKIP
        ('31_region', (125, 13, 13))
    """
    network = _build(cfg if isinstance(cfg, Cfg) else read_cfg(cfg))
    if weights is None:
        return network
    return replace(network, weights=read_weights(weights, network.layers, network.cfg.path))


def _build(cfg: Cfg) -> Network:
    net = cfg.net
    for option in net.options:
        if option.key not in _NET_KEYS:
            log.warning("%s:%d: [net]: unknown key %s=%s is ignored", cfg.path, option.line, option.key, option.value)
    c, h, w = dims = tuple(net.integer(key, 0) for key in ("channels", "height", "width"))
    if not all(dims):
        key = ("channels", "height", "width")[dims.index(0)]
        net.fail(f"{key} is 0 or missing; width, height and channels of the input are needed", net.line_of(key))
    if c * h * w > MOST_ELEMENTS:
        net.fail(f"an input of {w:,} x {h:,} x {c:,} values is too large; darknet counts to {MOST_ELEMENTS:,}")
    if not cfg.layers:
        net.fail("there are no layers after it")
    layers: list[Layer] = []
    before: list[Shape] = []
    for index, section in enumerate(cfg.layers):
        layers.append(read_layer(section, Place(index, (c, h, w), before)))
        before.append(layers[-1].dims)
    return Network(cfg, (c, h, w), tuple(layers))


def _checked(layer: Layer, given: Mapping[str, Any]) -> Parameters:
    expected = dict(layer.parameters)
    if given.keys() != expected.keys():
        raise UsageError(f"layer {layer.index} ({layer.type}): expected {list(expected)}, found {list(given)}")
    arrays: dict[str, FloatArray] = {name: np.array(given[name], dtype="<f4") for name in expected}
    for name, shape in expected.items():
        if arrays[name].shape != shape:
            raise UsageError(
                f"layer {layer.index} ({layer.type}): {name} has shape {arrays[name].shape}, expected {shape}"
            )
        arrays[name].flags.writeable = False
    return arrays
