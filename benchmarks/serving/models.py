"""Trivial models: those that all servers get, the sum of 16 values of each request; and one that takes photos and looks at nothing."""

from __future__ import annotations

import numpy as np

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.serving import Model
from pytrtplugins.serving.model.defaults import Detector

_ROWS = SymbolicDim("N")


class Tiny(Model):
    """64 bytes in, 4 out."""

    inputs = (TensorDesc("x", (_ROWS, 16)),)
    outputs = (TensorDesc("y", (_ROWS, 1)),)

    def predict(self, batch):
        return {"y": batch["x"].sum(1, keepdims=True)}


class Immediate(Tiny):
    """The same, computed where requests are read."""

    immediate = True


class Raw(Model):
    """An image of 519,168 bytes in, 4 out."""

    inputs = (TensorDesc("x", (_ROWS, 416, 416, 3), DType.UINT8),)
    outputs = (TensorDesc("y", (_ROWS, 1)),)

    def predict(self, batch):
        return {"y": batch["x"].reshape(len(batch["x"]), -1)[:, :16].astype(np.float32).sum(1, keepdims=True)}


class Undecoded(Detector):
    """Takes JPEG files as for a GPU's decoder, decodes nothing, and finds four boxes."""

    decodes, max_batch = True, 32

    def load(self, device):
        self.facts = {"names": ["thing"]}

    def predict(self, batch):
        found = {
            "boxes": np.ones((4, 4), np.float32),
            "scores": np.ones(4, np.float32),
            "classes": np.zeros(4, np.int64),
        }
        return [found] * len(batch)

    def close(self):
        pass
