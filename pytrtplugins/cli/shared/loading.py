"""Load models, engines, calibrators and plugin classes from words of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ...calibration import CALIBRATORS, CalibrationTable, Calibrator, ImageBatches
from ...engines import Engine, build, load_engine
from ...engines.base.engine_file import is_engine_file
from ...engines.registry import available_class
from ...errors import ModelError, RegistryError, UsageError
from ...model import Graph, read_onnx
from ...models import Yolov2, describe, read_description
from ...passes import CODES
from ...plugin.base import Plugin
from ...utils.optional import onnx
from ...utils.user_module import import_user_module
from .other_files import not_an_engine_here
from .samples import ArrayFiles

if TYPE_CHECKING:
    from darknet2caffe.to_onnx import BatchSize

__all__ = [
    "PRECISIONS",
    "check_precision",
    "import_plugin",
    "import_plugins",
    "is_engine_file",
    "make_calibrator",
    "names_beside",
    "open_detector",
    "open_engine",
    "open_graph",
    "open_model",
]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "int8", "fp8")
"""Names of precisions; an engine has some of them."""

_PRECISION_FILES = (".yaml", ".yml")


def check_precision(text: str) -> str:
    """A precision's name, or the path of a precision file, as it was typed."""
    if text in PRECISIONS:
        return text
    if not text.endswith(_PRECISION_FILES):
        raise UsageError(f"--precision {text}: expected {', '.join(PRECISIONS)}, or a precision file (.yaml).")
    if not Path(text).is_file():
        raise UsageError(
            f"--precision {text}: no such file. Looked for: {Path(text).absolute()}\n"
            f"Do: pytrt precision search MODEL --data IMAGES -o {text}",
            path=Path(text),
        )
    return text


def names_beside(model: Path) -> Path | None:
    """The file of class names that has the model's name; None where there is none."""
    beside = model.with_suffix(".names")
    return beside if beside.is_file() else None


def open_detector(engine: Engine, path: Path, names: Path | None = None, **options: Any) -> Yolov2:
    """A detector, with the given class names, else those of the model, else those of the file next to it."""
    if names is None and read_description(engine.model_without_weights).names is None:
        names = names_beside(path)
    return Yolov2(engine, names, **options)


def open_model(path: Path, weights: Path | None = None, batch: BatchSize = 1) -> onnx.ModelProto:
    """Read an ONNX file, or darknet's .cfg with its weights (by default the file of the same name).

    Args:
        path: The file.
        weights: darknet's weights.
        batch: Batch size of a network converted from darknet.

    Raises:
        UsageError: the file is missing, or weights are given for an ONNX file.
        ModelError: the file is not an ONNX model.
    """
    return _read_model(path, weights, batch)[0]


def open_graph(path: Path, weights: Path | None = None) -> Graph:
    """A model opened for editing; weights in a separate file are saved separately again.

    Raises:
        ModelError: the file is not an ONNX model, or a broken one.
    """
    model, external_data = _read_model(path, weights, 1)
    return Graph(model, external_data=external_data)


def _read_model(path: Path, weights: Path | None, batch: BatchSize) -> tuple[onnx.ModelProto, bool]:
    """A model, and whether its weights lie in a file of their own."""
    if not path.is_file():
        raise UsageError(f"model {str(path)!r}: no such file. Looked for: {path.absolute()}", path=path)
    if path.suffix == ".cfg":
        from darknet2caffe import read_network, to_onnx

        return to_onnx(read_network(path, weights or path.with_suffix(".weights")), batch=batch), False
    if is_engine_file(path):
        raise not_an_engine_here(path)
    if weights is not None:
        raise UsageError(f"--weights belong to a .cfg; {path} brings its own.")
    model, external_data = read_onnx(path)
    if not model.graph.output:
        raise ModelError(
            f"{path}: not an ONNX model, or one without outputs ({path.stat().st_size:,} bytes).", path=path
        )
    return model, external_data


