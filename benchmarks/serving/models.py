"""The trivial model that all servers get: the sum of 16 values of each request."""

from __future__ import annotations

import numpy as np

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.serving import Model

_ROWS = SymbolicDim("N")


class Tiny(Model):
    """64 bytes in, 4 out."""

    inputs = (TensorDesc("x", (_ROWS, 16)),)
    outputs = (TensorDesc("y", (_ROWS, 1)),)

    def predict(self, batch):
        return {"y": batch["x"].sum(1, keepdims=True)}


class Raw(Model):
    """An image of 519,168 bytes in, 4 out."""

    inputs = (TensorDesc("x", (_ROWS, 416, 416, 3), DType.UINT8),)
    outputs = (TensorDesc("y", (_ROWS, 1)),)

    def predict(self, batch):
        return {"y": batch["x"].reshape(len(batch["x"]), -1)[:, :16].astype(np.float32).sum(1, keepdims=True)}
