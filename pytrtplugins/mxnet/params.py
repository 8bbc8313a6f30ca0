"""Read MXNet's ``.params``: a list of arrays, then a list of their names; all bytes are accounted for."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ModelError
from ..utils.files import read_regular
from ..validation.limits import MAX_FILE_BYTES, MAX_RANK

__all__ = ["FloatArray", "read_params"]

FloatArray = npt.NDArray[np.float32]

_LIST = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE = 0
_TYPES = {0: "<f4", 1: "<f8", 2: "<f2"}
_OTHER_TYPES = {
    3: "uint8", 4: "int32", 5: "int8", 6: "int64", 7: "bool", 8: "int16", 9: "uint16", 10: "uint32", 11: "uint64",
    12: "bfloat16",
}  # fmt: skip


def read_params(path: str | Path) -> dict[str, FloatArray]:
    """Read the arrays of a ``.params`` file.

    The format is that of ``NDArray::Save`` in MXNet's src/ndarray/ndarray.cc, in all its versions: that before 0.9 (no magic
    number), V1, V2, and V3 (NumPy's semantics). A claimed size is compared with the bytes that are left before any memory is taken.

    Args:
        path: The file, of at most 2 GiB.

    Returns:
        Name → array, in the file's order. Names lose the prefixes ``arg:`` and ``aux:``. Numbers are float32: float16 is
        widened, float64 is rounded.

    Raises:
        ModelError: the file cannot be read, is no such list, is too short or too long; an array is sparse, has another type or
            numbers that are not finite; ``.path`` and ``.offset`` say where.
    """
    path = Path(path)
    try:
        data = read_regular(path, MAX_FILE_BYTES, error=ModelError)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}.", path=path, offset=0) from error
    return _Reader(path, data).read()


class _Reader:
    """Sequential reader of a file's bytes."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path, self.data, self.offset = path, data, 0

    def read(self) -> dict[str, FloatArray]:
        if len(self.data) < 16 or struct.unpack_from("<Q", self.data)[0] != _LIST:
            raise self.error(
                f"not a .params file of MXNet: it begins with {self.data[:8].hex(' ') or 'nothing'}, expected 12 01 00 00 00 00 00 00",
                "Do: name the .params file that belongs to the symbol.json, such as model-0000.params",
            )
        self.offset = 16
        arrays = [self.array(number) for number in range(self.count("arrays", 4))]
        names = [self.name() for _ in range(self.count("names", 8))]
        if len(names) != len(arrays):
            raise self.error(f"{len(arrays):,} arrays and {len(names):,} names: expected a name for each array")
        if self.offset < len(self.data):
            raise self.error(f"{len(self.data) - self.offset:,} bytes are left after the last name")
        parameters: dict[str, FloatArray] = {}
        for name, array in zip(names, arrays, strict=True):
            if name in parameters:
                raise self.error(f"two arrays have the name {name[:200]!r}")
            parameters[name] = self.floats(name, array)
        return parameters

    def take(self, size: int, what: str) -> int:
        """Advance by ``size`` bytes, which must be there, and return the offset where they begin."""
        start, remaining = self.offset, len(self.data) - self.offset
        if size > remaining:
            raise self.error(
                f"{what} needs {size:,} bytes, and {remaining:,} are left",
                "Causes: (1) the file was cut short; (2) it is damaged.\nDo: copy or download the file again",
            )
        self.offset += size
        return start

    def number(self, form: str, what: str) -> int:
        start = self.take(struct.calcsize(form), what)
        return int(struct.unpack_from(form, self.data, start)[0])

    def count(self, what: str, least_bytes: int) -> int:
        """Read a count of items, each of which needs a minimum number of bytes."""
        total = self.number("<Q", f"the number of {what}")
        if total > (len(self.data) - self.offset) // least_bytes:
            raise self.error(f"{total:,} {what} are claimed, and {len(self.data) - self.offset:,} bytes are left")
        return total

    def name(self) -> str:
        size = self.number("<Q", "the length of a name")
        start = self.take(size, "a name")
        try:
            text = self.data[start : start + size].decode()
        except UnicodeDecodeError as error:
            raise self.error("a name is not UTF-8") from error
        return text.removeprefix("arg:").removeprefix("aux:")

    def array(self, number: int) -> npt.NDArray[Any]:
        what = f"array {number}"
        magic = self.number("<I", what)
        if magic in (_V2, _V3):
            storage = self.number("<i", what)
            if storage != _DENSE:
                raise self.error(
                    f"{what} is sparse (storage type {storage}), which is not supported",
                    "Do: save it in MXNet with array.tostype('default')",
                )
        if magic in (_V1, _V2, _V3):
            rank, form = self.number("<i", what), "<q"
        else:
            rank, form = magic, "<I"  # the format before 0.9 begins with the rank
        if not (-1 if magic == _V3 else 0) <= rank <= MAX_RANK:
            raise self.error(f"{what} has rank {rank:,}; expected 0 to {MAX_RANK}")
        if rank < 0 or (rank == 0 and magic != _V3):
            raise self.error(f"{what} was never given values: it has no shape")
        dims = tuple(self.number(form, what) for _ in range(rank))
        if any(dim < 1 for dim in dims):
            raise self.error(f"{what} has dims {_dims_text(dims)}: expected sizes of at least 1")
        self.take(8, what)  # the device that it lay on
        kind = self.number("<i", what)
        if kind not in _TYPES:
            raise self.error(
                f"{what} has the element type {_OTHER_TYPES.get(kind, kind)}; expected float32, float16 or float64",
                "Do: save it in MXNet as float32: array.astype('float32')",
            )
        dtype = np.dtype(_TYPES[kind])
        size = math.prod(dims) * dtype.itemsize
        start = self.take(size, f"{what} with dims {_dims_text(dims)}")
        return np.frombuffer(self.data, dtype, size // dtype.itemsize, start).reshape(dims)

    def floats(self, name: str, array: npt.NDArray[Any]) -> FloatArray:
        with np.errstate(over="ignore"):  # found below
            values = array.astype(np.float32, copy=False)
        is_finite = np.isfinite(values)
        if not is_finite.all():
            index = int(np.argmin(is_finite))
            raise self.error(
                f"{name[:200]!r} has {array.flat[index]} at place {index:,}: expected finite float32 numbers",
                "Causes: (1) the file is damaged; (2) the training diverged.\nDo: take the parameters of another epoch",
            )
        return values

    def error(self, problem: str, advice: str = "Do: copy or download the file again") -> ModelError:
        return ModelError(
            f"{self.path}: at byte {self.offset:,}: {problem}.\n{advice}", path=self.path, offset=self.offset
        )


def _dims_text(dims: tuple[int, ...]) -> str:
    text = ", ".join(map(str, dims[:8]))
    return f"({text}{', ...' if len(dims) > 8 else ''})"
