"""The same models in two servers: ours, and Triton's Python backend."""

import numpy as np

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.serving import Model
from tests.serving.served import Double, N, Shout

__all__ = ["CONFIGS", "SOURCE", "Double", "Half", "Shout", "Total"]


class Half(Model):
    """Doubles in half precision."""

    max_batch = 32
    inputs = (TensorDesc("x", (N, 2), DType.FLOAT16),)
    outputs = (TensorDesc("y", (N, 2), DType.FLOAT16),)

    def predict(self, batch):
        return {"y": 2 * batch["x"]}


class Total(Model):
    """A sum, of any number of numbers."""

    stacked = False
    inputs = (TensorDesc("x", (SymbolicDim("any"),), DType.INT64),)
    outputs = (TensorDesc("sum", (1,), DType.INT64),)

    def predict(self, batch):
        return [{"sum": np.array([item["x"].sum()], np.int64)} for item in batch]


def _tensor(side, name, kind, dims, more=""):
    return f'{side} {{ name: "{name}" data_type: TYPE_{kind} dims: [{dims}] {more} }}\n'


CONFIGS = {
    "double": "max_batch_size: 32\ndynamic_batching {}\n"
    + _tensor("input", "x", "FP32", 2)
    + _tensor("output", "y", "FP32", 2, 'label_filename: "labels.txt"'),
    "half": "max_batch_size: 32\n" + _tensor("input", "x", "FP16", 2) + _tensor("output", "y", "FP16", 2),
    "shout": "max_batch_size: 32\n"
    + _tensor("input", "text", "STRING", 1)
    + _tensor("output", "loud", "STRING", 1)
    + _tensor("output", "length", "INT64", 1),
    "total": "max_batch_size: 0\n" + _tensor("input", "x", "INT64", -1) + _tensor("output", "sum", "INT64", 1),
}
SOURCE = """
import sys
sys.path.insert(0, {packages!r})
import numpy as np
import triton_python_backend_utils as triton


def double(x):
    if (x < 0).any():
        raise ValueError("poison")
    return {{"y": 2 * x}}


def shout(text):
    loud = np.array([each.upper() for each in text.ravel()], object).reshape(text.shape)
    return {{"loud": loud, "length": np.array([len(each) for each in text.ravel()]).reshape(text.shape)}}


def total(x):
    return {{"sum": np.array([x.sum()])}}


half = double


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        arrays = [each.as_numpy() for each in request.inputs()]
        try:
            found = {name}(*arrays)
        except ValueError as error:
            return triton.InferenceResponse([], triton.TritonError(str(error)))
        return triton.InferenceResponse([triton.Tensor(name, array) for name, array in found.items()])
"""
