"""Convert a network to caffe's .prototxt and .caffemodel."""

from __future__ import annotations

import logging
from pathlib import Path

from pytrtplugins.errors import UsageError

from ._caffe_layers import write_layer
from ._caffe_writer import CaffeWriter
from ._onnx_writer import Options
from .fold import BnEps, check_bn_eps
from .layers import YoloLayer
from .network import Network
from .to_onnx import Activation, chosen_activation

__all__ = ["to_caffe"]

log = logging.getLogger(__name__)


def to_caffe(
    network: Network,
    prefix: str | Path,
    *,
    fold: bool = True,
    activation: Activation = "as-is",
    bn_eps: BnEps | None = None,
    input_size: tuple[int, int] | None = None,
    batch: int = 1,
) -> tuple[Path, Path]:
    """Convert a darknet network to caffe, with the memory of about one layer.

    Only layer types of BVLC's caffe are written, so a layer of darknet may take several; its result is the blob
    ``<index>_<type>``. Reorg, Region and Yolo become layers of those types with their own parameter messages, for a
    plugin factory to find, as `from_caffe` has one.

    Args:
        network: The network, with weights.
        prefix: Path without suffix; ``.prototxt`` and ``.caffemodel`` are added to it.
        fold: Write batch normalization into the convolutions; otherwise as BatchNorm and Scale layers.
        activation: As for `to_onnx`.
        bn_eps: As for `to_onnx`.
        input_size: Width and height to use instead of the cfg's.
        batch: Images per run.

    Returns:
        The two files.

    Raises:
        UsageError: caffe cannot express a layer, or an argument is wrong, or the network has no weights, or 2 GiB of
            them and more.
        CfgError: a layer does not accept ``input_size``.
    """
    bn_eps = check_bn_eps(bn_eps, network.dialect)
    chosen_activation("linear", activation)
    if not isinstance(batch, int) or batch < 1:
        raise UsageError(f"batch={batch!r}: caffe's batch is a number of at least 1")
    if input_size is not None:
        network = network.with_input_size(*input_size)
    _warn_of_lost_options(network)
    writer = CaffeWriter(network, Options(fold, activation, bn_eps, batch))
    writer.write(write_layer)
    text, binary = Path(f"{prefix}.prototxt"), Path(f"{prefix}.caffemodel")
    writer.save(text, binary)
    return text, binary


def _warn_of_lost_options(network: Network) -> None:
    """Warn of options that affect boxes and cannot be stored in caffe's files."""
    heads = [layer for layer in network.outputs if isinstance(layer, YoloLayer) and layer.distance_power is not None]
    if heads:
        log.warning(
            "%s:%d: [yolo]: caffe's files do not hold nms_kind and beta_nms.\n"
            "Do: suppress boxes with pytrtplugins.vision.nms(..., distance_power=%g), or convert to ONNX, which holds them",
            *(network.cfg.path, heads[-1].line, heads[-1].distance_power),
        )
