"""Triggers of a WorkflowTemplate: an event from a client, or new data in a bucket."""

from __future__ import annotations

import json
from typing import Any

from ....errors import UsageError
from .artifacts import Artifacts
from .live import LivePipeline
from .resource import API_VERSION, make, make_event, to_plain
from .target import ArgoTarget

__all__ = ["COMPLETE", "event_binding", "new_data"]

COMPLETE = "_SUCCESS"
"""The file whose arrival says that all others have arrived, as Hadoop and Spark write it."""
_EVENT = "new-data"


def event_binding(live: LivePipeline, metadata: Any) -> dict[str, Any]:
    """A WorkflowEventBinding: an event with the pipeline's name starts the template; its fields are parameters."""
    name = live.pipeline.name
    parameters = [
        make(
            "Parameter",
            name=parameter,
            value_from=make("ValueFrom", event=f"payload?.{parameter} ?? {json.dumps(value)}"),
        )
        for parameter, value in live.live.items()
    ]
    submit = make(
        "Submit",
        workflow_template_ref=make("WorkflowTemplateRef", name=name),
        arguments=make("Arguments", parameters=parameters) if parameters else None,
    )
    event = make("Event", selector=f"discriminator == {json.dumps(name)}")
    spec = make("WorkflowEventBindingSpec", event=event, submit=submit)
    kind = "WorkflowEventBinding"
    return to_plain(make(kind, api_version=API_VERSION, kind=kind, metadata=metadata, spec=spec))


def new_data(live: LivePipeline, target: ArgoTarget, metadata: Any) -> list[dict[str, Any]]:
    """An EventSource that hears of a file `COMPLETE` among the inputs in the bucket, and a Sensor that starts the template.

    Raises:
        UsageError: the bucket is not one that Argo Events can listen to.
    """
    if target.store != "s3" or not (target.bucket and target.endpoint and target.store_secret):
        raise UsageError(
            "Argo Events listens to buckets that send notifications as MinIO does, and needs their keys.\n"
            "Do: --bucket NAME --endpoint HOST:PORT --bucket-secret NAME; or --kind event, and let the store send the event"
        )
    listening = make_event(
        "S3Artifact",
        bucket=make_event("S3Bucket", name=target.bucket),
        endpoint=target.endpoint,
        insecure=target.insecure or None,
        events=["s3:ObjectCreated:*"],
        filter=make_event("S3Filter", prefix=Artifacts(live.pipeline, target).given_key(""), suffix=COMPLETE),
        access_key={"name": target.store_secret, "key": "accessKey"},
        secret_key={"name": target.store_secret, "key": "secretKey"},
    )
    source = make_event("EventSourceSpec", minio={_EVENT: listening})
    return [
        _resource("EventSource", to_plain(metadata), to_plain(source)),
        _resource("Sensor", to_plain(metadata), _sensor(live.pipeline.name, target)),
    ]


def _sensor(name: str, target: ArgoTarget) -> dict[str, Any]:
    workflow = _resource("Workflow", {"generateName": f"{name}-"}, {"workflowTemplateRef": {"name": name}})
    trigger = make_event("TriggerTemplate", name=name, k8s=make_event("StandardK8STrigger", operation="create"))
    account = make_event("Template", service_account_name=target.service_account) if target.service_account else None
    spec = to_plain(
        make_event(
            "SensorSpec",
            template=account,
            dependencies=[make_event("EventDependency", name=_EVENT, event_source_name=name, event_name=_EVENT)],
            triggers=[make_event("Trigger", template=trigger, retry_strategy=make_event("Backoff", steps=3))],
        )
    )
    spec["triggers"][0]["template"]["k8s"]["source"] = {"resource": workflow}  # hera takes it for bytes
    return spec


def _resource(kind: str, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
