"""Models with the names, inputs and outputs of those that Triton's own tests of clients ask for."""

from __future__ import annotations

import time

import numpy as np

from pytrtplugins import DType, SymbolicDim, TensorDesc
from pytrtplugins.serving import Model, TensorSpec

_N, _M, _K = (SymbolicDim(name) for name in "NMK")


def _strings(name: str, *dims: int) -> TensorSpec:
    return TensorSpec(name, "BYTES", (-1, *dims))


class Identity(Model):
    """Each output is the input of its number."""

    max_batch = 8

    def predict(self, batch):
        return {name.replace("INPUT", "OUTPUT"): array for name, array in batch.items()}


class Float(Identity):
    """Rows of any length."""

    inputs, outputs = ((TensorDesc(name, (_N, _M)),) for name in ("INPUT0", "OUTPUT0"))


class Half(Identity):
    """Matrices of any size, in half precision."""

    inputs, outputs = ((TensorDesc(name, (_N, _M, _K), DType.FLOAT16),) for name in ("INPUT0", "OUTPUT0"))


class ThreeFloats(Identity):
    """Three of them."""

    inputs, outputs = (
        tuple(TensorDesc(f"{side}{number}", (_N, _M)) for number in range(3)) for side in ("INPUT", "OUTPUT")
    )


class SlowFloat(Float):
    """Takes two seconds."""

    max_batch = 1

    def predict(self, batch):
        time.sleep(2)
        return super().predict(batch)


class Whole(Identity):
    """Whole numbers."""

    inputs, outputs = ((TensorDesc(name, (_N, _M), DType.INT64),) for name in ("INPUT0", "OUTPUT0"))


class Strings(Identity):
    """Strings."""

    inputs, outputs = ((_strings(name, -1),) for name in ("INPUT0", "OUTPUT0"))


class OneString(Identity):
    """One string in each row."""

    inputs, outputs = ((_strings(name, 1),) for name in ("INPUT0", "OUTPUT0"))


class TwoStrings(Identity):
    """Sixteen strings in each row of two inputs."""

    inputs, outputs = (tuple(_strings(f"{side}{number}", 16) for number in range(2)) for side in ("INPUT", "OUTPUT"))


class EightFloats(Identity):
    """Rows of eight numbers."""

    inputs, outputs = ((TensorDesc(name, (_N, 8)),) for name in ("INPUT0", "OUTPUT0"))


class ThreeInputs(Model):
    """Three inputs, of which none may be left out."""

    inputs = tuple(TensorDesc(f"INPUT{number}", (SymbolicDim(f"N{number}"),)) for number in range(3))
    outputs = (TensorDesc("OUTPUT0", (1,)),)

    def predict(self, batch):
        return {"OUTPUT0": np.ones(1, np.float32)}


class Simple(Model):
    """A sum and a difference."""

    max_batch = 8
    inputs, outputs = (
        tuple(TensorDesc(f"{side}{number}", (_N, 16), DType.INT32) for number in range(2))
        for side in ("INPUT", "OUTPUT")
    )

    def predict(self, batch):
        one, other = batch["INPUT0"], batch["INPUT1"]
        return {"OUTPUT0": one + other, "OUTPUT1": one - other}


class SlowSimple(Simple):
    """The same in 15 seconds, as Triton's."""

    max_batch = 1

    def predict(self, batch):
        time.sleep(15)
        return super().predict(batch)


class Underlined(Simple):
    """The same, whose outputs have names as TorchScript's have them."""

    outputs = tuple(TensorDesc(f"OUTPUT__{number}", (_N, 16), DType.INT32) for number in range(2))

    def predict(self, batch):
        return {name.replace("OUTPUT", "OUTPUT__"): array for name, array in super().predict(batch).items()}


class ShapeTensor(Model):
    """A tensor, and two sizes that Triton takes for a shape."""

    inputs = (TensorDesc("DUMMY_INPUT0", (_N, 32)), TensorDesc("INPUT0", (2,), DType.INT32))
    outputs = (TensorDesc("DUMMY_OUTPUT0", (_N, 32)), TensorDesc("OUTPUT0", (2,), DType.INT32))

    def predict(self, batch):
        return {name.replace("INPUT", "OUTPUT"): array for name, array in batch.items()}


class ShapeTensorOfBatch(ShapeTensor):
    """The same, for a batch."""

    inputs = (TensorDesc("DUMMY_INPUT0", (_N, 32, 32)), TensorDesc("INPUT0", (2,), DType.INT32))
    outputs = (TensorDesc("DUMMY_OUTPUT0", (_N, 32, 32)), TensorDesc("OUTPUT0", (2,), DType.INT32))
