"""Write a pipeline as Argo's YAML, with a comment on what the cluster needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from ....utils.text_formats import yaml_text
from .artifacts import Artifacts
from .live import LivePipeline
from .target import ArgoTarget
from .workflow import make_resources

__all__ = ["argo_yaml"]

_WIDTH = 4096  # texts stay on their lines: Argo's places, too
_COPIES = {
    "s3": ("aws s3 cp", "aws s3 sync", "s3"),
    "gcs": ("gcloud storage cp", "gcloud storage rsync -r", "gs"),
    "oss": ("ossutil cp", "ossutil sync", "oss"),
}
"""What copies a file, what copies a folder, and how a bucket's address begins."""
_START = {
    "workflow": "argo submit {file}",
    "template": "kubectl apply -f {file} && argo submit --from workflowtemplate/{name}",
    "cron": "kubectl apply -f {file}",
    "data": "kubectl apply -f {file}; then each file _SUCCESS that arrives beside the files above starts a run",
    "event": "kubectl apply -f {file}; then each POST to /api/v1/events/NAMESPACE/{name} of Argo's server starts a run",
}


def argo_yaml(live: LivePipeline, target: ArgoTarget, file: str = "workflow.yaml") -> str:
    """A pipeline as YAML for Argo Workflows.

    Args:
        live: The pipeline, of `load_live`.
        target: The cluster.
        file: What the file will be called, for the comment at its beginning.

    Raises:
        PipelineError: something in the pipeline cannot be had in Argo.
        UsageError: a CronWorkflow is wanted, and the pipeline has no schedule.
        MissingExtraError: hera or PyYAML is missing.
    """
    resources = make_resources(live, target)
    about = "\n".join(_about(live, target, file))
    return yaml_text(*resources, about=about, width=_WIDTH)


def _about(live: LivePipeline, target: ArgoTarget, file: str) -> Iterator[str]:
    pipeline = live.pipeline
    yield f"Pipeline {pipeline.name} for Argo Workflows; made by pytrt pipeline export."
    yield f"Image: {target.image}, whose working directory {target.folder} has the pipeline's own code."
    steps = [*pipeline.steps, *([pipeline.on_exit] if pipeline.on_exit else [])]
    if secrets := _words(name for step in steps for name in step.secrets):
        name = target.secret or f"{pipeline.name}-secrets"
        yield f"Secrets: kubectl create secret generic {name} {' '.join(f'--from-literal={variable}=...' for variable in secrets)}"
    if variables := _words(name for step in steps for name in step.environment):
        name = f"{pipeline.name}-environment"
        yield f"Variables: kubectl create configmap {name} {' '.join(f'--from-literal={variable}=...' for variable in variables)}"
    artifacts = Artifacts(pipeline, target)
    for path in artifacts.given:
        one, several, scheme = _COPIES[target.store]
        place = pipeline.folder / path
        copy = several if place.is_dir() or not (place.exists() or place.suffix) else one
        yield f"Files: {copy} {shlex.quote(path)} {scheme}://{target.bucket or 'BUCKET'}/{artifacts.given_key(path)}"
    yield f"Do: {_START[target.kind].format(file=file, name=pipeline.name)}"


def _words(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
