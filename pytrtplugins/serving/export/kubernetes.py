"""Write files for a Kubernetes cluster."""

from __future__ import annotations

from typing import Any

from ...utils.text_formats import yaml_text
from .content import KEYS_FOLDER, READY, USER, Files, command, image_files
from .deployment import Deployment

__all__ = ["container", "files", "labels", "metadata", "volumes"]

_QUEUE_METRIC = "pytrt_queue_length"
_STARTUP_S, _STARTUP_PERIOD_S = 600, 5
_ABOUT = """\
{what} of {name}; made by pytrt serve-export.
Do: kubectl apply -f kubernetes/"""


def files(deployment: Deployment) -> Files:
    """Deployment, Service, HorizontalPodAutoscaler and PodDisruptionBudget, and the build context of the image."""
    objects = {
        "deployment": (_workload(deployment), _about(deployment, "Pods") + _secret_remark(deployment)),
        "service": (_service(deployment), _about(deployment, "Address within the cluster")),
        "disruption": (_disruption(deployment), _about(deployment, "How many pods may be taken away at a time")),
    }
    if deployment.scale.autoscaled:
        remark = (
            f"\nThe number of pods follows {_QUEUE_METRIC}, which a server shows at /metrics: the cluster needs Prometheus, and"
            "\nprometheus-adapter with a rule that gives this metric of pods to custom.metrics.k8s.io."
        )
        objects["autoscaler"] = (_autoscaler(deployment), _about(deployment, "Number of pods") + remark)
    texts: Files = {
        f"kubernetes/{name}.yaml": yaml_text(content, about=about) for name, (content, about) in objects.items()
    }
    return {**image_files(deployment), **texts}


def labels(deployment: Deployment) -> dict[str, str]:
    """Labels of all objects of a deployment."""
    return {"app.kubernetes.io/name": "pytrtplugins", "app.kubernetes.io/instance": deployment.name}


def metadata(deployment: Deployment) -> dict[str, Any]:
    """Name and labels of an object."""
    return {"name": deployment.name, "labels": labels(deployment)}


def container(deployment: Deployment, name: str, port_name: str) -> dict[str, Any]:
    """The server, as a container: probes, what it may use, and how it ends."""
    gpus, scale = deployment.whole_gpus, deployment.scale
    accelerators = {"nvidia.com/gpu": gpus} if gpus else {}
    memory = f"{scale.memory_mib}Mi"
    ready, live = ({"path": path, "port": port_name} for path in (READY, "/v2/health/live"))
    return {
        "name": name,
        "image": deployment.image,
        "args": command(deployment),
        "ports": [{"name": port_name, "containerPort": deployment.port, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": f"{round(1000 * scale.cpus)}m", "memory": memory, **accelerators},
            "limits": {"memory": memory, **accelerators},
        },
        "startupProbe": {
            "httpGet": ready,
            "periodSeconds": _STARTUP_PERIOD_S,
            "failureThreshold": _STARTUP_S // _STARTUP_PERIOD_S,
        },
        "readinessProbe": {"httpGet": dict(ready), "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 2},
        "livenessProbe": {"httpGet": live, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *([{"name": "keys", "mountPath": KEYS_FOLDER, "readOnly": True}] if deployment.secret else []),
        ],
    }


def volumes(deployment: Deployment) -> list[dict[str, Any]]:
    """Volumes for temporary files and for the keys."""
    keys = [{"name": "keys", "secret": {"secretName": deployment.secret}}]
    return [{"name": "tmp", "emptyDir": {}}, *(keys if deployment.secret else [])]


def _workload(deployment: Deployment) -> dict[str, Any]:
    spec: dict[str, Any] = {} if deployment.scale.autoscaled else {"replicas": deployment.scale.min_replicas}
    selector = {"matchLabels": labels(deployment)}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    delay = {"exec": {"command": ["sleep", str(deployment.drain_delay_s)]}}  # until no request is sent here any more
    annotations = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(deployment.port),
        "prometheus.io/path": "/metrics",
    }
    spec |= {
        "selector": selector,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {
            "metadata": {"labels": labels(deployment), "annotations": annotations},
            "spec": {
                "terminationGracePeriodSeconds": deployment.grace_s,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels(deployment)}}],
                "containers": [{**container(deployment, "server", "http"), "lifecycle": {"preStop": delay}}],
                "volumes": volumes(deployment),
            },
        },
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(deployment), "spec": spec}


def _service(deployment: Deployment) -> dict[str, Any]:
    port = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP"}
    spec = {"type": "ClusterIP", "selector": labels(deployment), "ports": [port]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(deployment), "spec": spec}


def _autoscaler(deployment: Deployment) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": str(deployment.scale.target_requests)}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment.name},
        "minReplicas": deployment.scale.min_replicas,
        "maxReplicas": deployment.scale.max_replicas,
        "metrics": [{"type": "Pods", "pods": {"metric": {"name": _QUEUE_METRIC}, "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
    }
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(deployment),
        "spec": spec,
    }


def _disruption(deployment: Deployment) -> dict[str, Any]:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels(deployment)}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(deployment),
        "spec": spec,
    }


def _about(deployment: Deployment, what: str) -> str:
    return _ABOUT.format(what=what, name=deployment.name)


def _secret_remark(deployment: Deployment) -> str:
    if deployment.secret is None:
        return ""
    return f"\nThe keys of clients: kubectl create secret generic {deployment.secret} --from-file=keys.toml"
