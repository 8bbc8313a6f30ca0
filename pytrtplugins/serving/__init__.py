"""Models behind HTTP."""

from .model import Model, Request
from .run import serve
from .spec import Limits, ModelSpec

__all__ = ["Limits", "Model", "ModelSpec", "Request", "serve"]
