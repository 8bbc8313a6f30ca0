"""ONNX → TensorRT's serialized engine."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...cuda.cache import user_cache
from ...errors import BuildError, FormatError, UsageError
from ...utils.atomic import write_atomic
from ...utils.files import read_regular
from ...utils.optional import onnx
from ..base.failures import shorten_message
from ..base.types import BuildOptions
from ._api import Api
from .collected import ErrorLog, collecting
from .device import Device
from .logger import Messages, make
from .settings import Range, Settings

__all__ = ["build_plan"]

_LARGEST_CACHE = 1 << 30  # bytes
_log = logging.getLogger(__name__)


def build_plan(
    api: Api,
    model: onnx.ModelProto,
    options: BuildOptions,
    settings: Settings,
    ranges: dict[str, Range],
    device: Device | None,
    calibrator: Callable[[], Any] | None = None,
) -> bytes:
    """Build a model that is in the parser's form and in the types to compute in, and whose plugins are registered.

    ``ranges`` are those of inputs with free dims; ``calibrator`` makes TensorRT's own, for implicit quantization. TensorRT for RTX
    needs no ``device``.

    Raises:
        BuildError: TensorRT cannot parse or build the model; the message holds what it logged.
    """
    with contextlib.ExitStack() as stack:
        if device is not None:
            stack.enter_context(device.cupy.cuda.Device(device.index))
        errors = stack.enter_context(collecting(ErrorLog()))
        messages = Messages(api)
        builder = make(api, "Builder")
        network = builder.create_network(api.network_flags(typed=calibrator is None))
        _parse(api, model, network, messages, errors)
        config = builder.create_builder_config()
        _configure(api, config, options, settings)
        profile = _add_profile(api, builder, config, ranges)
        bridge = None if calibrator is None else _calibrate(api, config, profile, calibrator)
        cache = None if device is None else _load_timing_cache(api, config, settings, device)
        plan = builder.build_serialized_network(network, config)
        errors.check()
        if bridge is not None:
            bridge.check()
        if plan is None:
            raise BuildError(f"{api.title} cannot build the model:\n{messages.text()}", engine=api.name)
        _keep_timing_cache(config, cache)
        return bytes(plan)


def _parse(api: Api, model: onnx.ModelProto, network: Any, messages: Messages, errors: ErrorLog) -> None:
    """Fill the network, which keeps the parser alive: that owns the weights."""
    parser = make(api, "OnnxParser", network)
    api.allow_plugins_with_standard_names(parser)
    if not parser.parse(model.SerializeToString()):
        errors.check()
        found = [parser.get_error(index) for index in range(parser.num_errors)]
        text = "\n".join(map(_said, found)) or messages.text()
        raise BuildError(
            f"TensorRT's parser cannot read the model:\n{shorten_message(text)}", engine=api.name, text=text
        )


def _said(error: Any) -> str:
    """What the parser says of a node; of ONNX's operators that it lacks it gives the condition ``false`` alone."""
    said = "the operator is not supported" if error.desc() == "false" else error.desc()
    return f"node {error.node()} {error.node_name()!r} ({error.node_operator()}): {said}"


def _configure(api: Api, config: Any, options: BuildOptions, settings: Settings) -> None:
    trt = api.trt
    if settings.workspace_bytes is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    if settings.level is not None:
        config.builder_optimization_level = settings.level
    if options.precision == "fp32":
        config.clear_flag(trt.BuilderFlag.TF32)  # it is on by default, and rounds to 10 bits
    if settings.version_compatible:
        config.set_flag(trt.BuilderFlag.VERSION_COMPATIBLE)
    if settings.target:
        config.num_compute_capabilities = len(settings.target)
        for index, name in enumerate(settings.target):
            config.set_compute_capability(getattr(trt.ComputeCapability, name.upper()), index)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED  # layers keep their names


def _add_profile(api: Api, builder: Any, config: Any, ranges: dict[str, Range]) -> Any:
    if not ranges:
        return None
    profile = builder.create_optimization_profile()
    for name, shapes in ranges.items():
        profile.set_shape(name, *(api.trt.Dims(list(dims)) for dims in shapes))
    if config.add_optimization_profile(profile) < 0:
        raise BuildError(f"TensorRT refuses the ranges of dims {ranges}", engine="tensorrt")
    return profile


def _calibrate(api: Api, config: Any, profile: Any, calibrator: Callable[[], Any]) -> Any:
    """Implicit quantization: TensorRT 10 chooses int8 or float16 for each layer."""
    bridge = calibrator()
    for flag in ("INT8", "FP16"):
        config.set_flag(getattr(api.trt.BuilderFlag, flag))
    config.int8_calibrator = bridge
    if profile is not None and not config.set_calibration_profile(profile):
        raise BuildError("TensorRT refuses the ranges of dims for calibration", engine="tensorrt")
    return bridge


def _load_timing_cache(api: Api, config: Any, settings: Settings, device: Device) -> Path | None:
    """Begin with the times that the last build measured; the file that keeps them, or None."""
    if settings.timing_cache == "":
        return None
    usual = user_cache() / f"tensorrt-{api.version}-{device.name.replace(' ', '-')}.timing"
    path = usual if settings.timing_cache is None else Path(settings.timing_cache)
    data = b""
    try:
        data = read_regular(path, _LARGEST_CACHE, within=path.parent)
    except (FileNotFoundError, NotADirectoryError):  # it is written after the build
        pass
    except (OSError, FormatError) as error:  # the engine is built all the same
        _log.warning("the timing cache is not used: %s", error)
        return None
    known = config.create_timing_cache(data)  # None: it is damaged
    if known is None or not config.set_timing_cache(known, ignore_mismatch=False):
        _log.warning("%s: TensorRT does not accept this timing cache; a new one is written", path)
        config.set_timing_cache(config.create_timing_cache(b""), ignore_mismatch=False)
    return path


def _keep_timing_cache(config: Any, path: Path | None) -> None:
    cache = None if path is None else config.get_timing_cache()
    if path is None or cache is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, bytes(cache.serialize()), within=path.parent)
    except (OSError, UsageError) as error:  # the engine is built all the same
        _log.warning("%s: the timing cache cannot be written: %s", path, error)
