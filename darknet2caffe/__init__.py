"""Convert darknet networks (.cfg and .weights) to ONNX and caffe, and back.

Example:
    >>> from darknet2caffe import read_network, to_onnx
    >>> network = read_network("yolov2-voc.cfg", "yolov2-voc.weights")  # doctest: +SKIP
    >>> model = to_onnx(network)                                        # doctest: +SKIP
"""

from __future__ import annotations

import logging

from .cfg import Cfg, read_cfg
from .from_caffe import from_caffe
from .network import Network, read_network, write_darknet
from .plugin_factory import PluginFactory
from .to_caffe import to_caffe
from .to_onnx import to_onnx, write_onnx
from .weights import Weights, read_weights

__all__ = [
    "Cfg",
    "Network",
    "PluginFactory",
    "Weights",
    "from_caffe",
    "read_cfg",
    "read_network",
    "read_weights",
    "to_caffe",
    "to_onnx",
    "write_darknet",
    "write_onnx",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
