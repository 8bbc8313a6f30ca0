"""Serve models over HTTP and gRPC."""

from .access.access import Access
from .model.model import Model, Request
from .model.spec import Limits, ModelSpec
from .model.tensors import TensorSpec
from .run import serve

__all__ = ["Access", "Limits", "Model", "ModelSpec", "Request", "TensorSpec", "serve"]
