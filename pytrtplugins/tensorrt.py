"""Plugins in TensorRT programs of one's own.

import pytrtplugins.tensorrt
pytrtplugins.tensorrt.register(Reorg)       # now trt.OnnxParser and trt.Runtime find it
with pytrtplugins.tensorrt.collecting():    # what a plugin raises is raised here, instead of TensorRT's None
    plan = builder.build_serialized_network(network, config)
"""

from __future__ import annotations

from .engines.tensorrt.collected import collecting
from .engines.tensorrt.creators import creator, register, unregister

__all__ = ["collecting", "creator", "register", "unregister"]
