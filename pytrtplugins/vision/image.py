"""Read and write images as arrays; damaged and too large files raise an `ImageError`."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import ImageError
from ..utils.atomic import check_target, write_atomic
from ..utils.files import read_regular, read_stdin
from ..utils.optional import require
from .jpeg import SIDEWAYS, JpegHeader, Memory, decode_jpeg, empty, read_header

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

__all__ = [
    "Image",
    "check_image",
    "check_image_path",
    "decode_image",
    "load_image",
    "read_image_file",
    "read_usual_header",
    "save_image",
    "turn_boxes",
]

Number = TypeVar("Number", np.float32, np.float64)

Image = npt.NDArray[np.uint8]
"""An image: (height, width, 3), uint8, RGB."""

MAX_FILE_BYTES = 512 << 20
"""Size of the largest image file that is read."""

MAX_BYTES = 1 << 30
"""Memory that an image may take while it is read: 153 million pixels of RGB. Beyond 178,956,970 pixels Pillow refuses, too."""

_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # of a pixel in Pillow; else 4
_STRIPE_PIXELS = 1 << 22  # are converted at a time
_ORIENTATION = 0x0112  # of EXIF
_OPPOSITES = {6: 8, 8: 6}  # orientations that undo another one; each of the others undoes itself
SUFFIXES = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}
"""Suffixes of images that can be written, with Pillow's name of the format."""


def load_image(path: str | Path, *, exif: bool = True, max_bytes: int = MAX_BYTES, memory: Memory = empty) -> Image:
    """Read an image as (height, width, 3) uint8, RGB.

    Pillow decodes; JPEG files in which nothing is damaged or unusual simplejpeg, where it is installed, else OpenCV, with the same
    bits: they let other threads run meanwhile. Grayscale, palette, CMYK and 16-bit images become 8-bit RGB;
    transparency is dropped, as darknet drops it. Of several frames or pages the first is taken.

    Args:
        path: A jpg, png, bmp, webp, tiff, gif or ppm file of at most `MAX_FILE_BYTES`; ``-`` is standard input.
        exif: Turn the image upright as its EXIF orientation says, as viewers do. darknet ignores the orientation: give
            False where its numbers are wanted for a phone's image.
        max_bytes: An image that would take more memory, by the size that it claims, is refused before it is decoded:
            3 bytes a pixel for the result, and 1 to 4 for what Pillow decodes into. A decoder's own buffers come on top.
        memory: Gives the memory that upright JPEG files are decoded into, such as page-locked memory for a GPU.

    Raises:
        ImageError: the file is missing, a folder, a FIFO or device, not an image, truncated or too large; ``.path`` says
            which.
    """
    return decode_image(read_image_file(path), Path(path), exif=exif, max_bytes=max_bytes, memory=memory)


def read_image_file(path: str | Path) -> bytes:
    """Return the contents of an image file; ``-`` is standard input."""
    path, stdin = Path(path), str(path) == "-"
    try:
        if stdin:
            return read_stdin(MAX_FILE_BYTES, error=ImageError)
        return read_regular(path, MAX_FILE_BYTES, error=ImageError)
    except FileNotFoundError:
        raise ImageError(
            f"image {str(path)!r}: no such file. Looked for: {path.absolute()}\nDo: ls {path.absolute().parent}",
            path=path,
        ) from None
    except IsADirectoryError:
        raise ImageError(
            f"image {str(path)!r}: expected a file, found a folder.\nDo: give the files in it, {path / '*.jpg'}",
            path=path,
        ) from None
    except ImageError:
        raise
    except (OSError, ValueError) as error:
        raise ImageError(f"image {str(path)!r}: cannot be read ({error}).", path=path) from error


