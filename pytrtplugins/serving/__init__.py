"""Models behind HTTP."""

from .access import Access
from .model import Model, Request
from .run import serve
from .spec import Limits, ModelSpec
from .tensors import TensorSpec

__all__ = ["Access", "Limits", "Model", "ModelSpec", "Request", "TensorSpec", "serve"]
