"""Photos that EXIF turns, and where their rectangle is, by Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
STORED = (40, 24)  # width and height of the pixels in the file
BOX = (4, 5, 14, 18)  # of a white rectangle on them


def turned(orientation: int, stored=STORED, box=BOX, kind: str = "PNG", exif: bytes | None = None) -> bytes:
    """A photo with a white rectangle on black, which EXIF turns."""
    pixels = np.zeros((*stored[::-1], 3), np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    metadata = Image.Exif()
    metadata[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format=kind, exif=metadata if exif is None else exif)
    return file.getvalue()


def form(image: bytes, exif: str):
    """The photo as it is shown, or as it is stored, by Pillow."""
    with Image.open(io.BytesIO(image)) as opened:
        return ImageOps.exif_transpose(opened) if exif == "shown" else opened.copy()


def corners(image: bytes, exif: str) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the rectangle, in pixels of that form."""
    return form(image, exif).convert("L").point(lambda value: 255 * (value > 127)).getbbox()


def white(image: bytes, exif: str):
    """Where the rectangle is: class 0, centre and size in shares."""
    (left, top, right, bottom), (width, height) = corners(image, exif), form(image, exif).size
    return [0, (left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height]
