"""The server as a deployment of Ray Serve."""

from .application import application, build
from .run import INGRESS, serve_on_ray

__all__ = ["INGRESS", "application", "build", "serve_on_ray"]
