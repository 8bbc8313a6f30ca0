"""darknet's image and box functions, called with structs by value as its header declares them."""

import contextlib
import ctypes as c

import numpy as np
import pytest

from tests.oracles.libdarknet import DarknetUnavailableError, LibDarknet

Floats = c.POINTER(c.c_float)


class Image(c.Structure):
    _fields_ = (("w", c.c_int), ("h", c.c_int), ("c", c.c_int), ("data", Floats))


class Box(c.Structure):
    _fields_ = (("x", c.c_float), ("y", c.c_float), ("w", c.c_float), ("h", c.c_float))


class Found(c.Structure):
    """struct detection"""

    _fields_ = (
        ("bbox", Box),
        ("classes", c.c_int),
        ("prob", Floats),
        ("mask", Floats),
        ("objectness", c.c_float),
        ("kind", c.c_int),
    )


def library():
    try:
        found = c.CDLL(str(LibDarknet().path))
    except DarknetUnavailableError as error:
        pytest.skip(f"libdarknet: {error}")
    for name in ("letterbox_image", "resize_image"):
        getattr(found, name).restype, getattr(found, name).argtypes = Image, [Image, c.c_int, c.c_int]
    found.free_image.argtypes, found.free_image.restype = [Image], None
    found.do_nms_sort.argtypes, found.do_nms_sort.restype = [c.POINTER(Found), c.c_int, c.c_int, c.c_float], None
    return found


def fitted(function, image, width, height):
    """A (H, W, 3) image through resize_image or letterbox_image, as (3, height, width)."""
    data = np.ascontiguousarray((image / 255.0).astype(np.float32).transpose(2, 0, 1))
    given = Image(image.shape[1], image.shape[0], 3, data.ctypes.data_as(Floats))
    with contextlib.closing(_Owned(function(given, width, height))) as result:
        return np.ctypeslib.as_array(result.image.data, (3, height, width)).copy()


def suppressed(boxes, scores, threshold):
    """Scores after do_nms_sort, in the order of the input."""
    rows = [np.ascontiguousarray(row, np.float32) for row in scores]
    array = (Found * len(rows))()
    for place, box, row in zip(array, boxes, rows, strict=True):
        place.bbox, place.classes, place.prob, place.objectness = (
            Box(*map(float, box)),
            len(row),
            row.ctypes.data_as(Floats),
            1.0,
        )
    library().do_nms_sort(array, len(rows), scores.shape[1], threshold)
    return np.stack(rows)


class _Owned:
    def __init__(self, image):
        self.image = image

    def close(self):
        library().free_image(self.image)
