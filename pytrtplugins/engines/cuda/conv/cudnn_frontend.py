"""NVIDIA's package cudnn-frontend: whether it is here, its version and the library's, and its import."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

from ....errors import UnavailableError
from ....utils.optional import installed_version, require

__all__ = ["check_cudnn", "cudnn_versions", "load_frontend", "loaded_versions"]

_FRONTEND, _LIBRARIES = "nvidia-cudnn-frontend", ("nvidia-cudnn-cu13", "nvidia-cudnn-cu12")


def check_cudnn() -> str:
    """Require the frontend, but do not import it: versions before 1.27 import PyTorch where that is installed.

    Returns:
        Its version.

    Raises:
        MissingExtraError: it is not installed.
    """
    if importlib.util.find_spec("cudnn") is None:
        load_frontend()  # which says what to install
    return installed_version(_FRONTEND) or "of unknown version"


def cudnn_versions() -> dict[str, str]:
    """Versions of the frontend and of the library: of the packages that are installed, or as the frontend tells them.

    Raises:
        MissingExtraError: the frontend is not installed.
        UnavailableError: it finds no cuDNN.
    """
    frontend = installed_version(_FRONTEND)
    for library in _LIBRARIES:
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", installed_version(library))
        if frontend and numbers:
            major, minor, patch = map(int, numbers.groups())
            return {"cudnn-frontend": frontend, "cudnn": str(10000 * major + 100 * minor + patch)}
    return loaded_versions(load_frontend())


def load_frontend() -> Any:
    """Import cuDNN's frontend.

    Raises:
        MissingExtraError: it is not installed.
    """
    return require("cudnn", extra="cuda", package=_FRONTEND, feature="engine 'cuda'")


def loaded_versions(cudnn: Any) -> dict[str, str]:
    """Versions of the frontend and of the library that it loads.

    Raises:
        UnavailableError: the library cannot be loaded.
    """
    try:
        return {"cudnn-frontend": str(cudnn.__version__), "cudnn": str(cudnn.backend_version())}
    except RuntimeError as error:
        raise UnavailableError(
            f"engine 'cuda': NVIDIA's library cuDNN cannot be loaded ({error}).\nDo: pip install nvidia-cudnn-cu13"
        ) from error
