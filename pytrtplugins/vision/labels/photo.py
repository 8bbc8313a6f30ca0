"""Read the headers of photos, turn them upright, and make them smaller."""

from __future__ import annotations

import contextlib
import io
import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import FormatError, ImageError, UsageError
from ...utils.file_set import FileSet
from ...utils.optional import require
from ...utils.text_formats import shorten
from ..image import MAX_FILE_BYTES, Number, decode_image, turn_boxes
from ..jpeg import SIDEWAYS

__all__ = [
    "EXIF",
    "SUFFIXES",
    "Photo",
    "check_exif",
    "label_orientation",
    "read_file_header",
    "read_header",
    "shrunk",
    "unknown_form",
]

SUFFIXES = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}
"""What shards hold, by Pillow's names, and how the files are called there."""
EXIF = ("shown", "stored")
"""What labels are drawn on: the photo as EXIF has it turned, or the pixels as they are in the file."""
_ASPECT = 0.02
"""By which a photo's height may differ from that of its labels' proportions; or by a pixel: sizes are rounded."""
_OTHERS = ("BMP", "TIFF", "GIF", "PPM")
_ORIENTATION = 0x0112  # of EXIF
_WIDTH, _HEIGHT = 256, 257  # tags of TIFF
_PNG_METADATA = (b"eXIf", b"Raw profile type", b"XML:com.adobe.xmp")  # in which PNG files may state an orientation
_HEAD_BYTES = 1 << 17  # in which a JPEG file usually has all before its pixels
_QUALITY = 90  # of JPEG, where a photo is made smaller


@dataclass(frozen=True)
class Photo:
    """The header of a photo's file.

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
        """Whether EXIF says that the stored pixels are not upright; many decoders ignore this."""
        return self.orientation != 1

    def size(self, exif: str) -> tuple[int, int]:
        """Return (width, height) of the upright photo for ``shown``, of the stored pixels for ``stored``."""
        size = self.width, self.height
        return size[::-1] if exif == "stored" and self.orientation in SIDEWAYS else size


def read_header(data: bytes, name: str) -> Photo:
    """Read the header of a photo's file; the pixels are not decoded.

    Raises:
        ImageError: it is no image that can be read.
    """
    pil = require("PIL.Image", extra="vision", package="pillow", feature="reading images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: odd metadata, large sizes
            with pil.open(io.BytesIO(data), formats=(*SUFFIXES, *_OTHERS)) as image:
                size, kind, orientation = image.size, image.format, 1
                if kind != "PNG" or any(tag in data for tag in _PNG_METADATA):  # of PNG, Pillow decodes all for it
                    orientation = image.getexif().get(_ORIENTATION, 1)
                if kind == "TIFF":  # whose size Pillow gives as it is upright, since 11
                    size = image.tag_v2[_WIDTH], image.tag_v2[_HEIGHT]
    except pil.UnidentifiedImageError as error:  # whose text names the object that held the bytes
        content_text = f"{len(data):,} bytes beginning with {data[:8]!r}" if data else "an empty file"
        raise ImageError(f"photo {name}: not an image that can be read ({content_text}).", path=name) from error
    except Exception as error:  # decoders raise many types for damaged files: OSError, SyntaxError, struct.error, ...
        raise ImageError(f"photo {name}: not an image that can be read ({str(error)[:200]}).", path=name) from error
    if type(orientation) is not int or not 1 <= orientation <= 8:
        orientation = 1
    width, height = size[::-1] if orientation in SIDEWAYS else size
    return Photo(kind, width, height, orientation)


def read_file_header(files: FileSet, name: str) -> Photo:
    """Read the header of a photo in a data set, as `read_header`; of JPEG files only the beginning is read.

    Raises:
        ImageError: it is no image that can be read.
        FormatError: it is too large, or its tar ends within it.
    """
    if (head := files.read_head(name, _HEAD_BYTES)).startswith(b"\xff\xd8"):
        with contextlib.suppress(ImageError):
            return read_header(head, name)
    return read_header(files.read(name, MAX_FILE_BYTES), name)


def check_exif(exif: str | None) -> str | None:
    """Check that a setting is a word of `EXIF` or None, and return it."""
    if exif is not None and exif not in EXIF:
        raise UsageError(f"exif {shorten(exif)}: expected one of {', '.join(EXIF)}.", exif=exif)
    return exif


def label_orientation(
    photo: Photo, stated: tuple[int, int] | None, exif: str | None, boxes: npt.NDArray[Number]
) -> int:
    """Return the EXIF orientation to turn a photo's boxes by for the upright photo; 1 if they are for it already.

    Args:
        photo: The head of its file.
        stated: Width and height that the labels state, which say what they are drawn on where only one form of the photo has that
            size, or else those proportions. None: they state none.
        exif: A word of `EXIF` for labels whose size does not say it; None: such labels are refused.
        boxes: Of the photo, as the labels have them. Where turning does not change them, as there are none or each is around the whole
            photo, nothing has to be known.

    Raises:
        FormatError: the labels are for another size, or do not say what they are drawn on.
    """
    exact_forms = [word for word in EXIF if stated == photo.size(word)]
    matching_forms: list[str] = exact_forms or [
        word for word in EXIF if stated is None or _is_alike(photo.size(word), stated)
    ]
    if stated is not None and (not matching_forms or exif not in (None, *matching_forms)):
        raise FormatError(_size_error_text(photo, stated, exif or "shown", matching_forms))
    boxes_change = not np.array_equal(turn_boxes(boxes, photo.orientation), boxes)
    if boxes_change and exif is None and len(matching_forms) > 1:
        raise FormatError(unknown_form(photo))
    return photo.orientation if (exif or matching_forms[0]) == "stored" else 1


def _size_error_text(photo: Photo, stated: tuple[int, int], exif: str, matching_forms: list[str]) -> str:
    width, height = photo.size(exif)
    reason = ""
    if photo.orientation in SIDEWAYS:
        other = EXIF[1 - EXIF.index(exif)]
        wide, high = photo.size(other)
        reason = f" as it is {exif}; EXIF (orientation {photo.orientation}) turns it: as it is {other}, it has {wide} x {high}"
        if matching_forms:
            reason += f": --exif {other}"
    return f"{width} x {height} pixels{reason}; its labels are for {stated[0]} x {stated[1]}"


def unknown_form(photo: Photo) -> str:
    """Return the error text for labels that may be for the shown or the stored form of a photo."""
    return (
        f"EXIF (orientation {photo.orientation}) turns it, and its labels do not say whether they are drawn on the photo as it is shown "
        "or on its pixels as they are stored: give --exif shown or --exif stored"
    )


def _is_alike(size: tuple[int, int], stated: tuple[int, int]) -> bool:
    (width, height), (stated_width, stated_height) = size, stated
    return abs(height - width * stated_height / stated_width) <= max(1, _ASPECT * height)


def shrunk(data: bytes, name: str, longest_side: int) -> bytes:
    """Return the photo upright and with a limited longest side, as JPEG; the same bytes if nothing has to change."""
    photo = read_header(data, name)
    if photo.format in SUFFIXES and not photo.turned and max(photo.width, photo.height) <= longest_side:
        return data
    pil = require("PIL.Image", extra="vision", package="pillow", feature="writing images")
    image = pil.fromarray(decode_image(data, name))
    image.thumbnail((longest_side, longest_side), pil.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, format="JPEG", quality=_QUALITY)
    return file.getvalue()
