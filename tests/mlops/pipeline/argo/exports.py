"""A pipeline that uses all that an export knows, and its exports read back."""

from __future__ import annotations

import copy

import pytest

from pytrtplugins.mlops.pipeline.argo import ArgoTarget, argo_yaml

IMAGE = "registry.example.com/animals:1"
READ: dict = {}
"""Exports that were read back, by the pipeline and the target."""
KINDS = {
    "workflow": ["Workflow"],
    "template": ["WorkflowTemplate"],
    "cron": ["CronWorkflow"],
    "event": ["WorkflowTemplate", "WorkflowEventBinding"],
    "data": ["WorkflowTemplate", "EventSource", "Sensor"],
}
PIPELINE = """
name: animals
schedule: "0 3 * * *"
parameters: {size: smoke, images: {by: size, smoke: 16, full: 500}, note: hello, share: 0.5, strict: true}
steps:
  shards:
    command: sh -c "mkdir shards; cp photos.txt shards/all; echo $0 > shards/count" ${images}
    inputs: [photos.txt]
    outputs: [shards]
    retry: {limit: 3, backoff: 10s}
    resources: {cpu: 1.5, memory: 512MiB}
  evaluate:
    matrix: {precision: [fp32, int8]}
    command: sh -c 'test -s shards/all && echo "{\\"mAP\\":" $0"}"' ${share}
    inputs: [shards/all]
    stdout: metrics/${precision}.json
    metrics: ["metrics/${precision}.json"]
    resources: {gpu: 1}
    time_limit: 90min
    environment: [OMP_NUM_THREADS]
  quality:
    gate: int8.mAP within 0.1 of fp32 and int8.mAP above 0.4
    inputs: [metrics/int8.json, metrics/fp32.json]
    outputs: [gates/int8.json]
  package:
    command: cp shards/all package
    inputs: [shards, gates/int8.json]
    outputs: [package]
    approval: true
    secrets: [REGISTRY_TOKEN]
on_exit:
  command: sh -c "echo $PYTRT_PIPELINE_STATE $0 > told.txt; cat told.txt" ${note}
  outputs: [told.txt]
"""


def exported(found, **target):
    """The resources of an export, read back."""
    yaml = pytest.importorskip("yaml")
    cluster = ArgoTarget(**{"image": IMAGE, "bucket": "models", **target})
    if (id(found), cluster) not in READ:  # pipelines stay alive in the fixture
        READ[id(found), cluster] = list(yaml.safe_load_all(argo_yaml(found, cluster)))
    return copy.deepcopy(READ[id(found), cluster])


def specification(resource):
    """The workflow's, of any kind."""
    return resource["spec"].get("workflowSpec", resource["spec"])


def template(resource, name):
    """A template by its name."""
    return next(each for each in specification(resource)["templates"] if each["name"] == name)


def task(resource, name):
    """A task of the DAG by its name."""
    return next(each for each in template(resource, "main")["dag"]["tasks"] if each["name"] == name)
