"""Run by `make test-minimal` in an environment that holds this package and NumPy alone."""

import importlib.metadata

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import MissingExtraError, UnavailableError

installed = {distribution.metadata["Name"].lower() for distribution in importlib.metadata.distributions()}
extra = installed - {"pytrtplugins", "numpy", "pip", "setuptools"}
if extra:
    raise SystemExit(f"not a minimal environment: {sorted(extra)}")


@ptp.plugin(namespace="acme")
class Twice(ptp.Plugin):
    """Double the values."""

    factor: float = 2.0

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x.dtype.type(self.factor)


x = np.ones((1, 2), np.float32)
twice = ptp.Plugin.deserialize(Twice().serialize())
if not (twice.all_outputs([x])[0] == 2).all():
    raise SystemExit("compute is wrong")
reorg = ptp.layers.Reorg(stride=2)
if reorg.all_outputs([np.zeros((1, 4, 2, 2), np.float32)])[0].shape != (1, 16, 1, 1):
    raise SystemExit("Reorg is wrong")
try:
    twice.as_node(["x"], ["y"])
except MissingExtraError as error:
    if 'pip install "pytrtplugins[onnx]"' not in str(error):
        raise SystemExit(f"the message lacks the command: {error}") from error
else:
    raise SystemExit("ONNX nodes without onnx")
if ptp.native.available() or not (ptp.native.include_dir() / "pytrtplugins" / "plugin.h").is_file():
    raise SystemExit("pure Python with the C++ sources was expected")
try:
    ptp.load_library("libacme.so")
except UnavailableError as error:
    if "python -m pytrtplugins.native" not in str(error):
        raise SystemExit(f"the message lacks the command: {error}") from error
else:
    raise SystemExit("plugins in C++ without the native part")
print(f"ok: import, plugin and layers work with NumPy {np.__version__} alone")
