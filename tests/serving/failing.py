"""Models that raise, each in one method."""

import numpy as np

from pytrtplugins.serving import Model
from tests.serving.served import Double


class InInit(Double):
    def __init__(self):
        raise ValueError("no such thing")


class Elsewhere(Double):
    """Can be made once only: not by those who preprocess."""

    made = 0

    def __init__(self):
        super().__init__()
        Elsewhere.made += 1
        if Elsewhere.made > 1:
            raise ValueError("already made")


class Exits(Model):
    def load(self, device):
        raise SystemExit(3)


class InPreprocess(Double):
    def preprocess(self, request):
        raise SystemExit("bye")


class InPredict(Double):
    def predict(self, batch):
        raise SystemExit("bye")


class InPostprocess(Double):
    def preprocess(self, request):
        return {"x": np.zeros((1, 2), np.float32)}

    def postprocess(self, outputs, request):
        raise ZeroDivisionError("by nothing")


class InClose(Double):
    def close(self):
        raise RuntimeError("it stays open")
