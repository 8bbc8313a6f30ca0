"""Convert a pipeline to resources of Argo Workflows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ....errors import PipelineError, UsageError
from ....utils.listing import count_text
from ....version import __version__
from ..placeholders import as_recorded
from ..step import Step
from .artifacts import Artifacts
from .live import LivePipeline
from .resource import API_VERSION, make, to_plain
from .target import ArgoTarget
from .templates import PASSES, Templates
from .triggers import event_binding, new_data

__all__ = ["make_resources"]

_USER = 10001  # as in the images of `pytrt serve-export`
_LONGEST, _LONGEST_CRON = 57, 52  # what is added: a dash and 5 letters, or the time in seconds; names have 63
_KEPT_S = 7 * 86_400  # of workflows that have ended
_KEPT_FAILED_S = 30 * 86_400


def make_resources(live: LivePipeline, target: ArgoTarget) -> list[dict[str, Any]]:
    """The resources, as values for YAML.

    Raises:
        PipelineError: something in the pipeline cannot be had in Argo.
        UsageError: a CronWorkflow is wanted, and the pipeline has no schedule.
    """
    _check_names(live, target)
    spec = _Spec(live, target).make()
    metadata = {"namespace": target.namespace or None, "labels": _labels(live), "annotations": _annotations(live)}
    name = live.pipeline.name
    if target.kind == "workflow":
        return [_resource("Workflow", make("ObjectMeta", generate_name=f"{name}-", **metadata), spec=spec)]
    named = make("ObjectMeta", name=name, **metadata)
    if target.kind == "cron":
        return [_resource("CronWorkflow", named, spec=_cron(live, target, spec))]
    template = _resource("WorkflowTemplate", named, spec=spec)
    starting = make("ObjectMeta", name=name, namespace=target.namespace or None, labels=_labels(live))
    if target.kind == "event":
        return [template, event_binding(live, starting)]
    return [template, *(new_data(live, target, starting) if target.kind == "data" else ())]


def _check_names(live: LivePipeline, target: ArgoTarget) -> None:
    """Refuse names that Argo does not accept."""
    most, name = (_LONGEST_CRON if target.kind == "cron" else _LONGEST), live.pipeline.name
    if len(name) > most:
        raise PipelineError(
            f"{name}: Argo adds to a pipeline's name, which may have at most {most} characters here, found {len(name)}."
        )
    for step in live.pipeline.steps:
        if step.name[0].isdigit():
            raise PipelineError(
                f"step {step.name}: a task of Argo may not begin with a digit.\nDo: call the step otherwise"
            )


def _resource(kind: str, metadata: Any, spec: Any) -> dict[str, Any]:
    return to_plain(make(kind, api_version=API_VERSION, kind=kind, metadata=metadata, spec=spec))


def _labels(live: LivePipeline) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "pytrtplugins",
        "app.kubernetes.io/instance": live.pipeline.name,
        "app.kubernetes.io/managed-by": "pytrt",
    }


def _annotations(live: LivePipeline) -> dict[str, str]:
    """Annotations: texts for Argo's page, and parameters that were fixed at the export."""
    parameters = as_recorded(live.pipeline.parameters)
    fixed = {name: value for name, value in parameters.items() if name not in live.live}
    annotations = {
        "workflows.argoproj.io/description": f"Pipeline {live.pipeline.name}: {count_text(len(live.pipeline.steps), 'step')}."
    }
    annotations["pytrtplugins/version"] = __version__
    return annotations | ({"pytrtplugins/parameters": json.dumps(fixed, sort_keys=True)} if fixed else {})


def _cron(live: LivePipeline, target: ArgoTarget, spec: Any) -> Any:
    if live.pipeline.schedule is None:
        raise UsageError(
            f"a CronWorkflow needs a schedule, which pipeline {live.pipeline.name} does not have.\n"
            'Do: add a key such as schedule: "0 3 * * *" to the pipeline'
        )
    return make(
        "CronWorkflowSpec",
        schedules=[live.pipeline.schedule],
        timezone=target.timezone or None,
        concurrency_policy=target.concurrency,
        starting_deadline_seconds=3600,
        successful_jobs_history_limit=3,
        failed_jobs_history_limit=3,
        workflow_metadata=make("ObjectMeta", labels=_labels(live)),
        workflow_spec=spec,
    )


