"""Plugins in TensorRT programs of one's own.

import pytrtplugins.tensorrt
pytrtplugins.tensorrt.register(Reorg)       # now trt.OnnxParser and trt.Runtime find it
with pytrtplugins.tensorrt.collecting():    # what a plugin raises is raised here, instead of TensorRT's None
    plan = builder.build_serialized_network(network, config)

shuffle = pytrtplugins.tensorrt.to_qdp(ChannelShuffle)     # or as one of TensorRT's quickly deployable plugins
network.add_plugin(shuffle(x, groups=4))
"""

from __future__ import annotations

from .engines.tensorrt.collected import collecting
from .engines.tensorrt.creators import creator, register, unregister
from .engines.tensorrt.quick import QuickPlugin, to_qdp

__all__ = ["QuickPlugin", "collecting", "creator", "register", "to_qdp", "unregister"]
