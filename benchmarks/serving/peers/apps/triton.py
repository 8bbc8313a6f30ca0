"""Triton's core of PyTriton's wheel, which needs no GPU, with its Python backend."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

CONFIG = """
backend: "python"
max_batch_size: 32
input {{ name: "x" data_type: {dtype} dims: [{dims}] }}
output {{ name: "y" data_type: TYPE_FP32 dims: [1] }}
dynamic_batching {{ }}
instance_group {{ kind: KIND_CPU count: 1 }}
"""
MODEL = """
import sys
sys.path.insert(0, {packages!r})
import numpy as np
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        given = [triton.get_input_tensor_by_name(each, "x").as_numpy() for each in requests]
        x = np.concatenate(given)
        y = x.reshape(len(x), -1)[:, :16].astype(np.float32).sum(1, keepdims=True)
        ends = np.cumsum([len(each) for each in given])[:-1]
        return [triton.InferenceResponse([triton.Tensor("y", part)]) for part in np.split(y, ends)]
"""

if __name__ == "__main__":
    packages = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    source = packages / "pytriton" / "tritonserver"
    folder = Path(tempfile.mkdtemp(prefix="triton-"))
    for name, dtype, dims in (("tiny", "TYPE_FP32", "16"), ("raw", "TYPE_UINT8", "416, 416, 3")):
        (folder / "models" / name / "1").mkdir(parents=True)
        (folder / "models" / name / "config.pbtxt").write_text(CONFIG.format(dtype=dtype, dims=dims))
        (folder / "models" / name / "1" / "model.py").write_text(MODEL.format(packages=str(packages)))
    shutil.copytree(source / "backends" / "python", folder / "backends" / "python")
    stub = source / "python_backend_stubs" / packages.parent.name.removeprefix("python") / "triton_python_backend_stub"
    shutil.copy(stub, folder / "backends" / "python")
    (folder / "backends" / "python" / stub.name).chmod(0o755)
    options = [
        f"--model-repository={folder / 'models'}", f"--backend-directory={folder / 'backends'}", "--allow-grpc=false",
        "--allow-metrics=false", f"--http-port={sys.argv[1]}", "--http-address=127.0.0.1", "--log-verbose=0",
    ]  # fmt: skip
    os.execv(source / "bin" / "tritonserver", ["tritonserver", *options])
