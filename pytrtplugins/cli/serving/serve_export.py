"""The command ``pytrt serve-export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import UsageError
from ...serving.config import choose_models, read_limits, read_scale
from ...serving.model.spec import Limits, ModelSpec
from ...serving.scale import Scale, read_replicas
from ...utils.declared import field_limits
from ...utils.toml_file import TomlFile
from ..app import app
from ..shared.config import read_config
from ..shared.number import number
from ..shared.option import argument, choice, option, typer
from ..shared.results import Result
from .serve_options import milliseconds

__all__ = ["Exported", "command"]

_OF_MODELS = {"engine", "max-batch", "max-delay", "queue", "decode"}
_CARRIED = {"allow-urls", "body-limit", "cpu", "gpu"}
_REPLACED = {"host", "port"}


@dataclass(frozen=True)
class Exported:
    """The files that were written.

    Attributes:
        kind: What for.
        files: In the order of their names.
    """

    kind: str
    files: tuple[str, ...]


@app.command("serve-export")  # type: ignore[untyped-decorator]
def command(
    context: typer.Context,  # type: ignore[name-defined]
    kind: Annotated[
        Literal["ray", "kserve", "triton", "k8s", "compose"], argument("KIND", "ray, kserve, triton, k8s or compose.")
    ],
    models: Annotated[
        list[str] | None, argument("MODEL", "As for pytrt serve; default: the models in the file of --config.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write the files into this folder.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, option("NAME", "Name of the objects in a cluster; default: that of the first model.", "--name")
    ] = None,
    image: Annotated[
        str,
        typer.Option(
            "--image", metavar="IMAGE", help="Container image: its name; default: NAME:1.", show_default=False
        ),
    ] = "",
    replicas: Annotated[
        str | None, option("N[:MOST]", "Replicas: 2, or 1:8 for a number that follows the load.")
    ] = None,
    cpus: Annotated[float | None, number(field_limits(Scale, "cpus"), "Cores of a replica; default: 2.")] = None,
    gpus: Annotated[
        float | None, number(field_limits(Scale, "gpus"), "GPUs of a replica; on Ray also a part, such as 0.5.")
    ] = None,
    file: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "A file that the models open; it is copied to the image's working directory; may be repeated.",
            "--file",
        ),
    ] = None,
    wheel: Annotated[Path | None, option("FILE", "Wheel of pytrtplugins for the image; default: pip gets it.")] = None,
    secret: Annotated[
        str | None, option("NAME", "Secret with keys.toml, the keys of clients (pytrt serve-key).")
    ] = None,
    force: Annotated[bool, choice("Replace existing files.", "--force")] = False,
) -> Result[Exported]:
    """Write what a cluster needs to serve models: for Ray Serve, KServe, Kubernetes, Docker Compose or Triton.

    The files are written all or none. compose, k8s and kserve get a Dockerfile too, with the models and serving.toml beside it.

    Examples: pytrt serve-export compose animals.engine -o deploy/

    pytrt serve-export k8s --config serving.toml --image registry.example.com/animals:1 --replicas 2:8 --gpus 1 -o deploy/

    pytrt serve-export ray --config serving.toml --replicas 1:8 --gpus 0.5 -o deploy/
    """
    from ...serving.export import Deployment, export  # here: with it comes all that a server imports

    if output is None:
        raise UsageError("--output is missing.\nDo: pytrt serve-export ... -o deploy/")
    config: TomlFile | None = context.obj
    file_options = _read_serve_table(context, config)
    every = {
        "engine": file_options.get("engine", "auto"),
        "max_batch": file_options.get("max-batch"),
        "max_delay_ms": milliseconds(file_options.get("max-delay", "2ms")),
        "queue": file_options.get("queue", ModelSpec.queue),
        "decode": file_options.get("decode", ModelSpec.decode),
        "registry": str(file_options.get("registry", "")),
    }
    specs = choose_models(models, config, every, "pytrt serve-export KIND animals.engine -o DIR")
    limit_values: dict[str, Any] = {
        "body_bytes": file_options.get("body-limit", Limits.body_bytes >> 20) << 20,
        "shared_memory_regions": 0,
        "urls": tuple(file_options.get("allow-urls", ())),
    }
    scale: dict[str, Any] = {key: value for key, value in (("cpus", cpus), ("gpus", gpus)) if value is not None}
    deployment = Deployment(
        name or specs[0].name.lower().replace("_", "-").replace(".", "-"),
        specs,
        scale=read_scale(config, {**scale, **(read_replicas(replicas) if replicas else {})}),
        limits=Limits(**limit_values) if config is None else read_limits(config, limit_values),
        image=image,
        port=file_options.get("port", 8000),
        options={key: file_options[key] for key in sorted(_CARRIED & set(file_options))},
        files=file or (),
        wheel=wheel,
        secret=secret,
    )
    written = export(kind, deployment, output, force=force)
    return Result(Exported(kind, tuple(map(str, written))), _print_exported)


def _read_serve_table(context: Any, config: TomlFile | None) -> dict[str, Any]:
    """Read the options in the file's table ``[serve]``."""
    if config is None:
        return {}
    defaults = read_config(config, context.find_root().command).defaults
    file_options = {default.option: default.value for default in defaults if default.command == "serve"}
    if "grpc-port" in file_options:
        raise UsageError(
            f"{config.path}: [serve] grpc-port is not exported: the image has no gRPC, and the services have a port for HTTP alone.\n"
            "Do: leave it out of this file, and give pytrt serve --grpc-port where you start it yourself"
        )
    if other := sorted(set(file_options) - _OF_MODELS - _CARRIED - _REPLACED):
        raise UsageError(
            f"{config.path}: [serve] {other[0]} depends on the machine, and is not exported.\n"
            "Do: leave it out of this file, and write it into the file serving.toml that is exported"
        )
    return file_options


def _print_exported(exported: Exported) -> None:
    for file in exported.files:
        print(f"{file}: {Path(file).stat().st_size:,} bytes")
    print(f"Do: {_NEXT[exported.kind]}")


_NEXT = {
    "ray": "set the variables in ray.env on each node before ray start; then serve deploy serve.yaml",
    "kserve": "docker build, docker push; then kubectl apply -f kserve/",
    "k8s": "docker build, docker push; then kubectl apply -f kubernetes/",
    "compose": "docker compose up --build --detach --wait",
    "triton": "tritonserver --model-repository=DIR",
}