def open_engine(
    path: Path,
    weights: Path | None = None,
    engine: str = "auto",
    precision: str = "fp32",
    cache: Path | None = None,
    threads: int | None = None,
    *,
    calibration: Path | None = None,
    mode: str = "letterbox",
    settings: Mapping[str, Any] | None = None,
    plugins: Mapping[str, str] | None = None,
    batch: int | None = None,
    details: Mapping[str, Any] | None = None,
    as_asked: bool = False,
) -> Engine:
    """Load a saved engine, or build one from an ONNX file or a .cfg, which becomes a network of this batch.

    ``details`` of a detector (`pytrtplugins.models.describe`) are stored in the engine; class names come from the file next to the model if
    neither has any.
    With ``as_asked`` an engine for CPUs computes in the precision even where float32 is faster, unless the settings say otherwise: commands
    that measure accuracy, or compare precisions, measure what they were asked for.
    A precision file brings its scales with it; INT8 and FP8 take them from the cache, by default the model's name with ``.cache``, or
    makes it with the images.

    Raises:
        UsageError: INT8 or FP8 is asked for and there is nothing to take its scales from; or a precision file, or forms of plugins, for
            what is built already.
    """
    if is_engine_file(path):
        if precision.endswith(_PRECISION_FILES):
            raise UsageError(
                f"{path} is built already; {precision} says how to build.\n"
                f"Do: pytrt build MODEL --precision {precision} -o {path}",
                path=path,
            )
        if plugins:
            raise UsageError(
                f"{path} is built already; --plugin-form says how to build.\nDo: pytrt build MODEL -o {path} --plugin-form NAME=FORM"
            )
        return load_engine(path)
    if precision.endswith(_PRECISION_FILES) and (calibration or cache):
        raise UsageError(f"{precision} holds its own scales: leave out --cache and --calibration.")
    model = open_model(path, weights, batch or 1)
    details = dict(details or {})
    if details.get("names") is None and read_description(model).names is None:
        details["names"] = names_beside(path)
    describe(model, **details)
    calibrator = None
    if precision in CODES and not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        cache = cache or path.with_suffix(".cache")
        if calibration is None and not cache.is_file():
            raise UsageError(
                f"{precision.upper()} needs the scale of each tensor: there is no calibration cache {cache}, and no images to make "
                "one from.\n"
                f"Do: pytrt calibrate {path} --calibration IMAGES --cache {cache}",
                cache=cache,
            )
        calibrator = make_calibrator("minmax", calibration, cache, mode=mode)
    always = available_class(engine, precision).always(precision) if as_asked else {}
    return build(
        model,
        engine=engine,
        precision=precision,
        calibration=calibrator,
        threads=threads,
        settings={**always, **(settings or {})},
        plugins=plugins,
    )


def make_calibrator(
    algorithm: str,
    images: Path | None,
    cache: Path | None,
    *,
    batch: int = 8,
    limit: int | None = None,
    mode: str = "letterbox",
) -> Calibrator:
    """Make a calibrator; without images it is one that reads its cache only, of the algorithm that made it.

    A folder with .npz files gives their arrays in the place of images.

    Raises:
        UsageError: the algorithm is unknown.
        NoDataError: the folder has no image.
    """
    if algorithm not in CALIBRATORS:
        raise UsageError(f"algorithm {algorithm!r}: expected one of {', '.join(CALIBRATORS)}.")
    if images is None and cache is not None:
        made_by = CalibrationTable.read(cache).algorithm
        algorithm = next((name for name, cls in CALIBRATORS.items() if cls.algorithm == made_by), algorithm)
    batches: ImageBatches | ArrayFiles | None = None
    if images is not None:
        batches = ArrayFiles(images, limit) or ImageBatches(images, batch=batch, limit=limit, mode=mode)
    return CALIBRATORS[algorithm](batches, cache=cache)


@overload
def import_plugin(target: str) -> type[Plugin]: ...


@overload
def import_plugin(target: str, *, instances: bool) -> type[Plugin] | Plugin: ...


def import_plugin(target: str, *, instances: bool = False) -> type[Plugin] | Plugin:
    """Import a plugin class written as ``module:Class`` or ``path/to/file.py:Class``; where they are wanted, instances too.

    One of a library of C++ is ``path/to/libacme.so:Class``; its namespace is then that of the file.

    Raises:
        UsageError: the text has another form, or the module cannot be imported.
        RegistryError: the module has no such plugin.
    """
    module_name, colon, class_name = target.rpartition(":")
    if not (colon and module_name and class_name):
        raise UsageError(f"plugin {target!r}: expected module:Class or file.py:Class, such as mylayers:ChannelShuffle.")
    module: Any = _library(module_name) if module_name.endswith(".so") else import_user_module(module_name)
    attribute = getattr(module, class_name, None)
    if instances and isinstance(attribute, Plugin):
        return attribute
    if not (isinstance(attribute, type) and issubclass(attribute, Plugin)):
        members = {cls.__name__: cls for cls in getattr(module, "plugins", ())} or vars(module)
        classes = {name: value for name, value in members.items() if isinstance(value, type)}
        plugins = [name for name, value in classes.items() if issubclass(value, Plugin) and value is not Plugin]
        raise RegistryError(
            f"plugin {target!r}: {module_name} has no plugin class {class_name!r}. It has: {', '.join(plugins) or 'none'}.",
            name=class_name,
        )
    return attribute


def _library(path: str) -> Any:
    """A library of plugins in C++."""
    from ...native import load_library

    return load_library(path, namespace=Path(path).stem)


def import_plugins(modules: Sequence[str] | None) -> None:
    """Import modules, or files, so that their plugins are registered."""
    for module in modules or ():
        import_user_module(module)
