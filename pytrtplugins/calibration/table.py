"""Calibration table: scales of a network's tensors, in the format of TensorRT's calibration cache."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CalibrationTableError
from ..utils.atomic import write_atomic
from ..utils.files import read_regular
from ..utils.listing import some_names
from ..utils.notebook import object_html
from ..utils.text_formats import shorten

__all__ = ["ALGORITHMS", "MAX_CACHE_BYTES", "CalibrationTable", "trt_version"]

MAX_CACHE_BYTES = 4 << 20  # of a cache file: about 100,000 tensors

ALGORITHMS = ("EntropyCalibration2", "MinMaxCalibration", "EntropyCalibration", "LegacyCalibration")
_NEWEST = "10.16.1"  # TensorRT 11 reads no caches
_HEADER = re.compile(r"TRT-([0-9]{1,9})-([A-Za-z0-9_]+)")
_HEX = re.compile(r"[0-9a-fA-F]{1,8}")
_LEVELS = 127


class CalibrationTable(Mapping[str, np.float32]):
    r"""Immutable mapping of tensor names to scales: the value of one int8 step, float32.

    A scale of 0 is allowed, as in TensorRT's own caches: the tensor was 0 throughout calibration.

    Args:
        scales: Scale of each tensor, in the tensor's unit, finite and not negative; rounded to float32. Order is kept.
        algorithm: One of `ALGORITHMS`.
        version: TensorRT version of the header, ``"8.6.1"`` or the header's number (8601); TensorRT reads only caches
            that carry its own.

    Raises:
        CalibrationTableError: a scale, name, algorithm or version that the file format cannot hold.

    Example:
        >>> table = CalibrationTable({"data": 1 / 127}, version="8.6.1")
        >>> table.to_bytes()
        b'TRT-8601-EntropyCalibration2\ndata: 3c010204\n'
        >>> table.amax("data")
        1.0
    """

    __slots__ = ("_scales", "algorithm", "version")

    algorithm: str
    version: int

    def __init__(
        self,
        scales: Mapping[str, float | np.floating[Any]],
        algorithm: str = ALGORITHMS[0],
        *,
        version: str | int = _NEWEST,
    ) -> None:
        if algorithm not in ALGORITHMS:
            raise CalibrationTableError(
                f"calibration table: algorithm: expected one of {', '.join(ALGORITHMS)}, found {algorithm!r}."
            )
        scale_of: dict[str, np.float32] = {}
        for name, value in scales.items():
            with np.errstate(over="ignore"):
                scale = np.float32(value)
            if not np.isfinite(scale) or scale < 0:
                raise CalibrationTableError(
                    f"calibration table: scale of {shorten(name)}: expected a finite float32 >= 0, found {value}.",
                    tensor=name,
                )
            if not isinstance(name, str) or "\n" in name:
                raise CalibrationTableError(
                    f"calibration table: expected tensor names of one line of text, found {shorten(name)}.", tensor=name
                )
            scale_of[name] = scale + np.float32(0)  # -0.0 becomes 0.0
        object.__setattr__(self, "_scales", scale_of)
        object.__setattr__(self, "algorithm", algorithm)
        object.__setattr__(self, "version", version if isinstance(version, int) else trt_version(version))

    @property
    def header(self) -> str:
        """The first line of the file, such as ``TRT-8601-EntropyCalibration2``."""
        return f"TRT-{self.version}-{self.algorithm}"

    def amax(self, name: str) -> float:
        """Return the largest |x| that int8 represents with the tensor's scale: 127·scale, computed in float32."""
        return float(np.float32(_LEVELS) * self[name])

    def with_version(self, version: str | int) -> CalibrationTable:
        """Return the same scales with the header of another TensorRT version, which then accepts them."""
        return CalibrationTable(self, self.algorithm, version=version)

    @classmethod
    def read(cls, path: str | Path) -> CalibrationTable:
        """Read a calibration cache file.

        Raises:
            CalibrationTableError: the file is not a calibration cache; ``.path`` and ``.line`` say where.
            OSError: the file cannot be read.
        """
        return cls.from_bytes(read_regular(path, MAX_CACHE_BYTES, error=CalibrationTableError), path=path)

    def write(self, path: str | Path) -> None:
        """Write a calibration cache file, atomically."""
        write_atomic(path, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, *, path: str | Path = "calibration cache") -> CalibrationTable:
        r"""Parse the text of a calibration cache.

        Accepts what is found in the wild: Windows line ends, no newline at the end, blank lines, names with blanks and
        colons (the last colon ends the name), names that are not UTF-8, and numbers without their leading zeros.

        Args:
            data: The text.
            path: Where it came from, for messages.

        Raises:
            CalibrationTableError: a line cannot be understood; ``.path`` and ``.line`` say which.
        """
        lines = [line.removesuffix(b"\r").decode("utf-8", "surrogateescape") for line in bytes(data).split(b"\n")]
        header = _HEADER.fullmatch(lines[0].strip().removeprefix("\ufeff"))
        if header is None:
            raise _bad_line(path, 1, "a header such as 'TRT-8601-EntropyCalibration2'", lines[0])
        if header[2] not in ALGORITHMS:
            raise _bad_line(path, 1, f"one of the algorithms {', '.join(ALGORITHMS)}", header[2])
        scales: dict[str, np.float32] = {}
        for number, line in enumerate(lines[1:], start=2):
            if not line.strip():
                continue
            name, colon, digits = line.rpartition(":")
            if not colon or not _HEX.fullmatch(digits.strip()):
                raise _bad_line(path, number, "'tensor name: ' and up to 8 hex digits", line)
            scale = np.float32(struct.unpack(">f", bytes.fromhex(digits.strip().zfill(8)))[0])
            if not np.isfinite(scale) or scale < 0:
                raise _bad_line(path, number, "the bits of a finite float32 >= 0", f"{digits.strip()} ({scale})")
            if scales.setdefault(name, scale) != scale:
                raise _bad_line(path, number, f"one scale of {shorten(name)}", f"{scales[name]} and {scale}")
        return cls(scales, header[2], version=int(header[1]))

    def to_bytes(self) -> bytes:
        """Return the text of the cache as TensorRT writes it: hex digits of the big-endian float32, no leading zeros."""
        lines = [f"{name}: {int(scale.view(np.uint32)):x}" for name, scale in self._scale_of().items()]
        return "".join(f"{line}\n" for line in [self.header, *lines]).encode("utf-8", "surrogateescape")

    def check_fits(
        self,
        tensors: Collection[str],
        *,
        required: Collection[str] | None = None,
        path: str | Path = "calibration table",
        digests: tuple[str, str] | None = None,
    ) -> None:
        """Raise an error if the table does not have the network's tensors.

        A table may know more tensors than the network: TensorRT's own tables name its internal layers too.

        Args:
            tensors: The float tensors of the network, by which a table made for it would name its scales.
            required: Those without which the network cannot be quantized; default: all of ``tensors``.
            path: Where the table came from, for the message.
            digests: (of the model that the table was made with, of this model), if both are known; different ones are
                refused even where the names agree: the weights differ then, and with them the scales.

        Raises:
            CalibrationTableError: with ``.only_in_table`` and ``.only_in_network``.
        """
        missing = [name for name in (tensors if required is None else required) if name not in self]
        is_other_model = digests is not None and digests[0] != digests[1]
        if not missing and not is_other_model:
            return
        tensor_names = set(tensors)
        only_in_table = tuple(name for name in self if name not in tensor_names)
        only_in_network = tuple(name for name in tensors if name not in self)
        models = (
            f" (table: model {digests[0][:8]}; this network: model {digests[1][:8]})"
            if digests and is_other_model
            else ""
        )
        if only_in_table or only_in_network:
            names = (
                f"Only in the table: {some_names(only_in_table)}. Only in the network: {some_names(only_in_network)}."
            )
            causes = (
                "(1) the ONNX file was converted again and tensor names changed; "
                "(2) the table belongs to another network."
            )
        else:
            names = f"All {len(tensor_names):,} tensor names agree."
            causes = (
                "(1) the network has other weights or shapes than when it was calibrated; "
                "(2) another version of this package prepared it."
            )
        raise CalibrationTableError(
            f"{path} was made for another network{models}.\n{names}\nCauses: {causes}\n"
            f"Do: pytrt calibrate MODEL --calibration IMAGES --cache {path}",
            path=path,
            only_in_table=only_in_table,
            only_in_network=only_in_network,
        )

    def _scale_of(self) -> dict[str, np.float32]:
        scale_of: dict[str, np.float32] = self._scales  # type: ignore[attr-defined]  # set once, by __init__
        return scale_of

    def __getitem__(self, name: str) -> np.float32:
        return self._scale_of()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scale_of())

    def __len__(self) -> int:
        return len(self._scale_of())

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a CalibrationTable is frozen: {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CalibrationTable):
            return NotImplemented
        return self.header == other.header and self._scale_of() == other._scale_of()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        return f"CalibrationTable({len(self)} tensors, {self.header})"

    def _repr_html_(self) -> str:
        rows = [(name, f"{scale:.6g}", f"{self.amax(name):.6g}") for name, scale in self.items()]
        return object_html(f"calibration table: {len(self)} tensors, {self.header}", ("tensor", "scale", "amax"), rows)


