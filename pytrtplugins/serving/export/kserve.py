"""Write files for KServe: a runtime, and a service that uses it."""

from __future__ import annotations

from typing import Any

from ...utils.text_formats import yaml_text
from .content import Files, image_files
from .deployment import Deployment
from .kubernetes import container, labels, metadata, volumes

__all__ = ["files"]

_FORMAT = "pytrtplugins"


def files(deployment: Deployment) -> Files:
    """ServingRuntime and InferenceService, and what the image is built from."""
    about = (
        f"Runtime and service of {deployment.name}; made by pytrt serve-export.\n"
        "The models are in the image: the service needs no storage.\nDo: kubectl apply -f kserve/service.yaml"
    )
    text = yaml_text(_runtime(deployment), _service(deployment), about=about)
    return {**image_files(deployment), "kserve/service.yaml": text}


def _runtime(deployment: Deployment) -> dict[str, Any]:
    spec = {
        "supportedModelFormats": [{"name": _FORMAT, "version": "1", "autoSelect": False}],
        "protocolVersions": ["v2"],
        "multiModel": False,
        "containers": [container(deployment, "kserve-container", "http1")],  # Knative's name of a port
        "volumes": volumes(deployment),
    }
    return {
        "apiVersion": "serving.kserve.io/v1alpha1",
        "kind": "ServingRuntime",
        "metadata": metadata(deployment),
        "spec": spec,
    }


def _service(deployment: Deployment) -> dict[str, Any]:
    scale = deployment.scale
    predictor: dict[str, Any] = {
        "minReplicas": scale.min_replicas,
        "maxReplicas": scale.max_replicas,
        "scaleMetric": "concurrency",
        "scaleTarget": scale.target_requests,
        "timeout": 60,
        "model": {
            "modelFormat": {"name": _FORMAT, "version": "1"},
            "runtime": deployment.name,
            "protocolVersion": "v2",
        },
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {"name": deployment.name, "labels": labels(deployment)},
        "spec": {"predictor": predictor},
    }
