"""Decode JPEG files with simplejpeg or OpenCV, which release Python's lock during all of the work; Pillow does not."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import MissingExtraError
from ..utils.optional import require

__all__ = ["SIDEWAYS", "JpegHeader", "Memory", "decode_jpeg", "empty", "read_header"]

Bytes = npt.NDArray[np.uint8]
Memory = Callable[[int], Bytes]
"""Gives so many bytes of memory, whose values are undefined."""

_START, _END, _SCAN = b"\xff\xd8", b"\xff\xd9", 0xDA
_BASELINE, _PROGRESSIVE = (0xC0, 0xC1), 0xC2
_OTHERS = frozenset((0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)))  # tables, restarts, comments, applications' segments
_PART = 1 << 16  # bytes that are looked at in one go: arrays of this size are made without asking the system for memory
_MODES = {1: "L", 3: "RGB"}
_RGB, _YCBCR = b"RGB", b"\1\2\3"  # names of components, as libjpeg takes them
_EXIF, _XMP = b"Exif\0\0", b"http://ns.adobe.com/xap/"
_ORIENTATION, _SHORT = 0x0112, 3  # a tag of EXIF, and its type
SIDEWAYS = (5, 6, 7, 8)
"""Orientations of EXIF that exchange width and height."""
_IN_SCANS = frozenset((0xFF, *range(0xD0, 0xD8)))  # padding, restarts
_BETWEEN_SCANS = frozenset((0xC4, _SCAN))  # of progressive files: tables, the next scan


def empty(size: int) -> Bytes:
    """Allocate a uint8 array of a size in bytes."""
    return np.empty(size, np.uint8)


@dataclass(frozen=True)
class JpegHeader:
    """The header of a JPEG file.

    Fields:
        width: In pixels, as they are stored.
        height: In pixels, as they are stored.
        mode: Pillow's name of what is stored: ``"L"`` for grey, ``"RGB"`` for colour.
        orientation: EXIF's, 1 to 8; 1 where the file says none.
        scan: Where the data begin.
        progressive: Whether there are several scans.
    """

    width: int
    height: int
    mode: str
    orientation: int
    scan: int
    progressive: bool

    @property
    def upright_size(self) -> tuple[int, int]:
        """(width, height) of the upright image."""
        return (self.height, self.width) if self.orientation in SIDEWAYS else (self.width, self.height)


def read_header(data: bytes) -> JpegHeader | None:
    """Read the segments of a JPEG file up to its data.

    Returns:
        None for other files, and for what is unusual: truncated, more or fewer bits, CMYK, RGB that was not made YCbCr, data behind
        the end, metadata that are damaged.
    """
    if not (data.startswith(_START) and data.endswith(_END)):
        return None
    at, frame, orientation, unknown, colours = 2, None, 0, False, b""
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body, at = data[at + 4 : at + 2 + size], at + 2 + size
        if marker == _SCAN:
            if frame is None or (unknown and not orientation) or (colours == _RGB and frame[2] == "RGB"):
                return None
            return JpegHeader(*frame[:3], orientation or 1, at, frame[3])
        if marker in _BASELINE or marker == _PROGRESSIVE:
            if frame is not None or len(body) < 6:
                return None
            bits, height, width, channels = struct.unpack_from(">BHHB", body)
            if bits != 8 or channels not in _MODES or not (width and height):
                return None
            frame = width, height, _MODES[channels], marker == _PROGRESSIVE
            colours = colours or body[6::3]  # the components' names, where no segment says what they are
        elif marker == 0xE0 and body.startswith(b"JFIF\0"):
            colours = _YCBCR
        elif marker == 0xEE and body.startswith(b"Adobe") and len(body) >= 12:
            colours = colours or (_YCBCR if body[11] else _RGB)
        elif marker == 0xE1 and body.startswith(_EXIF):
            tag_orientation = None if orientation else _orientation(body[len(_EXIF) :])
            if tag_orientation is None:
                return None
            orientation = tag_orientation
        elif marker == 0xE1 and body.startswith(_XMP):
            unknown |= b"Orientation" in body  # which Pillow takes where EXIF says none
        elif marker not in _OTHERS:
            return None
    return None


def decode_jpeg(data: bytes, header: JpegHeader, memory: Memory = empty) -> Bytes | None:
    """Decode a JPEG file to its stored pixels, bit-identical to Pillow.

    Args:
        data: The whole file.
        header: Of `read_header`.
        memory: Gives the memory for the pixels.

    Returns:
        (height, width, 3) uint8, RGB; None where Pillow has to look: the data are damaged, or no decoder is installed.
    """
    decode = _decoder()
    return None if decode is None else decode(data, header, memory)


@functools.cache
def _decoder() -> Callable[[bytes, JpegHeader, Memory], Bytes | None] | None:
    """Return the decode function of simplejpeg, which writes into given memory, or else OpenCV; None without either."""
    for module, package, decode in (
        ("simplejpeg", "simplejpeg", _decode_by_simplejpeg),
        ("cv2", "opencv-python-headless", _decode_by_opencv),
    ):
        try:
            return functools.partial(decode, require(module, extra="vision", package=package))
        except MissingExtraError:
            pass
    return None


def _decode_by_simplejpeg(simplejpeg: Any, data: bytes, header: JpegHeader, memory: Memory) -> Bytes | None:
    try:  # strict: it refuses what libjpeg warns of, too
        image: Bytes = simplejpeg.decode_jpeg(data, "RGB", buffer=memory(header.width * header.height * 3), strict=True)
    except ValueError:
        return None
    return image if image.shape == (header.height, header.width, 3) else None


def _decode_by_opencv(cv2: Any, data: bytes, header: JpegHeader, memory: Memory) -> Bytes | None:
    stored = np.frombuffer(data, np.uint8)
    if not _is_undamaged(stored[header.scan : -len(_END)], header.progressive):
        return None
    try:
        image: Bytes | None = cv2.imdecode(stored, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    if image is None or image.shape != (header.height, header.width, 3):
        return None
    if memory is empty:
        return image
    copy = memory(image.size).reshape(image.shape)
    np.copyto(copy, image)
    return copy


def _is_undamaged(data: Bytes, progressive: bool) -> bool:
    """Return whether the data have no unexpected marker, after which OpenCV would fill in grey, and Pillow raise an error."""
    allowed = _IN_SCANS | _BETWEEN_SCANS if progressive else _IN_SCANS
    for begin in range(0, len(data), _PART):
        part = data[begin : begin + _PART + 1]
        marker_mask = (part[:-1] == 0xFF) & (part[1:] != 0)  # a byte of 255 is followed by 0
        if marker_mask.any() and not set(part[1:][marker_mask].tolist()) <= allowed:
            return False
    return True


def _orientation(tiff: bytes) -> int | None:
    """Return EXIF's orientation, 1 to 8; 0 if there is none, None if it is invalid or ambiguous."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        return None
    try:
        (begin,) = struct.unpack_from(f"{order}I", tiff, 4)
        (count,) = struct.unpack_from(f"{order}H", tiff, begin)
        orientation = 0
        for entry in range(begin + 2, begin + 2 + 12 * count, 12):
            tag, kind, number, value = struct.unpack_from(f"{order}HHIH", tiff, entry)
            if tag == _ORIENTATION:
                if orientation or (kind, number) != (_SHORT, 1) or not 1 <= value <= 8:
                    return None
                orientation = value
    except struct.error:
        return None
    return orientation
