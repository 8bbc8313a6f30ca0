"""The command ``pytrt serve``."""

from __future__ import annotations

from typing import Annotated, Any

from ...errors import UsageError
from ...serving.config import choose_models, read_scale
from ...serving.run import check, serve
from ...serving.scale import read_replicas
from ...utils.toml_file import TomlFile
from ..app import app
from ..shared import options
from ..shared.groups import grouped
from ..shared.option import argument, choice, typer
from ..shared.results import Result
from .serve_facts import Checked, CheckedModel, Served, ServedModel
from .serve_options import ClientOptions, ModelOptions, ServerOptions

__all__ = ["command"]

_NOT_ON_RAY = (
    *("local", "cpu", "grpc_port", "tls_cert", "shared_memory"),
    *("keys", "allow_control", "cors", "access_log", "trace_endpoint"),
)


@app.command("serve")  # type: ignore[untyped-decorator]
@grouped
def command(
    context: typer.Context,  # type: ignore[name-defined]
    server: ServerOptions,
    model: ModelOptions,
    clients: ClientOptions,
    models: Annotated[
        list[str] | None,
        argument(
            "MODEL",
            "A saved engine, an ONNX model, module:Class (a pytrtplugins.serving.Model), or registry:NAME@STAGE (`pytrt models`); "
            "NAME=MODEL names it. Default: the models in the file of --config.",
        ),
    ] = None,
    plugins: options.Plugins = None,
    check_only: Annotated[
        bool, choice("Check the models and the settings, and exit without serving.", "--check")
    ] = False,
) -> Result[Served] | Result[Checked]:
    """Serve models over HTTP: images to a detector, tensors to any engine (Open Inference Protocol v2).

    A detector answers `curl -F image=@dog.jpg localhost:8000/v1/detect` with boxes as JSON, and ?format=image with the image. Clients of
    the protocol, such as tritonclient, find each model by its name. localhost:8000/docs lists all addresses. Requests that wait are
    computed together. Only this machine can connect, unless --host says otherwise. With --cpu, decoding and computing have processes of
    their own, and one that dies is replaced without a lost request. Ctrl-C or SIGTERM ends the server, once what was accepted is answered.

    Examples: pytrt serve animals.engine

    pytrt serve module:Animals --cpu 12 --gpu 4 --max-batch 32 --max-delay 2ms

    pytrt serve day=animals.engine night=dark.onnx --port 8080

    pytrt serve registry:animals@production

    pytrt serve --config serving.toml

    pytrt serve animals.engine --ray auto --replicas 1:8 --host 0.0.0.0

    pytrt serve-export k8s --config serving.toml -o deploy/
    """
    file: TomlFile | None = context.obj
    limits, access, modules = clients.limits(file), clients.access(), plugins or ()
    specs = choose_models(models, file, model.defaults(), "pytrt serve animals.engine, or --config serving.toml")
    scale = read_scale(file, {} if server.replicas is None else read_replicas(server.replicas))
    if server.ray is not None:
        _refuse_with_ray({**vars(server), **vars(clients)})
    elif server.replicas is not None:
        raise UsageError(
            "--replicas is for a cluster.\nDo: --ray auto, or --gpu N for engine processes on this machine"
        )
    if server.local and server.cpu:
        raise UsageError(f"--local runs one process, but --cpu asks for {server.cpu}: leave one of them out")
    if check_only:
        check(specs, server.gpu, server.devices, access)
        checked = [CheckedModel(entry.name, entry.version, entry.target, entry.share, entry.shadow) for entry in specs]
        return Result(Checked(tuple(checked)), _print_checked)
    where: dict[str, Any] = {"host": server.host, "port": server.port, "limits": limits, "modules": modules}
    if server.ray is not None:
        from ...serving.ray import serve_on_ray  # here: with it comes all that a server imports

        serve_on_ray(specs, server.ray, scale=scale, **where)
        return Result(Served(()), _print_served)
    counts = serve(
        specs,
        **where,
        grpc_port=server.grpc_port,
        cpu=0 if server.local else server.cpu,
        engines=server.gpu,
        devices=server.devices,
        access=access,
    )
    models_served = tuple(
        ServedModel(name, version, **{key: entry[key] for key in ("succeeded", "failed", "refused", "late", "batches")})
        for name, versions in counts.items()
        for version, entry in versions.items()
    )
    return Result(Served(models_served), _print_served)


def _refuse_with_ray(values: dict[str, Any]) -> None:
    """Refuse options that a replica on Ray cannot follow."""
    for name in _NOT_ON_RAY:
        if values[name]:
            raise UsageError(
                f"--{name.replace('_', '-')} is for a server without Ray, and does nothing with --ray: leave one of them out"
            )


def _print_checked(checked: Checked) -> None:
    for entry in checked.models:
        role = ", a shadow" if entry.shadow else f", for {100 * entry.share:g} % of the requests" if entry.share else ""
        print(f"{entry.name}, version {entry.version}: {entry.target}{role}")


def _print_served(served: Served) -> None:
    names = [entry.name for entry in served.models]
    for entry in served.models:
        version = f", version {entry.version}" if names.count(entry.name) > 1 else ""
        print(
            f"{entry.name}{version}: {entry.succeeded:,} requests answered in {entry.batches:,} batches; {entry.failed:,} failed, "
            f"{entry.refused:,} refused, {entry.late:,} late"
        )
