"""PyTorch interoperability: engines as modules, and plugins as PyTorch operators.

    module = ptp.torch.as_module(engine)               # torch.nn.Module: tensors in, tensors out
    reorg = ptp.torch.register(Reorg)                  # torch.ops.darknet.reorg(x, stride=2)
    torch.onnx.export(net, (x,), "net.onnx", **ptp.torch.export_options())   # the operator becomes the plugin's node

PyTorch is imported when one of these is called.
"""

from __future__ import annotations

from .exporters import export_options
from .module import as_module
from .register import register

__all__ = ["as_module", "export_options", "register"]
