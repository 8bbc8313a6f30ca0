"""Write files for Docker Compose."""

from __future__ import annotations

from typing import Any

from ...utils.text_formats import yaml_text
from .content import KEYS_FOLDER, USER, Files, image_files
from .deployment import Deployment

__all__ = ["files"]


def files(deployment: Deployment) -> Files:
    """``compose.yaml``, and what the image is built from."""
    about = (
        f"{deployment.name} on one machine; made by pytrt serve-export.\n"
        "Do: docker compose up --build --detach --wait\n"
        "Only this machine can connect; to change that, remove 127.0.0.1 from the port, and give clients keys."
    )
    return {**image_files(deployment), "compose.yaml": yaml_text(_project(deployment), about=about)}


def _project(deployment: Deployment) -> dict[str, Any]:
    scale, gpus = deployment.scale, deployment.whole_gpus
    limits: dict[str, Any] = {"cpus": f"{scale.cpus:g}", "memory": f"{scale.memory_mib}M"}
    resources: dict[str, Any] = {"limits": limits}
    if gpus:
        device = {"driver": "nvidia", "count": gpus, "capabilities": ["gpu"]}
        resources["reservations"] = {"devices": [device]}
    service: dict[str, Any] = {
        "build": {"context": "."},
        "image": deployment.image,
        "ports": [f"127.0.0.1:{deployment.port}:{deployment.port}"],
        "user": f"{USER}:{USER}",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart": "unless-stopped",
        "stop_grace_period": f"{deployment.grace_s}s",
        "deploy": {"resources": resources},
    }
    project: dict[str, Any] = {"name": deployment.name, "services": {"server": service}}
    if deployment.secret is not None:
        service["secrets"] = [{"source": deployment.secret, "target": f"{KEYS_FOLDER}/keys.toml"}]
        project["secrets"] = {deployment.secret: {"file": "./keys.toml"}}
    return project
