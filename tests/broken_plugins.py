"""Plugins with one defect each, and the check that must find it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import pytrtplugins as ptp
from pytrtplugins.errors import SerializationError

ZOO: list[tuple[type[ptp.Plugin], str]] = []


def caught_by(entry: str) -> Any:
    def decorate(cls: type[ptp.Plugin]) -> type[ptp.Plugin]:
        registered = ptp.plugin(namespace="broken")(cls)
        ZOO.append((registered, entry))
        return registered

    return decorate


class Double(ptp.Plugin):
    """Right; each subclass breaks one thing."""

    def output_dims(self, x):
        return x

    def compute(self, x):
        return x * x.dtype.type(2)


@caught_by("kept inputs")
class KnowsTheArrayAgain(Double):
    """Does not look into an array that it had before."""

    def compute(self, x):
        if self.__dict__.get("_x") is not x:
            self._x, self._y = x, x * x.dtype.type(2)
        return self._y.copy()


@caught_by("kept inputs")
class ReadsTheArrayBefore(Double):
    """Right as long as nobody uses an array of an earlier run for something else."""

    def compute(self, x):
        before, self._x = self.__dict__.get("_x"), x
        y = x * x.dtype.type(2)
        return y if before is None or before.shape != x.shape else (y + 0 * before).astype(x.dtype)


@caught_by("dims")
class WrongDims(Double):
    def output_dims(self, x):
        return (x[0], *x[:0:-1])


@caught_by("dims")
class TwoOutputsForOne(Double):
    def compute(self, x):
        return x, x


@caught_by("dtypes")
class WrongDtype(Double):
    def compute(self, x):
        return x.astype(np.float64) * 2


@caught_by("dtypes")
class WidensFloat16(Double):
    """Is right in float32 alone."""

    def compute(self, x):
        return (x * x.dtype.type(2)).astype(np.promote_types(x.dtype, np.float32))


@caught_by("formats")
class NoFormats(Double):
    def supports_format(self, position, descs):
        return False


@caught_by("formats")
class AnswersWithAWord(Double):
    def supports_format(self, position, descs):
        return "linear" if super().supports_format(position, descs) else ""


@caught_by("formats")
class ClaimsInt8(Double):
    int8: ClassVar[str] = "pass_through"

    def compute(self, x):
        if x.dtype == np.int8:
            raise TypeError("no int8 here")
        return x * x.dtype.type(2)


@caught_by("determinism")
class Random(Double):
    def compute(self, x):
        return x + np.random.default_rng().random(x.shape).astype(x.dtype)


@caught_by("symbolic dims")
class BranchesOnTheBatch(Double):
    def output_dims(self, x):
        return tuple(x) if x[0] else ()


@caught_by("symbolic dims")
class OtherDimsWhenSymbolic(Double):
    def output_dims(self, x):
        return x if all(isinstance(dim, int) for dim in x) else (*x[:-1], x[-1] + 1)


@caught_by("batch")
class MixesTheBatch(Double):
    def compute(self, x):
        return x - x.mean(axis=0, keepdims=True, dtype=np.float32).astype(x.dtype)


@caught_by("non-contiguous input")
class NeedsContiguous(Double):
    def compute(self, x):
        if not x.flags.c_contiguous:
            raise ValueError("not contiguous")
        return x * x.dtype.type(2)


@caught_by("non-contiguous input")
class ReadsRawMemory(Double):
    def compute(self, x):
        return x.ravel(order="K").reshape(x.shape) * x.dtype.type(2)


@caught_by("non-contiguous input")
class OverlooksGaps(Double):
    def compute(self, x):
        if x.strides[-1] > 0 and list(x.strides) == sorted(x.strides, reverse=True):
            whole = np.empty(x.shape, x.dtype).strides  # as if no gap were between values that are in order
            x = np.lib.stride_tricks.as_strided(x, strides=whole)
        return x * x.dtype.type(2)


@caught_by("input unchanged")
class MutatesInput(Double):
    def compute(self, x):
        x *= x.dtype.type(2)
        return x.copy()


@caught_by("input unchanged")
class EnqueueMutatesInput(Double):
    def enqueue(self, inputs, outputs, workspace, stream):
        inputs[0][...] *= 2
        outputs[0][...] = inputs[0]


@caught_by("independent results")
class OneBuffer(Double):
    _buffers: ClassVar[dict[Any, Any]] = {}

    def compute(self, x):
        buffer = self._buffers.setdefault((x.shape, x.dtype), np.empty(x.shape, x.dtype))
        np.multiply(x, x.dtype.type(2), out=buffer)
        return buffer


@caught_by("independent results")
class GivesItsInput(Double):
    def compute(self, x):
        return x


@caught_by("serialization")
class WritesOtherBytesLater(Double):
    factor: int = 2

    @classmethod
    def deserialize(cls, data):
        twin = super().deserialize(data)
        twin.read = True
        return twin

    def serialize(self):
        return type(self)(self.factor + 1).serialize() if "read" in self.__dict__ else super().serialize()


@caught_by("serialization")
class ForgetsFields(Double):
    factor: int = 2

    def serialize(self):
        return type(self)().serialize() if self.factor != 2 else super().serialize()


@caught_by("damaged bytes")
class AcceptsDamage(Double):
    @classmethod
    def deserialize(cls, data):
        try:
            return super().deserialize(data)
        except SerializationError:
            return cls()


@caught_by("damaged bytes")
class TakesAByteMore(Double):
    @classmethod
    def deserialize(cls, data):
        try:
            return super().deserialize(data)
        except SerializationError:
            return super().deserialize(data[:-1])


@caught_by("clone")
class SharesState(Double):
    def initialize(self):
        self.cache = [1]

    def clone(self):
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        return twin


@caught_by("clone")
class CloneIsItself(Double):
    def clone(self):
        return self


@caught_by("clone")
class CloneForgets(Double):
    factor: int = 2

    def clone(self):
        return type(self)()


@caught_by("enqueue writes all")
class LeavesTheLastElement(Double):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0].reshape(-1)[:-1] = 2 * inputs[0].reshape(-1)[:-1]


@caught_by("enqueue writes all")
class AddsToTheOutput(Double):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] += 2 * inputs[0]


@caught_by("enqueue")
class EnqueueDiffers(Double):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = 3 * inputs[0]


@caught_by("enqueue")
class EnqueueWithoutWorkspace(Double):
    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = 2 * inputs[0] + workspace[0]


@caught_by("changing dims")
class KeepsTheFirstDims(Double):
    def configure(self, inputs, outputs):
        self.__dict__.setdefault("_count", inputs[0].dims[0])

    def enqueue(self, inputs, outputs, workspace, stream):
        outputs[0][...] = inputs[0] * 2
        outputs[0][self._count :] = 0


class Sum(ptp.Plugin):
    """Right; of two inputs."""

    def output_dims(self, x, y):
        if x != y:
            raise ptp.PytrtpluginsError(f"{x} and {y} differ")
        return x

    def compute(self, x, y):
        return x + y


@caught_by("one array twice")
class ComparesArrays(Sum):
    def compute(self, x, y):
        return x.copy() if x is y else x + y


@caught_by("one array twice")
class ComparesAddresses(Sum):
    def enqueue(self, inputs, outputs, workspace, stream):
        (x, y), (z,) = inputs, outputs
        z[...] = x if x.__array_interface__["data"] == y.__array_interface__["data"] else x + y


@caught_by("int8 pass-through")
class NotPassThrough(Double):
    int8: ClassVar[str] = "pass_through"

    def compute(self, x):
        return x + x.dtype.type(100)


@caught_by("int8 pass-through")
class OffByOneInInt8(Double):
    int8: ClassVar[str] = "pass_through"

    def compute(self, x):
        return x + x.dtype.type(x.dtype == np.int8)


@caught_by("ONNX node")
class NodeForgets(Double):
    factor: int = 2

    def as_node(self, inputs, outputs, name=""):
        return (
            type(self)().as_node(inputs, outputs, name) if self.factor != 2 else super().as_node(inputs, outputs, name)
        )


@caught_by("decomposition")
class OtherDecomposition(Double):
    def decompose(self, op, x):
        return op.Mul(x, np.float32(2.5))


@caught_by("decomposition")
class NoSuchOperator(Double):
    def decompose(self, op, x):
        return op.Duplicate(x)
