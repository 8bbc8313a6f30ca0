"""Photos as arrays: reading them whole or saying what is wrong, and writing them."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._files import write_atomic
from .._optional import require
from ..errors import ImageError, UsageError

__all__ = ["Image", "check_image", "check_picture_path", "decode_image", "load_image", "save_image"]

Image = npt.NDArray[np.uint8]
"""A photo: (height, width, 3), uint8, RGB."""

_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF", "PPM")
_MOST_PIXELS = 400_000_000  # 1.2 GB of RGB: a 20,000-pixel square passes, a decompression bomb does not
_SUFFIXES = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}


def load_image(path: str | Path, *, exif: bool = True) -> Image:
    """Read a photo as (height, width, 3) uint8, RGB.

    Pillow decodes: unlike OpenCV it does not fill the missing part of a truncated file with grey. Grayscale, palette,
    CMYK and 16-bit pictures become 8-bit RGB; transparency is dropped, as darknet drops it. Of several frames or pages
    the first is taken.

    Args:
        path: A jpg, png, bmp, webp, tiff, gif or ppm file.
        exif: Turn the photo upright as its EXIF orientation says, as viewers do. darknet ignores the orientation: give
            False where its numbers are wanted for a phone's photo.

    Raises:
        ImageError: the file is missing, a folder, not a picture, truncated or too large; ``.path`` says which.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ImageError(
            f"photo {str(path)!r}: no such file. Looked for: {path.absolute()}\nDo: ls {path.absolute().parent}",
            path=path,
        ) from None
    except IsADirectoryError:
        raise ImageError(
            f"photo {str(path)!r}: expected a file, found a folder.\nDo: give the files in it, {path / '*.jpg'}",
            path=path,
        ) from None
    except (OSError, ValueError) as error:
        raise ImageError(f"photo {str(path)!r}: cannot be read ({error}).", path=path) from error
    return decode_image(data, path, exif=exif)


def decode_image(data: bytes, name: str | Path = "picture", *, exif: bool = True) -> Image:
    """Decode the contents of a picture file; see :func:`load_image`.

    Args:
        data: The file's bytes.
        name: What to call it in errors.
        exif: Turn the photo upright.

    Raises:
        ImageError: the bytes are not one whole picture.
    """
    pil = require("PIL.Image", extra="vision", package="pillow", feature="reading photos")
    if not data:
        raise ImageError(f"photo {str(name)!r}: the file is empty (0 bytes).", path=Path(name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of Pillow: odd metadata, and sizes above its own limit; ours is checked below
            with pil.open(io.BytesIO(data), formats=_FORMATS) as picture:
                _check_size(picture.size, name)
                return _to_rgb(_upright(picture) if exif else picture)
    except ImageError:
        raise
    except pil.DecompressionBombError as error:
        raise ImageError(f"photo {str(name)!r}: {error}", path=Path(name)) from error
    except pil.UnidentifiedImageError:
        known = ", ".join(_FORMATS).lower()
        raise ImageError(
            f"photo {str(name)!r}: not a picture ({len(data):,} bytes beginning with {data[:8]!r}). Known formats: {known}.",
            path=Path(name),
        ) from None
    except Exception as error:  # decoders raise many types for damaged files: OSError, SyntaxError, struct.error, ...
        raise ImageError(
            f"photo {str(name)!r}: damaged or truncated ({len(data):,} bytes; {error}).\nDo: fetch the file again",
            path=Path(name),
        ) from error


def save_image(image: Image, path: str | Path) -> None:
    """Write a picture; the suffix chooses jpg, png, bmp, webp or tiff.

    Raises:
        UsageError: the suffix is unknown, or the folder does not exist.
    """
    pil = require("PIL.Image", extra="vision", package="pillow", feature="writing pictures")
    path = check_picture_path(path)
    file = io.BytesIO()
    pil.fromarray(check_image(image)).save(file, format=_SUFFIXES[path.suffix.lower()], quality=92)
    write_atomic(path, file.getvalue())


def check_picture_path(path: str | Path) -> Path:
    """Give back a path that a picture can be written to.

    Raises:
        UsageError: the suffix is unknown, or the folder does not exist.
    """
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise UsageError(
            f"picture {str(path)!r}: unknown suffix {path.suffix!r}. Known: {' '.join(_SUFFIXES)}.", path=path
        )
    if not path.absolute().parent.is_dir():
        folder = path.absolute().parent
        raise UsageError(
            f"picture {str(path)!r}: the folder {folder} does not exist.\nDo: mkdir -p {folder}", path=path
        )
    return path


def check_image(image: Any) -> Image:
    """Give back an array that is a photo, with grayscale made RGB.

    Args:
        image: (H, W, 3) RGB, (H, W, 4) whose last channel is dropped, or (H, W) grayscale; uint8; at least one pixel.

    Raises:
        ImageError: another type, dtype or shape.
    """
    if not isinstance(image, np.ndarray):
        raise ImageError(f"photo: expected a path or a uint8 array (H, W, 3), found {type(image).__name__}.", path=None)
    if (
        image.dtype != np.uint8
        or image.ndim not in (2, 3)
        or image.shape[2:] not in ((), (3,), (4,))
        or image.size == 0
    ):
        raise ImageError(
            f"photo: expected a uint8 array (H, W, 3) in RGB with at least one pixel, found {image.dtype} {image.shape}.\n"
            "Do: (255 * image).round().astype('uint8') for values in 0..1; image.transpose(1, 2, 0) for (3, H, W)",
            path=None,
        )
    if image.ndim == 2:
        return np.repeat(image[:, :, None], 3, axis=2)
    return image[:, :, :3]


def _check_size(size: tuple[int, int], name: str | Path) -> None:
    width, height = size
    if width < 1 or height < 1 or width * height > _MOST_PIXELS:
        raise ImageError(
            f"photo {str(name)!r}: {width:,} x {height:,} pixels; from 1 to {_MOST_PIXELS:,} pixels can be read.",
            path=Path(name),
        )


def _upright(picture: Any) -> Any:
    return require("PIL.ImageOps", extra="vision", package="pillow").exif_transpose(picture)


def _to_rgb(picture: Any) -> Image:
    if (
        picture.mode.startswith("I") or picture.mode == "F"
    ):  # 16 bits and more, which Pillow would clip instead of scale
        values = np.asarray(picture)
        if picture.mode == "F":
            high = float(values.max(initial=0))
            gray = values * (255 / high if high > 1 else 255)
        else:
            gray = values / 257 if values.max(initial=0) > 255 or picture.mode != "I" else values
        return check_image(np.clip(np.nan_to_num(np.rint(gray)), 0, 255).astype(np.uint8))
    if picture.mode in ("RGBA", "LA", "PA"):
        picture = picture.convert("RGBA")
    return np.array(picture.convert("RGB"))
