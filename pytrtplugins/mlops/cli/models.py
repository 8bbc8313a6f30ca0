"""The commands ``pytrt models ...``: the registry of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from ...cli.app import app
from ...cli.shared.number import number
from ...cli.shared.option import argument, choice, option, typer
from ...cli.shared.results import Result, show
from ...errors import UsageError
from ...utils.atomic import check_target
from ...utils.numbers import IntRange
from ...utils.terminal import COMMAND
from ..registry import Comparison, Lineage, ModelRegistry, Reference, RegistryCheck
from ..registry.card import write_html
from ..registry.comparison import compare
from ..registry.history import Stage
from ..registry.lineage import trace
from . import models_text as text
from .models_facts import Added, Card, Changed, Listed, ListedVersion, Traced

__all__ = ["command"]

_VERSION = IntRange(1, 10**9 - 1)

command: Any = typer.Typer(
    help="Keep engine files with what they were made of, and say which version is served.",
    result_callback=show,
    **COMMAND,
)
app.add_typer(command, name="models")

RegistryOption = Annotated[
    Path | None, option("DIR", "The registry's folder; default: PYTRT_MODEL_REGISTRY, or .pytrt/models.", "--registry")
]
VersionArgument = Annotated[str, argument("NAME[:VERSION]", "A version; without a number, the newest.")]
StageOption = Annotated[Literal["staging", "production"], choice("Stage in which the version is put back.")]
WhyOption = Annotated[str, option("TEXT", "The reason, for the history.", "--why")]
WhoOption = Annotated[str | None, option("NAME", "Who does it; default: this user.", "--who")]


@command.command("add")  # type: ignore[untyped-decorator]
def add(
    engine_file: Annotated[Path, argument("FILE", "Engine file, as `pytrt build` writes it.")],
    name: Annotated[str, option("NAME", "Name of the model.", "--name")],
    version: Annotated[int | None, number(_VERSION, "Version number; default: the next.")] = None,
    network: Annotated[
        Path | None,
        option("FILE", "The network that the engine was built from, such as an ONNX file; its digest is stored."),
    ] = None,
    cache: Annotated[
        Path | None,
        option("FILE", "Calibration cache; it is stored, with the digest of its calibration images."),
    ] = None,
    precision_file: Annotated[Path | None, option("FILE.yaml", "Precision file; it is stored.")] = None,
    figures: Annotated[
        list[Path] | None,
        option(
            "FILE.json",
            "Measured figures, as `pytrt evaluate --json` or `pytrt table --json` prints them; may be repeated.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        option(
            "USE=PATH|SHA256",
            "Data that it was made or measured with, such as evaluation=val/; a digest is stored; may be repeated.",
            "--dataset",
        ),
    ] = None,
    licence: Annotated[str, option("TEXT", "Licence, such as Apache-2.0.")] = "",
    run: Annotated[
        str,
        typer.Option(
            "--pipeline-run",
            metavar="ID",
            envvar="PYTRT_PIPELINE_RUN",
            help="Id of the pipeline run that made it; default: in a step, the present run.",
        ),
    ] = "",
    parent: Annotated[int | None, number(_VERSION, "The version that it followed; default: the newest.")] = None,
    note: Annotated[str, option("TEXT", "Free text, such as what changed.")] = "",
    to: Annotated[
        Literal["staging", "production"] | None, choice("Stage to promote the version to.", "--stage")
    ] = None,
    registry: RegistryOption = None,
) -> Result[Added]:
    """Add an engine file as a version of a model. A version never changes.

    The same file with the same data and figures is not added again, and stays in production if it is there.

    Examples: pytrt models add animals.engine --name animals --licence Apache-2.0

    pytrt models add animals.engine --name animals --cache animals.cache --figures evaluated.json --dataset evaluation=val/ --stage staging
    """
    models = ModelRegistry(registry)
    added = models.add(
        engine_file,
        name=name,
        version=version,
        network=network,
        cache=cache,
        precision_file=precision_file,
        figures=figures or (),
        data=dict(_parse_pair(pair) for pair in data or ()),
        licence=licence,
        run=run,
        parent=parent,
        note=note,
    )
    if to is not None and models.history(name).stage_of(added.version) != "production":  # where a step is run again
        models.promote(name, added.version, to=to)
    return Result(
        Added(added.name, added.version, added.digest, added.bytes, models.history(name).stage_of(added.version)),
        text.print_added,
    )


@command.command("list")  # type: ignore[untyped-decorator]
def list_versions(
    name: Annotated[str | None, argument("[NAME]", "A model; without it, all models.")] = None,
    registry: RegistryOption = None,
) -> Result[Listed]:
    """List the models and their versions, with the stages that they are in.

    Examples: pytrt models list

    pytrt models list animals --json
    """
    models, listed = ModelRegistry(registry), list[ListedVersion]()
    for model in models.names() if name is None else (name,):
        history = models.history(model)
        listed += [ListedVersion(version, history.stage_of(version.version)) for version in models.versions(model)]
    return Result(Listed(tuple(listed)), text.print_listed)


@command.command("show")  # type: ignore[untyped-decorator]
def show_version(
    version: Annotated[str, argument("NAME[:VERSION|@STAGE]", "A version; without a number or a stage, the newest.")],
    html: Annotated[Path | None, option("FILE.html", "Write the same as a page.", "--output", "-o")] = None,
    registry: RegistryOption = None,
) -> Result[Card]:
    """Show what a version is made of, what was measured, and what was done with it.

    Examples: pytrt models show animals@production

    pytrt models show animals:3 -o animals.html
    """
    models = ModelRegistry(registry)
    model_version = models.find(version)
    history = models.history(model_version.name)
    if html is not None:
        write_html(model_version, history, check_target(html, "output", (".html",)))
    return Result(
        Card(
            model_version, history.stage_of(model_version.version), history.changes, None if html is None else str(html)
        ),
        text.print_card,
    )


@command.command("promote")  # type: ignore[untyped-decorator]
def promote(
    version: VersionArgument,
    to: Annotated[Stage, choice("Stage to promote the version to.", "--stage")] = "production",
    why: WhyOption = "",
    who: WhoOption = None,
    registry: RegistryOption = None,
) -> Result[Changed]:
    """Put a version into a stage, in the place of the one that is there. Servers that follow the stage take it up.

    Examples: pytrt models promote animals:3 --stage staging

    pytrt models promote animals:3 --why "0.6 points more than version 2"
    """
    models, reference = ModelRegistry(registry), _parse_version(version)
    change = models.promote(reference.name, reference.version, to=to, why=why, who=who)
    return Result(Changed(reference.name, change), text.print_changed)


@command.command("rollback")  # type: ignore[untyped-decorator]
def rollback(
    name: Annotated[str, argument("NAME", "The model.")],
    stage: StageOption = "production",
    why: WhyOption = "",
    who: WhoOption = None,
    registry: RegistryOption = None,
) -> Result[Changed]:
    """Put the version back that was in a stage before the present one.

    Example: pytrt models rollback animals --why "it misses cows"
    """
    return Result(
        Changed(name, ModelRegistry(registry).rollback(name, stage=stage, why=why, who=who)), text.print_changed
    )


@command.command("diff")  # type: ignore[untyped-decorator]
def diff(
    a: Annotated[str, argument("A", "A version: NAME:VERSION or NAME@STAGE.")],
    b: Annotated[str, argument("B", "Another.")],
    registry: RegistryOption = None,
) -> Result[Comparison]:
    """Show what differs between two versions: network, data, calibration, figures, sizes.

    Example: pytrt models diff animals@production animals@staging
    """
    models = ModelRegistry(registry)
    return Result(compare(models, models.find(a), models.find(b)), text.print_comparison)


@command.command("lineage")  # type: ignore[untyped-decorator]
def lineage(
    subject: Annotated[
        str,
        argument(
            "DIGEST|NAME:VERSION",
            "A version; or the digest, or its first 8 digits, of an engine file, a network or data.",
        ),
    ],
    registry: RegistryOption = None,
) -> Result[Traced]:
    """Show where a version comes from: engine, network, calibration, data, run, and the versions before it.

    The answers of `pytrt serve` carry the digest of the engine that gave them.

    Examples: pytrt models lineage animals:3

    pytrt models lineage 1f9a02c4
    """
    traced: tuple[Lineage, ...] = trace(ModelRegistry(registry), subject)
    return Result(Traced(traced), text.print_traced)


@command.command("remove")  # type: ignore[untyped-decorator]
def remove(
    version: Annotated[str, argument("NAME:VERSION", "A version that is in no stage.")],
    why: WhyOption = "",
    who: WhoOption = None,
    registry: RegistryOption = None,
) -> Result[Changed]:
    """Remove a version, and those of its files that no other version has. Its number is never given again.

    Example: pytrt models remove animals:1
    """
    reference = _parse_version(version)
    if reference.version is None:
        raise UsageError(f"{version}: name the version, such as {reference.name}:1")
    return Result(
        Changed(reference.name, ModelRegistry(registry).remove(reference.name, reference.version, why=why, who=who)),
        text.print_changed,
    )


@command.command("check")  # type: ignore[untyped-decorator]
def check(
    repair: Annotated[
        bool, choice("Repair: remove leftovers of killed processes; nothing else is changed.", "--repair")
    ] = False,
    registry: RegistryOption = None,
) -> Result[RegistryCheck]:
    """Compare every file in the registry with its digest, and look for what is missing or left over; exit code 1 if a version is not whole.

    Examples: pytrt models check

    pytrt models check --repair
    """
    report = ModelRegistry(registry).check(repair)
    return Result(report, text.print_checked, report.whole, f"{report.folder}: {len(report.problems)} problems")


def _parse_pair(word: str) -> tuple[str, str]:
    use, equals, value = word.partition("=")
    if not (equals and use and value):
        raise UsageError(f"--dataset {word[:80]}: expected USE=PATH or USE=SHA256, such as evaluation=val/")
    return use, value


def _parse_version(word: str) -> Reference:
    reference = Reference.parse(word)
    if reference.stage is not None:
        raise UsageError(f"{word}: name the version by its number, such as {reference.name}:3")
    return reference
