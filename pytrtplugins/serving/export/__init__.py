"""Export a server for other machines: files for Ray, Kubernetes, KServe, Docker Compose and Triton."""

from .deployment import Deployment
from .write import KINDS, export

__all__ = ["KINDS", "Deployment", "export"]