def decode_image(
    data: bytes,
    name: str | Path = "image",
    *,
    exif: bool = True,
    max_bytes: int = MAX_BYTES,
    memory: Memory = empty,
) -> Image:
    """Decode the contents of an image file; see :func:`load_image`.

    Raises:
        ImageError: the bytes are not one whole image, or one that would take too much memory.
    """
    header = read_usual_header(data, max_bytes)
    if header is not None:
        orientation = header.orientation if exif else 1
        pixels = decode_jpeg(data, header, memory if orientation == 1 else empty)
        if pixels is not None:
            return _upright(pixels, orientation)
    pil = require("PIL.Image", extra="vision", package="pillow", feature="reading images")
    if not data:
        raise ImageError(f"image {str(name)!r}: the file is empty (0 bytes).", path=Path(name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: odd metadata, and sizes of which ours is checked below
            with pil.open(io.BytesIO(data), formats=_FORMATS) as image:
                _check_size(image, name, max_bytes)
                stored = _orientation(image) if image.format == "TIFF" else 0
                image.load()
                orientation = _orientation(image)
                if not exif:  # Pillow itself turns TIFF files when it loads them, since 11
                    orientation = _OPPOSITES.get(stored, stored) if stored > orientation else 1
                return _upright(_to_rgb(image), orientation)
    except ImageError:
        raise
    except pil.DecompressionBombError as error:
        raise ImageError(
            f"image {str(name)!r}: too many pixels: {error}\nDo: PIL.Image.MAX_IMAGE_PIXELS = ..., and max_bytes=..., "
            "if you trust it",
            path=Path(name),
        ) from error
    except pil.UnidentifiedImageError:
        formats_text = ", ".join(_FORMATS).lower()
        raise ImageError(
            f"image {str(name)!r}: not an image ({len(data):,} bytes beginning with {data[:8]!r}). Known formats: {formats_text}.",
            path=Path(name),
        ) from None
    except Exception as error:  # decoders raise many types for damaged files: OSError, SyntaxError, struct.error, ...
        raise ImageError(
            f"image {str(name)!r}: damaged or truncated ({len(data):,} bytes; {str(error)[:200]}).\nDo: fetch the file again",
            path=Path(name),
        ) from error


def read_usual_header(data: bytes, max_bytes: int = MAX_BYTES) -> JpegHeader | None:
    """Return the header of a JPEG file; None if it has unusual features or needs too much memory.

    Nothing is decoded. For other files `decode_image` has the error.
    """
    header = read_header(data)
    if header is None or _needed_bytes((header.width, header.height), header.mode) > min(max_bytes, MAX_BYTES):
        return None
    return header


def save_image(image: Image, path: str | Path) -> None:
    """Write an image; the suffix chooses jpg, png, bmp, webp or tiff.

    Raises:
        UsageError: the suffix is unknown, or the folder does not exist.
    """
    pil = require("PIL.Image", extra="vision", package="pillow", feature="writing images")
    path = check_image_path(path)
    file = io.BytesIO()
    pil.fromarray(check_image(image)).save(file, format=SUFFIXES[path.suffix.lower()], quality=92)
    write_atomic(path, file.getvalue(), durable=False)


def check_image_path(path: str | Path) -> Path:
    """Check that an image can be written to a path, and return the path.

    Raises:
        UsageError: the suffix is unknown, or the folder does not exist.
    """
    return check_target(path, "image", SUFFIXES)


def check_image(image: object) -> Image:
    """Check that an array is an image, and return it as (H, W, 3) RGB.

    Args:
        image: (H, W, 3) RGB, (H, W, 4) whose last channel is dropped, or (H, W) grayscale; uint8; at least one pixel.

    Raises:
        ImageError: another type, dtype or shape.
    """
    if not isinstance(image, np.ndarray):
        raise ImageError(f"image: expected a path or a uint8 array (H, W, 3), found {type(image).__name__}.", path=None)
    if (
        image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or image.shape[2:] not in ((), (3,), (4,))
        or image.size == 0
    ):
        raise ImageError(
            f"image: expected a uint8 array (H, W, 3) in RGB with at least one pixel, found {image.dtype} {image.shape}.\n"
            "Do: (255 * image).round().astype('uint8') for values in 0..1; image.transpose(1, 2, 0) for (3, H, W)",
            path=None,
        )
    if image.ndim == 2:
        return np.repeat(image[:, :, None], 3, axis=2)
    return image[:, :, :3]


def _check_size(image: PillowImage, name: str | Path, max_bytes: int) -> None:
    """Raise an error if an image needs too much memory, by the size in its header; nothing is decoded yet."""
    width, height = image.size
    needed = _needed_bytes(image.size, image.mode)
    if needed > max_bytes:  # sizes below 1 Pillow refuses itself
        raise ImageError(
            f"image {str(name)!r}: {width:,} x {height:,} pixels ({image.mode}) take {needed:,} bytes of memory; "
            f"the limit is {max_bytes:,}.\nDo: load_image(path, max_bytes={needed:_}), if you trust it",
            path=Path(name),
            needed=needed,
        )


def _needed_bytes(size: tuple[int, int], mode: str) -> int:
    """Return the memory in bytes that an image takes while it is read."""
    return size[0] * size[1] * (_MODE_BYTES.get(mode, 4) + 3)


def _orientation(image: PillowImage) -> int:
    """Return EXIF's orientation, 1 to 8; 1, upright, if there is none or it is invalid."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged metadata raise many types; the pixels are whole all the same
        return 1
    return orientation if type(orientation) is int and 1 <= orientation <= 8 else 1


def _upright(image: Image, orientation: int) -> Image:
    """Turn an image upright by its EXIF orientation, 1 to 8."""
    if orientation in SIDEWAYS:
        image = image.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    return np.ascontiguousarray(image)


def turn_boxes(boxes: npt.NDArray[Number], orientation: int) -> npt.NDArray[Number]:
    """Transform boxes on a file's stored pixels to boxes on the upright image.

    Args:
        boxes: (M, 5): class, centre x, centre y, width, height; the last four in shares of the sides.
        orientation: What EXIF says, 1 to 8.
    """
    boxes = boxes.copy()
    if orientation in SIDEWAYS:
        boxes = boxes[:, [0, 2, 1, 4, 3]]
    if orientation in (3, 4, 7, 8):
        boxes[:, 2] = 1 - boxes[:, 2]
    if orientation in (2, 3, 6, 7):
        boxes[:, 1] = 1 - boxes[:, 1]
    return boxes


def _to_rgb(image: PillowImage) -> Image:
    """Convert an image to RGB a few rows at a time, since Pillow's conversions hold three copies of the image."""
    width, height = image.size
    if image.mode.startswith("I") or image.mode == "F":
        convert = _gray_converter(image)
    else:
        modes = ("RGBA", "RGB") if image.mode in ("LA", "PA") else () if image.mode == "RGB" else ("RGB",)

        def convert(part: PillowImage) -> npt.NDArray[np.uint8]:
            for mode in modes:
                part = part.convert(mode)
            return np.asarray(part)

    rows = max(1, _STRIPE_PIXELS // width)
    if rows >= height:
        return np.array(convert(image))
    result = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, rows):
        end = min(top + rows, height)
        result[top:end] = convert(image.crop((0, top, width, end)))
    return result


def _gray_converter(image: PillowImage) -> Callable[[PillowImage], npt.NDArray[np.uint8]]:
    """Return a function that scales 16-bit, 32-bit and float grayscale to 8-bit RGB, by the range of the whole image."""
    high = float(image.getextrema()[1]) if image.mode in ("F", "I") else math.inf  # type: ignore[arg-type]  # one band; of other modes Pillow cannot tell
    white = (high if high > 1 else 1.0) if image.mode == "F" else 65535.0 if high > 255 else 255.0
    factor = 255 / white

    def convert(part: PillowImage) -> npt.NDArray[np.uint8]:
        values: npt.NDArray[Any] = np.asarray(part, np.float64 if image.mode == "I" else np.float32)
        gray = np.clip(np.nan_to_num(np.rint(values * factor)), 0, 255).astype(np.uint8)
        return np.broadcast_to(gray[:, :, None], (*gray.shape, 3))

    return convert
