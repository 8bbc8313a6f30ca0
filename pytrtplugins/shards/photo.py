"""Photos on their way into a shard: looked at, and made smaller where that is asked for."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass

from ..errors import ImageError
from ..utils.optional import require
from ..vision.image import decode_image
from ..vision.jpeg import SIDEWAYS

__all__ = ["SUFFIXES", "Photo", "read_header", "shrunk"]

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""What shards hold, by Pillow's names, and how the files are called there."""
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
        turned: Whether EXIF says that the photo has to be turned, which decoders for training seldom do.
    """

    format: str
    width: int
    height: int
    turned: bool


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
    except Exception as error:  # decoders raise many types for damaged files: OSError, SyntaxError, struct.error, ...
        raise ImageError(f"photo {name}: not an image that can be read ({str(error)[:200]}).", path=name) from error
    turned = type(orientation) is int and 2 <= orientation <= 8
    width, height = size[::-1] if turned and orientation in SIDEWAYS else size
    return Photo(kind, width, height, turned)


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
