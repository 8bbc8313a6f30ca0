"""A model → an engine; an engine file → an engine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..calibration import CalibrationTable, Calibrator
from ..errors import (
    EngineFileError,
    MissingExtraError,
    PrecisionError,
    RegistryError,
    UnavailableError,
)
from ..model import Graph
from ..model.decompose import known_to_be_sound
from ..passes import CODES, Precisions, load_model
from ..passes.prepare import prepare_loaded
from ..plugin.policy import check_forms
from ..utils.heap import no_collection
from ..utils.optional import onnx
from .base.blocked import check_layouts
from .base.engine import Engine
from .base.engine_file import read_engine_file
from .base.failures import as_error, shorten_message
from .base.operator_support import explain_unsupported_operators
from .base.plugins import check_operators
from .base.types import BuildOptions
from .quantized import has_qdq, quantize_for, read_precisions, with_precisions
from .registry import available_class, engine_class

__all__ = ["build", "load_engine"]

_log = logging.getLogger(__name__)


def build(
    model: str | Path | onnx.ModelProto | Graph,
    *,
    engine: str | type[Engine] = "auto",
    precision: str | Path | Precisions = "fp32",
    calibration: Calibrator | CalibrationTable | str | Path | None = None,
    threads: int | None = None,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
    plugins: Mapping[str, str] | None = None,
    progress: bool = True,
) -> Engine:
    """Make a network ready to run.

    Args:
        model: An ONNX file, a model, or a graph. With Q/DQ nodes inside, it is taken as it is.
        engine: Name of an engine, or ``"auto"``: the first that this machine has and that has the precision. Or the class of an engine
            that is not of this package; docs/explanation/engines.md says how one is registered, so that its name and
            `load_engine` work too.
        precision: ``"fp32"``, ``"int8"``, or what else the engine has; or the path of a precision file (``.yaml``) that says it
            layer by layer, or what such a file holds. For INT8 and FP8 it brings its scales with it. With ``"int8"`` the engines for
            CPUs time both forms, and keep float32 where INT8 is slower: ``engine.choices["int8"]`` says so. ``"fp8"`` is E4M3,
            for GPUs of compute capability 8.9 and newer.
        calibration: For INT8 and FP8, which share tables: a calibrator (its cache is used if it fits, else it calibrates and
            writes it), a table, or the path of a calibration cache.
        threads: Threads of one run; by default all cores that the process may use.
        device: The engine's own name for a device.
        settings: The engine's own settings, such as ``{"batch": (1, 8, 16)}`` for TensorRT, or ``{"int8": "always"}`` for a
            CPU, which keeps INT8 without timing it.
        plugins: The form in which a plugin runs, ``"enqueue"``, ``"decomposition"`` or ``"compute"``, by its name:
            ``{"acme::Scale": "compute"}``. By default the engine chooses (docs/explanation/lifecycle.md).
        progress: Show a progress bar while calibrating, and while kernels are chosen, if the output is a terminal.

    Returns:
        The engine; ``engine.create_context()`` makes what runs it.

    Raises:
        UnavailableError: the engine cannot be used here.
        PrecisionError: it does not have the precision.
        UsageError: a plugin of ``plugins`` is not in the model, or has not that form.
        BuildError: it cannot run the model.
        CalibrationError: INT8 or FP8 without a calibration, or with one that belongs to another network.
        FormatError: a precision file that is damaged, or belongs to another network.
        ModelError: the file is not a usable ONNX model.
    """
    given, table = precision, read_precisions(precision)
    precision = str(precision) if table is None else table.precision
    options = BuildOptions(precision, threads, device, settings or {}, plugins or {})
    cls = available_class(engine, precision, to_build=True)
    cls.check_precision(precision)
    cls.check_settings(options.settings)
    with no_collection():
        loaded = load_model(model)
        is_quantized = has_qdq(loaded)
        if is_quantized and table is None and precision not in CODES:
            raise PrecisionError(
                f"the model holds Q/DQ nodes: it is an INT8 or FP8 model, and precision={precision!r} would not change that.\n"
                'Do: precision="int8" or precision="fp8"',
                precision=precision,
            )
        if not cls.runs_blocks or (not is_quantized and (table is not None or precision in CODES)):
            check_layouts(loaded, cls.name, cls.runs_blocks)
        native = cls.runs_contrib and (is_quantized or (table is None and precision not in CODES))
        with as_error("the model cannot be prepared", cls.name):
            prepared = prepare_loaded(loaded, native=native)
        check_operators(prepared, cls)
        check_forms(prepared, cls.name, cls.plugin_forms, options.plugins)
    building, written = f"engine {cls.name!r} cannot build the model", prepared
    if table is not None:
        written = with_precisions(prepared, table, cls, calibration, given)
    elif precision in CODES and not has_qdq(prepared):
        own = None if precision != "int8" else calibration
        calibrated = None if own is None else cls.calibrated(prepared, options, own)
        if calibrated is not None:
            return calibrated
        quantized = quantize_for(cls, prepared, calibration, options, progress).model
        is_sound = known_to_be_sound(prepared, quantized)
        with explain_unsupported_operators(prepared, cls), as_error(building, cls.name), is_sound:
            return cls.build_quantized(quantized, prepared, options, progress)
    elif precision in CODES and calibration is not None:
        _log.warning("the model holds Q/DQ nodes already; the calibration is not used")
    with (
        explain_unsupported_operators(prepared, cls),
        as_error(building, cls.name),
        known_to_be_sound(prepared, written),
    ):
        return cls.build(written, options, progress)


def load_engine(path: str | Path, *, device: str | None = None) -> Engine:
    """Load an engine file that `Engine.save` wrote.

    Args:
        path: The file.
        device: The engine's own name for a device, such as ``"cuda:1"``, of the same model as the one that it was built for, which is
            the default.

    Raises:
        EngineFileError: it is damaged, of another format version, or made for another kind of machine.
        RegistryError: it has a plugin that is not registered.
        UnavailableError: its engine cannot be used here.
    """
    file = read_engine_file(path)
    metadata = file.metadata
    again = f"\nDo: pytrt build MODEL.onnx -o {path}"
    try:
        options = BuildOptions(**{**metadata["options"], **({} if device is None else {"device": device})})
        engine_class(metadata["engine"])  # a file names one engine, never "auto"
        cls = available_class(metadata["engine"], to_build=True)
        cls.check_precision(options.precision)
        again = f"\nDo: pytrt build MODEL.onnx --engine {cls.name} --precision {options.precision} -o {path}"
        reason = cls.check_requirements(dict(metadata["requirements"]), device)
        if not reason:
            return cls.restore(file, options)
    except (EngineFileError, MissingExtraError, RegistryError, UnavailableError):
        raise
    except Exception as error:  # whatever a forged file leads to
        raise EngineFileError(
            f"{path}: it cannot be loaded: {shorten_message(error)}.{again}", path=Path(path)
        ) from error
    raise EngineFileError(f"{path}: this engine cannot be loaded here: {reason}.{again}", path=Path(path))


Engine._load = staticmethod(load_engine)