def trt_version(version: str) -> int:
    """Return the number of a TensorRT version in cache headers.

    Args:
        version: ``"8.6.1"`` or ``"10.2.0"``; parts beyond the third are ignored.

    Raises:
        CalibrationTableError: not three numbers, or minor or patch of more than two digits.

    Source:
        NvInferVersion.h: NV_TENSORRT_VERSION is major·1000 + minor·100 + patch before TensorRT 10, and
        major·10000 + minor·100 + patch from 10 on.

    Example:
        >>> trt_version("8.6.1"), trt_version("10.2.0")
        (8601, 100200)
    """
    match = re.fullmatch(r"([0-9]{1,4})\.([0-9]{1,2})\.([0-9]{1,2})(\..*)?", version)
    if match is None:
        raise CalibrationTableError(f"calibration table: version: expected one such as '8.6.1', found {version!r}.")
    major, minor, patch = (int(part) for part in match.groups()[:3])
    return major * (10_000 if major >= 10 else 1000) + minor * 100 + patch


def _bad_line(path: str | Path, line: int, expected: str, found: str) -> CalibrationTableError:
    return CalibrationTableError(
        f"{path}, line {line}: expected {expected}, found {shorten(found)}.\n"
        "Causes: (1) the file is not a calibration cache; (2) it was damaged or edited.",
        path=path,
        line=line,
    )
