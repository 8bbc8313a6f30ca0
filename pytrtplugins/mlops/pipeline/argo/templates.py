"""Convert steps of a pipeline to Argo's templates."""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ....errors import PipelineError
from ..step import Step
from .artifacts import Artifacts
from .live import LivePipeline
from .resource import make
from .target import ArgoTarget

__all__ = ["PASSES", "Templates"]

PASSES = "passes"
"""The output parameter that says whether a gate holds: true or false."""
_PASSES_FILE = "/tmp/passes"
_GPU = "nvidia.com/gpu"
_STATE = "PYTRT_PIPELINE_STATE"
_ENDED = "{{=workflow.status == 'Succeeded' ? 'done' : 'failed'}}"
_MEMOIZED_FOR = "8760h"


class Templates:
    """Makes the template of each step."""

    def __init__(self, live: LivePipeline, target: ArgoTarget, artifacts: Artifacts) -> None:
        self._found, self._target, self._artifacts = live, target, artifacts
        self._pipeline = live.pipeline
        self._keys = self._memoized() if target.pinned else {}

    def step(self, step: Step, words: tuple[str, ...], *, at_exit: bool = False) -> Any:
        """The template of a step, whose command has these words."""
        inputs, outputs = self._artifacts.inputs(step), self._artifacts.outputs(step)
        passes = [make("Parameter", name=PASSES, value_from=make("ValueFrom", path=_PASSES_FILE))]
        limit = step.time_limit
        tolerated = make("Toleration", key=_GPU, operator="Exists", effect="NoSchedule")
        return make(
            "Template",
            name=step.name,
            metadata=make("Metadata", labels={"app.kubernetes.io/component": step.family}),
            inputs=make("Inputs", artifacts=inputs) if inputs else None,
            outputs=make("Outputs", artifacts=outputs or None, parameters=passes if step.gate else None)
            if outputs
            else None,
            retry_strategy=_retry(step),
            active_deadline_seconds=make("IntOrString", root=str(math.ceil(limit))) if limit else None,
            memoize=self._memoize(step),
            archive_location=self._artifacts.logs(),
            tolerations=[tolerated] if step.resources.gpu else None,
            container=self._container(step, words, at_exit),
        )

    def stop(self, name: str) -> Any:
        """The template that ends a run at a gate that does not hold."""
        script = 'echo "Gate $0 stops the pipeline: $1. Its log has the figures." >&2; exit 1'
        return make(
            "Template",
            name=name,
            inputs=make(
                "Inputs", parameters=[make("Parameter", name=parameter) for parameter in ("gate", "condition")]
            ),
            archive_location=self._artifacts.logs(),
            container=make(
                "Container",
                **self._image(),
                command=["sh", "-c"],
                args=[script, "{{inputs.parameters.gate}}", "{{inputs.parameters.condition}}"],
                resources=make(
                    "ResourceRequirements", requests={"cpu": "50m", "memory": "32Mi"}, limits={"memory": "64Mi"}
                ),
            ),
        )

    def _container(self, step: Step, words: tuple[str, ...], at_exit: bool) -> Any:
        command, args = _command(step, words, self._artifacts.links(step))
        return make(
            "Container",
            **self._image(),
            command=command,
            args=args or None,
            working_dir=self._target.folder,
            volume_mounts=[
                make("VolumeMount", name=f"volume-{number}", mount_path=volume.partition(":")[2])
                for number, volume in enumerate(self._target.volumes)
            ]
            or None,
            env=self._environment(step, at_exit) or None,
            resources=_resources(step),
        )

    def _image(self) -> dict[str, Any]:
        """Settings that all containers share; the user is the workflow's."""
        allowed = make(
            "SecurityContext", allow_privilege_escalation=False, capabilities=make("Capabilities", drop=["ALL"])
        )
        return {"image": self._target.image, "image_pull_policy": "IfNotPresent", "security_context": allowed}

    def _environment(self, step: Step, at_exit: bool) -> list[Any]:
        """Variables: secrets of a Secret, others of a ConfigMap. No value of this machine's environment is written."""
        secret = self._target.secret or f"{self._pipeline.name}-secrets"
        config = f"{self._pipeline.name}-environment"
        variables = [
            (name, make("EnvVarSource", secret_key_ref=make("SecretKeySelector", name=secret, key=name)))
            for name in step.secrets
        ] + [
            (name, make("EnvVarSource", config_map_key_ref=make("ConfigMapKeySelector", name=config, key=name)))
            for name in step.environment
        ]
        state = [make("EnvVar", name=_STATE, value=_ENDED)] if at_exit else []
        return [*state, *(make("EnvVar", name=name, value_from=source) for name, source in variables)]

    # --- what a cluster remembers --------------------------------------------------------------------------------------

    def _memoized(self) -> dict[str, str]:
        """A memoization key for each step whose outputs depend only on its command, the image and other such steps.

        Of what is in the bucket, and of variables, a key would not tell that it has changed.
        """
        keys: dict[str, str] = {}
        graph = self._pipeline.graph()
        for step in self._pipeline.steps:
            words = self._found.commands[step.name]
            own = step.restorable and not (step.environment or step.secrets or any("{{" in word for word in words))
            has_given_input = any(path in self._artifacts.given for path in step.inputs)
            if own and not has_given_input and all(predecessor in keys for predecessor in graph[step.name]):
                facts = [
                    self._target.image,
                    words,
                    step.stdout,
                    step.outputs,
                    [keys[predecessor] for predecessor in graph[step.name]],
                ]
                keys[step.name] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return keys

    def _memoize(self, step: Step) -> Any:
        if step.name not in self._keys or step == self._pipeline.on_exit:
            return None
        cache = make("Cache", config_map=make("LocalObjectReference", name=f"{self._pipeline.name}-cache"))
        return make("Memoize", key=self._keys[step.name], max_age=_MEMOIZED_FOR, cache=cache)


