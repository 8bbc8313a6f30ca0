"""Export a pipeline as YAML for Argo Workflows."""

from .export import argo_yaml
from .live import LivePipeline, load_live
from .target import ArgoTarget

__all__ = ["ArgoTarget", "LivePipeline", "argo_yaml", "load_live"]
