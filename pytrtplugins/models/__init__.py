"""Complete detectors, what they are measured with, and where their weights come from."""

from __future__ import annotations

from ..engines.base.detection import Timings
from ..utils.terminal import exit_on_error
from ..vision import Head
from .curves import check_curves_path, draw_curves
from .dataset import YoloData
from .download import DownloadError, download
from .evaluate import ClassResult, Evaluation, evaluate
from .heads import read_heads
from .options import Options, parse_options
from .pictures import Picture, PictureWriter, find_pictures, read_pictures
from .yolov2 import Yolov2, read_names

__all__ = [
    "ClassResult",
    "DownloadError",
    "Evaluation",
    "Head",
    "Options",
    "Picture",
    "PictureWriter",
    "Timings",
    "YoloData",
    "Yolov2",
    "check_curves_path",
    "download",
    "draw_curves",
    "evaluate",
    "exit_on_error",
    "find_pictures",
    "parse_options",
    "read_heads",
    "read_names",
    "read_pictures",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
