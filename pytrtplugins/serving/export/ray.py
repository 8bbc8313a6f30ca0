"""Write files for a running Ray cluster."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from ...utils.text_formats import yaml_text
from ..ray import INGRESS
from ..ray.run import absolute
from .content import Files
from .deployment import Deployment

__all__ = ["files"]


def files(deployment: Deployment) -> Files:
    """``serve.yaml`` for ``serve deploy``, and ``ray.env``, which every node needs in its environment before it is started."""
    deployment.refuse("Ray", "secret", "wheel", "files")
    about = (
        f"Ray Serve's configuration of {deployment.name}; made by pytrt serve-export.\n"
        "Every node needs pytrtplugins[serve-ray], and the files of the models at the same paths.\n"
        "Do: on each node, first set -a; . ./ray.env; set +a; then ray start ...; on one of them serve deploy serve.yaml"
    )
    models = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(absolute(spec)).items()}
        for spec in deployment.specs
    ]
    application = {
        "name": deployment.name,
        "route_prefix": "/",
        "import_path": "pytrtplugins.serving.ray:build",
        "args": {"models": models, "limits": asdict(deployment.limits), "scale": asdict(deployment.scale)},
    }
    document = {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": deployment.port},
        "applications": [application],
    }
    variables = "".join(f"{name}={shlex.quote(value)}\n" for name, value in INGRESS.items())
    return {"serve.yaml": yaml_text(document, about=about), "ray.env": variables}