class _Spec:
    """Builds the specification of a workflow."""

    def __init__(self, live: LivePipeline, target: ArgoTarget) -> None:
        self._found, self._target, self._pipeline = live, target, live.pipeline
        self._artifacts = Artifacts(live.pipeline, target)
        self._templates = Templates(live, target, self._artifacts)
        self._gates = {step.name for step in self._pipeline.steps if step.gate}
        self._taken = {named_step.name for named_step in (*self._pipeline.steps, self._pipeline.on_exit) if named_step}
        self._main, self._approve, self._stop = map(self._free, ("main", "approve", "stop"))

    def make(self) -> Any:
        arguments = self._artifacts.arguments()
        claims = [
            make("PersistentVolumeClaimVolumeSource", claim_name=volume.partition(":")[0])
            for volume in self._target.volumes
        ]
        parameters = [make("Parameter", name=name, value=value) for name, value in self._found.live.items()]
        seccomp = make("SeccompProfile", type="RuntimeDefault")
        return make(
            "WorkflowSpec",
            entrypoint=self._main,
            on_exit=self._pipeline.on_exit.name if self._pipeline.on_exit else None,
            arguments=make("Arguments", parameters=parameters or None, artifacts=arguments or None)
            if parameters or arguments
            else None,
            service_account_name=self._target.service_account or None,
            pod_metadata=make("Metadata", labels=_labels(self._found)),
            security_context=make(
                "PodSecurityContext",
                run_as_non_root=True,
                run_as_user=_USER,
                run_as_group=_USER,
                fs_group=_USER,
                seccomp_profile=seccomp,
            ),
            volumes=[
                make("Volume", name=f"volume-{number}", persistent_volume_claim=claim)
                for number, claim in enumerate(claims)
            ]
            or None,
            archive_logs=None if self._target.bucket else True,
            pod_gc=make("PodGC", strategy="OnPodSuccess"),
            ttl_strategy=make("TTLStrategy", seconds_after_success=_KEPT_S, seconds_after_failure=_KEPT_FAILED_S),
            templates=self._templates_of_steps(),
        )

    def _templates_of_steps(self) -> list[Any]:
        steps = self._pipeline.steps
        artifacts = self._artifacts.parameters()
        tasks = [task for step in steps for task in self._tasks(step)]
        templates = [
            make(
                "Template",
                name=self._main,
                inputs=make("Inputs", artifacts=artifacts) if artifacts else None,
                dag=make("DAGTemplate", tasks=tasks),
            )
        ]
        templates += [self._templates.step(step, self._found.commands[step.name]) for step in steps]
        if any(step.approval for step in steps):
            templates.append(make("Template", name=self._approve, suspend=make("SuspendTemplate")))
        if self._gates:
            templates.append(self._templates.stop(self._stop))
        if step := self._pipeline.on_exit:
            for path in step.inputs:
                if maker := self._pipeline.maker(path):
                    raise PipelineError(
                        f"on_exit takes {path}, which step {maker.name} makes: what runs at the end in Argo gets no artifacts of steps"
                    )
            templates.append(self._templates.step(step, self._found.commands[""], at_exit=True))
        return templates

    def _tasks(self, step: Step) -> list[Any]:
        """The tasks of a step: before it the approval, after a gate what stops the run."""
        needed = self._pipeline.graph()[step.name]
        sources = self._artifacts.sources(step)
        conditions = [
            f"{{{{tasks.{step_name}.outputs.parameters.{PASSES}}}}} == true"
            for step_name in needed
            if step_name in self._gates
        ]
        order = {"depends": _all_of(needed), "when": " && ".join(conditions) or None}
        tasks = []
        if step.approval:
            name = self._free(f"approve-{step.name}")
            tasks.append(make("DAGTask", name=name, template=self._approve, **order))
            order["depends"] = _all_of((*needed, name))
        arguments = make("Arguments", artifacts=sources) if sources else None
        tasks.append(make("DAGTask", name=step.name, template=step.name, arguments=arguments, **order))
        if step.name in self._gates:
            tasks.append(self._stopping(step))
        return tasks

    def _free(self, name: str) -> str:
        """A name that nothing has yet."""
        while name in self._taken:
            name += "-it"
        self._taken.add(name)
        return name

    def _stopping(self, gate: Step) -> Any:
        parameters = [
            make("Parameter", name="gate", value=gate.name),
            make("Parameter", name="condition", value=self._found.commands[gate.name][3]),
        ]
        return make(
            "DAGTask",
            name=self._free(f"{gate.name}-stops"),
            template=self._stop,
            depends=_all_of([gate.name]),
            when=f"{{{{tasks.{gate.name}.outputs.parameters.{PASSES}}}}} == false",
            arguments=make("Arguments", parameters=parameters),
        )


def _all_of(names: Iterable[str]) -> str | None:
    """All of these have come to a good end; one that was left out has not."""
    return " && ".join(f"{name}.Succeeded" for name in names) or None
