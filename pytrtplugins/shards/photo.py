"""Photos on their way into a shard: looked at, and made smaller where that is asked for."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from ..errors import FormatError, ImageError, UsageError
from ..utils.optional import require
from ..utils.text_formats import shorten
from ..vision.image import decode_image
from ..vision.jpeg import SIDEWAYS

__all__ = ["EXIF", "SUFFIXES", "Photo", "check_exif", "check_labelled_size", "read_header", "shrunk"]

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""What shards hold, by Pillow's names, and how the files are called there."""
EXIF = ("shown", "stored")
"""What labels are drawn on: the photo as EXIF has it turned, or the pixels as they are in the file."""
_ASPECT = 0.02
"""By which a photo's height may differ from that of its labels' proportions; or by a pixel: sizes are rounded."""
_OTHERS = ("BMP", "TIFF", "GIF", "PPM")
_ORIENTATION = 0x0112  # of EXIF
_QUALITY = 90  # of JPEG, where a photo is made smaller


@dataclass(frozen=True)
class Photo:
    """What the head of a photo's file says.

    Attributes:
        format: Pillow's name.
        width: In pixels, once the photo is upright.
        height: The same.
        orientation: What EXIF says, 1 to 8; 1: the photo is stored upright.
    """

    format: str
    width: int
    height: int
    orientation: int

    @property
    def turned(self) -> bool:
        """Whether the photo has to be turned to be upright, which decoders for training seldom do."""
        return self.orientation != 1

    def size(self, exif: str) -> tuple[int, int]:
        """Width and height of what labels are drawn on: the photo as it is ``shown``, or its pixels as they are ``stored``."""
        size = self.width, self.height
        return size[::-1] if exif == "stored" and self.orientation in SIDEWAYS else size


def read_header(data: bytes, name: str) -> Photo:
    """What the head of a file says; the pixels are not decoded.

    Raises:
        ImageError: it is no image that can be read.
    """
    pil = require("PIL.Image", extra="vision", package="pillow", feature="reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: odd metadata, large sizes
            with pil.open(io.BytesIO(data), formats=(*SUFFIXES, *_OTHERS)) as image:
                orientation = image.getexif().get(_ORIENTATION, 1)
                size, kind = image.size, image.format
    except pil.UnidentifiedImageError as error:  # whose text names the object that held the bytes
        start = f"{len(data):,} bytes beginning with {data[:8]!r}" if data else "an empty file"
        raise ImageError(f"photo {name}: not an image that can be read ({start}).", path=name) from error
    except Exception as error:  # decoders raise many types for damaged files: OSError, SyntaxError, struct.error, ...
        raise ImageError(f"photo {name}: not an image that can be read ({str(error)[:200]}).", path=name) from error
    if type(orientation) is not int or not 1 <= orientation <= 8:
        orientation = 1
    width, height = size[::-1] if orientation in SIDEWAYS else size
    return Photo(kind, width, height, orientation)


def check_exif(exif: str) -> str:
    """Give back a word of `EXIF`.

    Raises:
        UsageError: it is another.
    """
    if exif not in EXIF:
        raise UsageError(f"exif {shorten(exif)}: expected one of {', '.join(EXIF)}.", exif=exif)
    return exif


def check_labelled_size(photo: Photo, stated: tuple[int, int] | None, exif: str) -> None:
    """Compare a photo's proportions with those that its labels state.

    Raises:
        FormatError: they differ by more than rounding.
    """
    if stated is None or _is_alike(photo.size(exif), stated):
        return
    (width, height), other = photo.size(exif), EXIF[1 - EXIF.index(exif)]
    reason = ""
    if photo.orientation in SIDEWAYS:
        wide, high = photo.size(other)
        reason = f" as it is {exif}; EXIF (orientation {photo.orientation}) turns it: as it is {other}, it has {wide} x {high}"
        if _is_alike(photo.size(other), stated):
            reason += f": --exif {other}"
    raise FormatError(f"{width} x {height} pixels{reason}; its labels are for {stated[0]} x {stated[1]}")


def _is_alike(size: tuple[int, int], stated: tuple[int, int]) -> bool:
    (width, height), (stated_width, stated_height) = size, stated
    return abs(height - width * stated_height / stated_width) <= max(1, _ASPECT * height)


def shrunk(data: bytes, name: str, longest_side: int) -> bytes:
    """The photo upright, and with sides of at most so many pixels, as JPEG; the bytes themselves where nothing has to change.

    Raises:
        ImageError: it cannot be decoded.
    """
    photo = read_header(data, name)
    if photo.format in SUFFIXES and not photo.turned and max(photo.width, photo.height) <= longest_side:
        return data
    pil = require("PIL.Image", extra="vision", package="pillow", feature="writing images")
    image = pil.fromarray(decode_image(data, name))
    image.thumbnail((longest_side, longest_side), pil.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=_QUALITY)
    return file.getvalue()
