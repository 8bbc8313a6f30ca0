"""A backend for Triton that stands in for its onnxruntime backend, whose library no package has: onnxruntime in Python.

Triton runs this file with an interpreter of its own, in a folder of backends named ``onnxruntime``. Its core does the
rest as ever: it reads the config, checks requests, waits for batches and puts them together.
"""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        self.inputs, self.outputs = ([item["name"] for item in self.config[side]] for side in ("input", "output"))

    def execute(self, requests):
        given = [{n: triton.get_input_tensor_by_name(r, n).as_numpy() for n in self.inputs} for r in requests]
        if self.config["max_batch_size"]:
            sizes = [arrays[self.inputs[0]].shape[0] for arrays in given]
            found = self.session.run(self.outputs, {n: np.concatenate([a[n] for a in given]) for n in self.inputs})
            parts = list(zip(*(np.split(array, np.cumsum(sizes)[:-1]) for array in found), strict=True))
            print(f"{self.config['name']} ran {sizes}", flush=True)
        else:
            parts = [self.session.run(self.outputs, arrays) for arrays in given]
        return [
            triton.InferenceResponse([triton.Tensor(n, np.array(a)) for n, a in zip(self.outputs, arrays, strict=True)])
            for arrays in parts
        ]
