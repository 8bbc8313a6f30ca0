"""Object detection around the network: read and letterbox images, decode outputs, suppress boxes, draw them."""

from __future__ import annotations

from .decode import Head, decode_region, decode_yolo
from .detection import Detection
from .detections import Detections
from .draw import class_color, draw
from .finding import Source
from .image import check_image, check_image_path, decode_image, load_image, save_image
from .letterbox import MODES, Letterboxed, Placement, letterbox, place_image, resize_darknet
from .nms import nms
from .outputs import Outputs
from .pixels import PIXELS, Pixels
from .sources import Frame, Sources
from .tracking import Tracker

__all__ = [
    "MODES",
    "PIXELS",
    "Detection",
    "Detections",
    "Frame",
    "Head",
    "Letterboxed",
    "Outputs",
    "Pixels",
    "Placement",
    "Source",
    "Sources",
    "Tracker",
    "check_image",
    "check_image_path",
    "class_color",
    "decode_image",
    "decode_region",
    "decode_yolo",
    "draw",
    "letterbox",
    "load_image",
    "nms",
    "place_image",
    "resize_darknet",
    "save_image",
]

for _name in __all__:
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
del _name
