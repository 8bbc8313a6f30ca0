"""Reading a network that export wrote as darknet's .cfg, .weights and .names, to train it further."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from darknet2caffe import Network, read_network
from darknet2caffe.layers import Convolutional
from pytrtplugins.errors import CfgError
from pytrtplugins.models import read_names

from .export import DARKNET_EPSILON
from .model import Model
from .network import ANCHORS, Yolov2, declare_layers

__all__ = ["load_darknet"]

_STAGES, _HEAD, _PASSTHROUGH = (0, 1, 2, 5, 8, 13), 18, 20  # which convolutions have these widths
_CONVOLUTIONS = 23


def load_darknet(cfg: Path) -> Model:
    """Read a network with the layers of YOLOv2-VOC, of any widths.

    Args:
        cfg: Path of the .cfg; the .weights and the .names lie beside it under the same name.

    Raises:
        CfgError: it has other layers.
        WeightsError: the weights do not fit it.
    """
    found = read_network(cfg, cfg.with_suffix(".weights"))
    region = getattr(found.layers[-1], "plugin", None)
    filters = [layer.filters for layer in found.layers if isinstance(layer, Convolutional)]
    classes, anchors = getattr(region, "classes", 0), getattr(region, "anchors", ())
    network = None
    if len(filters) == _CONVOLUTIONS and len(anchors) == 2 * ANCHORS:
        stages = [filters[i] for i in _STAGES]
        network = Yolov2(declare_layers(stages, filters[_HEAD], filters[_PASSTHROUGH], classes)).eval()
    if network is None or [part.out_channels for part, _ in network.convolutions()] != filters:
        raise CfgError(
            f"{cfg}: not the layers of YOLOv2-VOC.\nDo: begin with a network that samples/train_yolov2.py wrote",
            path=cfg,
        )
    _fill(network, found)
    names = read_names(cfg.with_suffix(".names"), classes)
    return Model(network, torch.tensor(anchors).view(ANCHORS, 2), names)


def _fill(network: Yolov2, found: Network) -> None:
    """Copy the weights; darknet's variances become those with which PyTorch divides by the same."""
    if found.weights is None:
        raise AssertionError("the network was read with its weights")
    arrays = [{name: _tensor(array) for name, array in layer.items()} for layer in found.weights.layers if layer]
    for (convolution, norm), given in zip(network.convolutions(), arrays, strict=True):
        convolution.weight.data = given["weights"].view_as(convolution.weight)
        if norm is None:
            convolution.bias.data = given["biases"]  # type: ignore[union-attr]
            continue
        norm.bias.data, norm.weight.data = given["biases"], given["scales"]
        root = given["rolling_variance"].double().sqrt() + DARKNET_EPSILON
        norm.running_mean, norm.running_var = given["rolling_mean"], (root.square() - norm.eps).clamp(min=0).float()


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))
