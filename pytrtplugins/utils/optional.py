"""Import optional packages when they are first used; nothing else may catch ImportError."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError
from .lazy_imports import defer_imports

__all__ = ["installed_version", "ir", "onnx", "require"]

_SELDOM_USED = {
    "onnx_ir": ("sympy", "onnx_ir._symbolic_shapes"),
    "openvino": ("openvino.tools.ovc:convert_model",),
}
"""What a package imports at its start: onnx-ir computes with free dims in SymPy, OpenVINO converts models of other libraries; these
take longer to import than all else of it."""
_imported: dict[str, ModuleType] = {}
"""Modules that an earlier call imported to their end: passes ask for them many thousand times."""


def require(module: str, *, extra: str, package: str | None = None, feature: str = "", alone: str = "") -> ModuleType:
    """Import an optional module, or raise an error with the command that installs it.

    The extra is this project's that brings the package, whose name may differ from the module's; empty where none does. The feature,
    such as ``"engine 'cpu'"``, is what needs it. ``alone`` is a requirement that is installed beside the extra, without what it depends on.

    Raises:
        MissingExtraError: the module cannot be imported; ``.package`` and ``.extra`` tell which.
    """
    loaded = _imported.get(module)
    if loaded is not None and sys.modules.get(module) is loaded:
        return loaded
    try:
        with defer_imports(*_SELDOM_USED.get(module.partition(".")[0], ())):
            loaded = _imported[module] = importlib.import_module(module)
        return loaded
    except ImportError as error:
        package = package or module.partition(".")[0]
        requirement = f'"pytrtplugins[{extra}]"' if extra else package
        if alone:
            requirement += f' && pip install --no-deps "{alone}"'
        raise MissingExtraError(
            f"{feature or 'this feature'} needs the package {package!r}, which cannot be imported ({error}).\n"
            f"Do: pip install {requirement}",
            package=package,
            extra=extra,
        ) from error


def installed_version(package: str) -> str:
    """The version of a package that pip installed; empty if it did not."""
    from importlib import metadata  # which takes long to import

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _optional_module(name: str) -> ModuleType:
    """A module that `require` imports when an attribute is used: a plain `ModuleType`, since Python reads the attributes of these fast."""
    module = ModuleType(name)

    def load(attribute: str) -> Any:
        if attribute.startswith("__") and attribute != "__version__":  # what `inspect` and the like ask of any module
            raise AttributeError(attribute)
        value = getattr(require(name, extra="onnx"), attribute)
        setattr(module, attribute, value)
        return value

    module.__getattr__ = load  # type: ignore[method-assign]
    return module


if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir
else:
    onnx, ir = _optional_module("onnx"), _optional_module("onnx_ir")
