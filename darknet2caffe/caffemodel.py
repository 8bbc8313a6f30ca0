"""Read the weights of a .caffemodel; the file is memory-mapped, and arrays are views of it.

Only the fields that hold weights are read, by their numbers in BVLC/caffe, src/caffe/proto/caffe.proto: NetParameter.layer
100; LayerParameter.name 1, blobs 7; BlobProto.shape 7, data 5, double_data 8, and num, channels, height, width 1 to 4 in
older files; BlobShape.dim 1.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from pytrtplugins.errors import ModelError
from pytrtplugins.utils.files import open_regular

from .weights import FloatArray

__all__ = ["read_caffemodel"]

MAX_LAYERS = 100_000
MAX_BLOBS = 1_000
MAX_AXES = 32
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _Field(NamedTuple):
    """A field of a message: number, wire type and position; ``value`` of a varint."""

    number: int
    form: int
    begin: int
    end: int
    value: int


def read_caffemodel(path: str | Path) -> Mapping[str, tuple[FloatArray, ...]]:
    """Read the blobs of every layer that has some, by its name: float32 and read-only.

    Raises:
        ModelError: the file cannot be read, is damaged, is of caffe's old form (V1 layers), or holds NaN or infinity.
    """
    path = Path(path)
    try:
        with open_regular(str(path), error=partial(ModelError, offset=0)) as file:
            size = file.seek(0, 2)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except ModelError:
        raise
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read: {error}.", path=str(path), offset=0) from error
    return _Reader(path, data).layers()


class _Reader:
    """Parses the messages of one file without copies."""

    def __init__(self, path: Path, data: mmap.mmap | bytes) -> None:
        self.path, self.data = path, data

    def layers(self) -> dict[str, tuple[FloatArray, ...]]:
        """The arrays of all layers, by layer name."""
        blobs_by_layer: dict[str, tuple[FloatArray, ...]] = {}
        for count, field in enumerate(self.fields(0, len(self.data))):
            if count > MAX_LAYERS:
                self.fail(f"more than {MAX_LAYERS:,} layers", field.begin)
            if (field.number, field.form) == (2, _BYTES):
                self.fail(
                    "its layers are of caffe's old form (V1LayerParameter)",
                    field.begin,
                    "upgrade_net_proto_binary OLD.caffemodel NEW.caffemodel, which comes with caffe",
                )
            if (field.number, field.form) != (100, _BYTES):
                continue
            name, blobs = self.layer(field)
            if blobs and name in blobs_by_layer:
                self.fail(f"two layers of the name {name!r} have weights", field.begin)
            if blobs:
                blobs_by_layer[name] = blobs
        return blobs_by_layer

    def layer(self, message: _Field) -> tuple[str, tuple[FloatArray, ...]]:
        """Name and blobs of a layer."""
        name, blobs = "", []
        for field in self.fields(message.begin, message.end):
            if (field.number, field.form) == (1, _BYTES):
                try:
                    name = bytes(self.data[field.begin : field.end]).decode()
                except UnicodeDecodeError:
                    self.fail("the name of a layer is not UTF-8", field.begin)
            elif (field.number, field.form) == (7, _BYTES):
                blobs.append(field)
                if len(blobs) > MAX_BLOBS:
                    self.fail(f"layer {name!r} has more than {MAX_BLOBS:,} blobs", field.begin)
        return name, tuple(self.blob(field, name) for field in blobs)

    def blob(self, message: _Field, layer: str) -> FloatArray:
        """Read one array with its shape."""
        shape: list[int] | None = None
        legacy = [1, 1, 1, 1]
        parts: list[np.ndarray] = []
        for field in self.fields(message.begin, message.end):
            if (field.number, field.form) == (7, _BYTES):
                shape = self.shape(field)
            elif field.number in (5, 8) and field.form == _BYTES:
                parts.append(self.numbers(field, "<f4" if field.number == 5 else "<f8"))
            elif field.number in (5, 8):
                self.fail(f"layer {layer!r} has its weights one by one instead of packed", field.begin)
            elif 1 <= field.number <= 4 and field.form == _VARINT:
                legacy[field.number - 1] = field.value
        values = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, np.float32)
        dims = legacy if shape is None else shape
        if math.prod(dims) != values.size:
            self.fail(f"a blob of layer {layer!r} has the shape {dims} and {values.size:,} values", message.begin)
        with np.errstate(over="ignore"):
            values = np.asarray(values, np.float32)
        if not np.isfinite(values).all():
            self.fail(f"a blob of layer {layer!r} holds NaN, infinity, or more than float32 can", message.begin)
        values = values.reshape(dims)
        values.flags.writeable = False
        return values

    def shape(self, message: _Field) -> list[int]:
        """Read the dims, unpacked or packed."""
        dims: list[int] = []
        for field in self.fields(message.begin, message.end):
            if (field.number, field.form) == (1, _VARINT):
                dims.append(field.value)
            elif (field.number, field.form) == (1, _BYTES):
                place = field.begin
                while place < field.end and len(dims) <= MAX_AXES:
                    value, place = self.varint(place, field.end)
                    dims.append(value)
        if len(dims) > MAX_AXES or any(dim >= 2**31 for dim in dims):
            self.fail(f"a blob of {len(dims)} axes, or of more than caffe's numbers count to", message.begin)
        return dims

    def numbers(self, field: _Field, dtype: str) -> np.ndarray:
        """Packed floating point numbers."""
        count, rest = divmod(field.end - field.begin, np.dtype(dtype).itemsize)
        if rest:
            self.fail(f"{field.end - field.begin:,} bytes are not whole numbers", field.begin)
        return np.frombuffer(self.data, dtype, count, field.begin) if count else np.zeros(0, dtype)

    def fields(self, place: int, end: int) -> Iterator[_Field]:
        """The fields of a message, one after the other."""
        while place < end:
            start = place
            tag, place = self.varint(place, end)
            form, value = tag & 7, 0
            if form == _VARINT:
                begin, (value, place) = place, self.varint(place, end)
            elif form in (_FIXED64, _FIXED32):
                begin, place = place, place + (8 if form == _FIXED64 else 4)
            elif form == _BYTES:
                size, begin = self.varint(place, end)
                place = begin + size
            else:
                self.fail(f"a field of the unknown form {form}", start)
            if place > end:
                self.fail(f"a field extends {place - end:,} bytes beyond its message", start)
            yield _Field(tag >> 3, form, begin, place, value)

    def varint(self, place: int, end: int) -> tuple[int, int]:
        """A number of up to 64 bits, and where it ends."""
        value = 0
        for shift in range(0, 70, 7):
            if place >= end:
                self.fail("the file, or a message in it, ends inside a number", place)
            byte = self.data[place]
            place += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, place
        self.fail("a number of more than 64 bits", place)

    def fail(self, problem: str, offset: int, action: str = "") -> NoReturn:
        """Raise the error for something in the file."""
        ending = (
            f"\nDo: {action}."
            if action
            else "\nCauses: (1) the file is damaged or cut short; (2) it is not a .caffemodel."
        )
        raise ModelError(f"{self.path}: at byte {offset:,}: {problem}.{ending}", path=str(self.path), offset=offset)
