"""ONNX file as it is → TensorRT for RTX's parser and builder, without the passes of engine `tensorrt`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from ...model.proto import info_dims, info_dtype
from ...tensor import TensorDesc
from ...utils.optional import onnx
from ...validation.dataflow import given_inputs
from ..base.types import BuildOptions
from . import _api, logger
from .builder import build_plan
from .creators import register_key
from .graph import plugin_keys
from .settings import Settings

__all__ = ["rtx_plan", "rtx_title"]


def rtx_title() -> str:
    """Name and version of TensorRT for RTX.

    Raises:
        MissingExtraError, UnavailableError: it is not installed.
    """
    return _api.load(_api.RTX).title


def rtx_plan(model: onnx.ModelProto) -> bytes:
    """Build a serialized engine of a model as another program would: the model reaches the parser unchanged.

    Warnings of the library are not shown, but for programs that log everything.

    Raises:
        MissingExtraError, UnavailableError: TensorRT for RTX is not installed.
        UsageError: free axes other than the first one have no range.
        BuildError: the parser or the builder refuses the model; the message holds what it logged.
    """
    api = _api.load(_api.RTX)
    for key in plugin_keys(model):
        register_key(key, _api.RTX)
    settings = Settings.read({})
    ranges = settings.ranges(
        [TensorDesc(info.name, info_dims(info), info_dtype(info)) for info in given_inputs(model.graph)]
    )
    with _without_warnings():
        return build_plan(api, model, BuildOptions(), settings, ranges, None)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    log = logging.getLogger(logger.__name__)
    level = log.level
    if log.getEffectiveLevel() > logging.DEBUG:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