def _retry(step: Step) -> Any:
    if not step.retry.limit:
        return None
    wait = step.retry.backoff
    backoff = make("Backoff", duration=f"{wait:g}s", factor=make("IntOrString", root="2")) if wait else None
    limit = make("IntOrString", root=str(step.retry.limit))
    return make("RetryStrategy", limit=limit, retry_policy="Always", backoff=backoff)


def _resources(step: Step) -> Any:
    """Requests and limits: cores are requested but not limited, so that idle ones can be used; memory and GPUs are limited too."""
    needed = step.resources
    limited = {"memory": _memory(needed.memory)} if needed.memory is not None else {}
    limited |= {_GPU: str(needed.gpu)} if needed.gpu else {}
    requests = ({"cpu": f"{max(1, round(1000 * needed.cpu))}m"} if needed.cpu is not None else {}) | limited
    return make("ResourceRequirements", requests=requests, limits=limited or None) if requests else None


def _memory(size: int) -> str:
    """Bytes as Kubernetes writes them: ``4Gi``."""
    for power, unit in ((30, "Gi"), (20, "Mi"), (10, "Ki")):
        if not size % (1 << power):
            return f"{size >> power}{unit}"
    return str(size)


def _command(step: Step, words: tuple[str, ...], links: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The program of a container and its words: as they are, or in a shell that links inputs, and makes folders for outputs."""
    for word in words:
        if "{{" in word.replace("{{workflow.parameters.", ""):
            raise PipelineError(
                f"step {step.name}: {word[:80]!r}: Argo takes '{{{{' for the start of a template variable.\nDo: write it otherwise"
            )
    folders = sorted({str(PurePosixPath(path).parent) for path in (*links, *step.outputs)} - {"."})
    script = [f"mkdir -p {shlex.join(folders)}"] if folders else []
    script += [f"rm -rf {shlex.quote(path)}; ln -s {mount} {shlex.quote(path)}" for path, mount in links.items()]
    if step.gate:
        words = (*words, "--passes", _PASSES_FILE)
    if not script and not step.stdout:
        return [words[0]], list(words[1:])
    printed = f" > {shlex.quote(step.stdout)}" if step.stdout else ""
    return ["sh", "-ec"], ["\n".join([*script, f'exec "$0" "$@"{printed}']), *words]
