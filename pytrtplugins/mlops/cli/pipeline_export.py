"""The command ``pytrt pipeline export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ...cli.shared import option_values
from ...cli.shared.option import argument, choice, option, typer
from ...cli.shared.results import Result
from ...errors import UsageError
from ...utils.atomic import check_target, write_atomic
from ...utils.listing import count_text
from ..pipeline.argo import ArgoTarget, argo_yaml, load_live
from .pipeline import Source, Values, command

__all__ = ["ExportedPipeline"]


@dataclass(frozen=True)
class ExportedPipeline:
    """The exported file.

    Attributes:
        file: Its path.
        kind: What is in it.
        steps: How many steps the pipeline has.
        parameters: Parameters that the cluster can still change, with their values.
        fixed: Parameters that are in the file as they were given.
    """

    file: str
    kind: str
    steps: int
    parameters: dict[str, str]
    fixed: tuple[str, ...]


@command.command("export")  # type: ignore[untyped-decorator]
def export(
    system: Annotated[Literal["argo"], argument("SYSTEM", "argo: Argo Workflows.")],
    source: Source,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.yaml", help="Write to this file.", show_default=False)
    ] = None,
    image: Annotated[
        str, typer.Option("--image", metavar="IMAGE", help="Container image of the steps.", show_default=False)
    ] = "",
    kind: Annotated[
        Literal["workflow", "template", "cron", "event", "data"],
        choice(
            "workflow: run once; template: WorkflowTemplate; cron: CronWorkflow; event, data: started by an event, or by new "
            "data in the bucket."
        ),
    ] = "workflow",
    values: Values = None,
    artifacts: Annotated[Literal["s3", "gcs", "oss"], choice("Store of the files between steps.")] = "s3",
    bucket: Annotated[str, option("NAME", "Bucket of the store; default: the cluster's artifact repository.")] = "",
    endpoint: Annotated[str, option("HOST", "Endpoint of the store, if it is not AWS.")] = "",
    insecure: Annotated[bool, choice("Access the store without TLS.", "--insecure")] = False,
    prefix: Annotated[str, option("PATH", "Folder in the bucket; default: the pipeline's name.")] = "",
    bucket_secret: Annotated[
        str, option("NAME", "Secret with the bucket's keys; default: the service account's.")
    ] = "",
    secret: Annotated[str, option("NAME", "Secret with the values of the steps' secrets; default: NAME-secrets.")] = "",
    service_account: Annotated[str, option("NAME", "Service account of the pods.")] = "",
    namespace: Annotated[str, option("NAME", "Namespace; default: the one it is submitted to.")] = "",
    folder: Annotated[str, option("PATH", "Path of the pipeline's folder in the image.", "--workdir")] = "/work",
    in_image: Annotated[
        list[str] | None,
        option(
            "PATH",
            "A file or folder that is already in the image, so it is no artifact; Python files are by default. May be repeated.",
        ),
    ] = None,
    volume: Annotated[
        list[str] | None, option("CLAIM:/PATH", "A persistent volume claim for all steps, such as for a registry.")
    ] = None,
    timezone: Annotated[str, option("NAME", "Time zone of the schedule, such as Europe/Berlin.")] = "",
    concurrency: Annotated[
        Literal["Allow", "Forbid", "Replace"], choice("What the schedule does if the previous run has not ended.")
    ] = "Forbid",
) -> Result[ExportedPipeline]:
    """Write a pipeline as YAML for Argo Workflows: a DAG of containers, with files between steps in a bucket.

    Each step becomes a task with its retries, time limit, resources and secrets (names only). A gate becomes a condition of the tasks
    behind it, an approval a node that waits. Parameters that only go into commands stay parameters; others are fixed as
    --parameter gives them.

    Examples: pytrt pipeline export argo pipeline.yaml -o workflow.yaml --image registry.example.com/animals:1 --bucket models

    pytrt pipeline export argo pipeline.yaml -o nightly.yaml --image registry.example.com/animals:1 --kind cron --timezone Europe/Berlin
    """
    if output is None or not image:
        raise UsageError(
            f"{'--output' if output is None else '--image'} is missing.\n"
            f"Do: pytrt pipeline export {system} {source} -o workflow.yaml --image registry.example.com/NAME:1"
        )
    target = ArgoTarget(
        image,
        kind=kind,
        store=artifacts,
        bucket=bucket,
        endpoint=endpoint,
        insecure=insecure,
        prefix=prefix,
        store_secret=bucket_secret,
        secret=secret,
        service_account=service_account,
        namespace=namespace,
        folder=folder,
        in_image=tuple(in_image or ()),
        volumes=tuple(volume or ()),
        timezone=timezone,
        concurrency=concurrency,
    )
    check_target(output, "output", (".yaml", ".yml"))
    live_pipeline = load_live(source, option_values.read_pairs(values, "--parameter", "NAME=VALUE"))
    write_atomic(output, argo_yaml(live_pipeline, target, str(output)).encode())
    fixed = tuple(name for name in live_pipeline.pipeline.parameters if name not in live_pipeline.live)
    return Result(
        ExportedPipeline(str(output), kind, len(live_pipeline.pipeline.steps), dict(live_pipeline.live), fixed), _print
    )


def _print(exported: ExportedPipeline) -> None:
    print(f"{exported.file}: {exported.kind}, {count_text(exported.steps, 'step')}")
    if exported.parameters:
        print(f"parameters: {', '.join(f'{name}={value}' for name, value in exported.parameters.items())}")
    if exported.fixed:
        print(f"fixed: {', '.join(exported.fixed)}")
