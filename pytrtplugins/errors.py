"""Exceptions of this package.

    PytrtpluginsError
    ├─ PluginError
    │  ├─ DimsError             also ValueError      a shape that the plugin does not accept
    │  ├─ FieldError            also ValueError      a typed attribute with a wrong name, type or value
    │  ├─ RegistryError         also LookupError     a plugin key that is unknown or already taken
    │  ├─ KernelError           also ValueError      a CUDA kernel that does not compile, or is launched wrongly
    │  ├─ ExportError           also ValueError      a plugin that cannot be turned into C++
    │  ├─ SerializationError    also ValueError      bytes that are not a serialized plugin
    │  └─ ConformanceError      also AssertionError  check_plugin found a defect
    ├─ EngineError
    │  ├─ MissingExtraError     also ImportError     an optional package is not installed
    │  ├─ UnavailableError      also RuntimeError    the engine does not work on this machine
    │  ├─ BuildError            also RuntimeError    the engine cannot build this model
    │  ├─ ExecutionError        also RuntimeError    the library below the engine failed in a run
    │  ├─ BindingError          also ValueError      wrong names, dims or dtypes given to a run
    │  └─ PrecisionError        also ValueError      a precision that the engine does not have
    ├─ FormatError              also ValueError      a file with wrong contents
    │  ├─ CfgError  WeightsError  ModelError  EngineFileError  ImageError
    ├─ CalibrationError         also ValueError
    │  ├─ CalibrationTableError                      a table that is broken or belongs to another network
    │  └─ NoDataError                                nothing to calibrate or evaluate with
    ├─ ModelRegistryError       also ValueError      a registry of models that lacks something, or is damaged
    ├─ PipelineError            also ValueError      the description of a pipeline that is wrong
    ├─ StepError                also RuntimeError    a step of a pipeline that failed
    ├─ UsageError               also ValueError      arguments that contradict each other
    ├─ RequestError             also ValueError      a request that a server refuses
    └─ CopyError                also TypeError       an engine, a context or a detector was pickled or copied

A message says what is wrong, where and why, and ends with ``Do:`` and the next command, if there is one. The facts in the
message are attributes of the exception, so that programs need not parse it: ``raise CfgError(text, path=path, line=7)``
has ``.path`` and ``.line``.
"""

from __future__ import annotations

__all__ = [
    "BindingError",
    "BuildError",
    "CalibrationError",
    "CalibrationTableError",
    "CfgError",
    "ConformanceError",
    "CopyError",
    "DimsError",
    "EngineError",
    "EngineFileError",
    "ExecutionError",
    "ExportError",
    "FieldError",
    "FormatError",
    "ImageError",
    "KernelError",
    "MissingExtraError",
    "ModelError",
    "ModelRegistryError",
    "NoDataError",
    "PipelineError",
    "PluginError",
    "PrecisionError",
    "PytrtpluginsError",
    "RegistryError",
    "RequestError",
    "SerializationError",
    "StepError",
    "UnavailableError",
    "UsageError",
    "WeightsError",
]


class PytrtpluginsError(Exception):
    """Base of every exception that this package raises on purpose; the facts in its message are attributes."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.facts = facts

    def __getattr__(self, name: str) -> object:
        facts = self.__dict__.get("facts", {})
        if name in facts:
            return facts[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class PluginError(PytrtpluginsError):
    """A plugin is declared or used wrongly."""


class DimsError(PluginError, ValueError):
    """A shape that the plugin does not accept; raised before anything is launched."""


class FieldError(PluginError, ValueError):
    """A typed attribute with a wrong name, type or value."""


class RegistryError(PluginError, LookupError):
    """A plugin key that is unknown, or taken by another class."""


class KernelError(PluginError, ValueError):
    """A CUDA kernel that does not compile, or is launched with wrong arguments; ``.path`` and ``.line`` say where."""


class ExportError(PluginError, ValueError):
    """A plugin that cannot be turned into C++; ``.path`` and ``.line`` say which line of its code is the reason."""


class SerializationError(PluginError, ValueError):
    """Bytes that are not one whole, undamaged serialized plugin."""


class ConformanceError(PluginError, AssertionError):
    """A plugin breaks its contract; ``.report`` is the report."""


class EngineError(PytrtpluginsError):
    """An engine is not available, or cannot be built or run."""


class MissingExtraError(EngineError, ImportError):
    """An optional package is missing; ``.package`` and ``.extra`` say which."""


class UnavailableError(EngineError, RuntimeError):
    """The engine does not work on this machine."""


class BuildError(EngineError, RuntimeError):
    """The engine cannot build this model; ``.text`` is everything that its library reported, if that was the reason."""


class ExecutionError(EngineError, RuntimeError):
    """The library below the engine failed in a run; ``.text`` is everything that it reported, ``__cause__`` its exception."""


class BindingError(EngineError, ValueError):
    """Arrays given to a run do not fit the engine's inputs or outputs."""


class PrecisionError(EngineError, ValueError):
    """The engine does not have this precision."""


class FormatError(PytrtpluginsError, ValueError):
    """A file with wrong contents."""


class CfgError(FormatError):
    """A darknet .cfg that cannot be read; ``.path`` and ``.line`` say where."""


class WeightsError(FormatError):
    """A darknet .weights file that does not fit its .cfg; ``.path`` and ``.offset`` say where."""


class ModelError(FormatError):
    """An ONNX model that is broken or uses something unsupported."""


class EngineFileError(FormatError):
    """An engine file that is damaged, of another version or for another machine."""


class ImageError(FormatError):
    """An image that cannot be read; ``.path`` says which."""


class CalibrationError(PytrtpluginsError, ValueError):
    """Calibration cannot be done or its result cannot be used."""


class CalibrationTableError(CalibrationError):
    """A calibration table or cache that is broken or belongs to another network."""


class NoDataError(CalibrationError):
    """No data to calibrate or evaluate with."""


class ModelRegistryError(PytrtpluginsError, ValueError):
    """A registry of models that lacks what is asked for, or is damaged; ``.path`` says where, if it is a file."""


class PipelineError(PytrtpluginsError, ValueError):
    """The description of a pipeline is wrong; ``.problems`` has a pair for each: where, and what."""


class StepError(PytrtpluginsError, RuntimeError):
    """A step of a pipeline failed, or cannot be run here; ``.step`` says which, ``.path`` the file that it is about."""


class UsageError(PytrtpluginsError, ValueError):
    """Arguments that are wrong or contradict each other."""


class RequestError(PytrtpluginsError, ValueError):
    """A request that a server refuses; ``.status`` is HTTP's code of the answer, ``.retry_after`` seconds after which to ask again."""

    def __init__(self, message: str, *, status: int = 400, retry_after: int | None = None) -> None:
        super().__init__(message, status=status, retry_after=retry_after)
        self.status, self.retry_after = status, retry_after


class CopyError(PytrtpluginsError, TypeError):
    """Something that holds the state of a library was pickled or copied; ``.type_name`` says what."""
