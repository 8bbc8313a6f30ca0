"""Complete detectors and face recognition, their evaluation, and downloads of weights."""

from __future__ import annotations

from ..engines.base.detection import Timings
from ..utils.fetch import DownloadError
from ..utils.terminal import exit_on_error
from ..vision import Head
from .curves import draw_curves
from .dataset import YoloData
from .description import Description, describe, read_description
from .download import download
from .evaluate import ClassResult, Evaluation, evaluate
from .heads import read_heads
from .options import Options, parse_options
from .published import Published, PublishedFile, fetch_model, find_model, published_models
from .summary import Summary
from .yolov2 import Yolov2, read_names

__all__ = [
    "ClassResult",
    "Description",
    "DownloadError",
    "Evaluation",
    "Head",
    "Options",
    "Published",
    "PublishedFile",
    "Summary",
    "Timings",
    "YoloData",
    "Yolov2",
    "describe",
    "download",
    "draw_curves",
    "evaluate",
    "exit_on_error",
    "fetch_model",
    "find_model",
    "parse_options",
    "published_models",
    "read_description",
    "read_heads",
    "read_names",
]

for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
