"""The command ``pytrt serve``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import UsageError
from ...serving.access.access import Access
from ...serving.config import choose_models, read_limits, read_scale
from ...serving.model.spec import MOST_PROCESSES, Limits, ModelSpec
from ...serving.run import check, serve
from ...serving.scale import read_replicas
from ...utils.declared import field_limits
from ...utils.numbers import Whole
from ...utils.optional import require
from ...utils.toml_file import TomlFile
from ..app import app
from ..shared import options
from ..shared.number import number
from ..shared.results import Result
from .serve_facts import Checked, CheckedModel, Served, ServedModel

typer = require("typer", extra="cli", feature="the command pytrt")

__all__ = ["command", "milliseconds"]

_SHARED_REGIONS = 256
_MAX_MIB = 1 << 12
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(us|ms|s)")
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LONGEST_MS = 10_000


def _read_delay(text: str) -> str:
    found = _DURATION.fullmatch(text)
    if found is None or milliseconds(text) > _LONGEST_MS:
        raise UsageError(f"--max-delay: expected a time of at most 10s, such as 500us, 2ms or 1s, found {text[:40]!r}")
    return text


def milliseconds(text: str) -> float:
    """The milliseconds in ``2ms``, which was checked."""
    found = _DURATION.fullmatch(text)
    assert found is not None
    return float(found[1]) * _MILLISECONDS[found[2]]


@app.command("serve")  # type: ignore[untyped-decorator]
def command(
    context: typer.Context,  # type: ignore[name-defined]
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="A saved engine, an ONNX model, module:Class (a pytrtplugins.serving.Model), or registry:NAME@STAGE (`pytrt models`); "
            "NAME=MODEL names it. "
            "Default: the models in the file of --config.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; 0.0.0.0 means all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, number(Whole(0, 65535), help="Port for HTTP; 0 means any free port.")] = 8000,
    grpc_port: Annotated[
        int | None, number(Whole(1, 65535), help="Port for gRPC (Open Inference Protocol) as well, such as 8001.")
    ] = None,
    cpu: Annotated[
        int | None,
        number(
            Whole(0, MOST_PROCESSES),
            help="Processes that speak HTTP and decode; 0: everything in one process; default: half of the cores, on two cores 0.",
        ),
    ] = None,
    gpu: Annotated[
        int | None,
        number(
            Whole(0, MOST_PROCESSES),
            help="Processes that have the models and compute, on a GPU or not; default: one for each device. "
            "0: none, each of the --cpu processes has the models itself, for small models on a CPU.",
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", help="GPUs over which these processes are spread, such as 0,1; default: the first."
        ),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Everything in one process, for breakpoints: --cpu 0.")
    ] = False,
    max_batch: Annotated[
        int | None,
        number(
            field_limits(ModelSpec, "max_batch"),
            help="Largest number of rows in a run; default: as the model says, or else 32.",
        ),
    ] = None,
    max_delay: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            callback=_read_delay,
            help="How long an incomplete batch may wait while another is computed.",
        ),
    ] = "2ms",
    queue: Annotated[
        int,
        number(
            field_limits(ModelSpec, "queue"),
            help="Number of requests per model that may wait; further ones get status 503.",
        ),
    ] = 256,
    body_limit: Annotated[
        int, number(Whole(1, _MAX_MIB), metavar="MIB", help="Largest body of a request.")
    ] = Limits.body_bytes >> 20,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate of the server (PEM): HTTPS, and gRPC with TLS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Private key of that certificate (PEM).")] = None,
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Authorities (PEM); clients must show a certificate that one of them signed."
        ),
    ] = None,
    shared_memory: Annotated[
        bool,
        typer.Option(
            "--shared-memory",
            help="Let clients on this machine pass tensors through /dev/shm: they may then name any object there.",
        ),
    ] = False,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keys of clients, as `pytrt serve-key` writes them; others are refused."),
    ] = None,
    allow_control: Annotated[
        bool,
        typer.Option("--allow-control", help="Let clients of other machines load and unload models without a key."),
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="Let pages of this origin use the server, such as https://example.org; may be repeated.",
        ),
    ] = None,
    decode: Annotated[
        Literal["auto", "cpu", "gpu"],
        typer.Option(
            metavar="WHERE",
            help="Who decodes JPEG files for a detector: cpu; gpu (engine cuda); auto: the GPU too, while the CPU threads are busy.",
        ),
    ] = "auto",
    access_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a line for each request to this file; - means standard error."),
    ] = None,
    access_log_form: Annotated[
        Literal["json", "plain"], typer.Option(help="Form of these lines: JSON, or for people.")
    ] = "json",
    trace_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Send traces to this collector of OpenTelemetry, such as http://localhost:4318; default: as OTEL_... variables say.",
        ),
    ] = None,
    allow_urls: Annotated[
        list[str] | None,
        typer.Option(
            metavar="https|ORIGIN",
            help="Let clients name images by URLs: https at public addresses, or an ORIGIN such as http://camera.lan:80; may be repeated.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Serve on a Ray cluster: local (a new one on this machine), auto (the one this machine is in), or HOST:PORT.",
        ),
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(metavar="N[:MOST]", help="Replicas on Ray: 2, or 1:8 for a number that follows the load."),
    ] = None,
    engine: options.Engine = "auto",
    plugins: options.Plugins = None,
    registry: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The registry's folder, for registry:NAME@STAGE; default: PYTRT_MODEL_REGISTRY, or .pytrt/models.",
        ),
    ] = None,
    check_only: Annotated[
        bool, typer.Option("--check", help="Check the models and the settings, and end without serving.")
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
    every: dict[str, Any] = {
        "engine": engine,
        "max_batch": max_batch,
        "max_delay_ms": milliseconds(max_delay),
        "queue": queue,
        "decode": decode,
        "registry": "" if registry is None else str(registry),
    }
    given: dict[str, Any] = {
        "body_bytes": body_limit << 20,
        "shared_memory_regions": _SHARED_REGIONS if shared_memory else 0,
        "urls": tuple(allow_urls or ()),
    }
    limits = Limits(**given) if file is None else read_limits(file, given)
    specs = choose_models(models, file, every, "pytrt serve animals.engine, or --config serving.toml")
    scale = read_scale(file, {} if replicas is None else read_replicas(replicas))
    if ray is not None:
        _refuse_with_ray(
            {
                "local": local,
                "cpu": cpu,
                "grpc-port": grpc_port,
                "tls-cert": tls_cert,
                "shared-memory": shared_memory,
                "keys": keys,
                "allow-control": allow_control,
                "cors": cors,
                "access-log": access_log,
                "trace-endpoint": trace_endpoint,
            }
        )
    elif replicas is not None:
        raise UsageError(
            "--replicas is for a cluster.\nDo: --ray auto, or --gpu N for engine processes on this machine"
        )
    if local and cpu:
        raise UsageError(f"--local is one process, --cpu {cpu} are several: leave one of them out")
    devices = [part.strip() for part in device.split(",")] if device else []
    access = Access(
        tls_cert=_text(tls_cert),
        tls_key=_text(tls_key),
        tls_ca=_text(tls_ca),
        keys=_text(keys),
        allow_control=allow_control,
        cors=tuple(cors or ()),
        access_log=_text(access_log),
        access_log_form=access_log_form,
        trace_endpoint=trace_endpoint,
    )
    if check_only:
        check(specs, gpu, devices, access)
        return Result(
            Checked(
                tuple(CheckedModel(each.name, each.version, each.target, each.share, each.shadow) for each in specs)
            ),
            _print_checked,
        )
    if ray is not None:
        from ...serving.ray import serve_on_ray  # here: with it comes all that a server imports

        serve_on_ray(specs, ray, host=host, port=port, scale=scale, limits=limits, modules=plugins or ())
        return Result(Served(()), _print_served)
    counts = serve(
        specs,
        host=host,
        port=port,
        grpc_port=grpc_port,
        cpu=0 if local else cpu,
        engines=gpu,
        devices=devices,
        modules=plugins or (),
        access=access,
        limits=limits,
    )
    models_served = tuple(
        ServedModel(name, version, **{key: each[key] for key in ("succeeded", "failed", "refused", "late", "batches")})
        for name, versions in counts.items()
        for version, each in versions.items()
    )
    return Result(Served(models_served), _print_served)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _refuse_with_ray(said: dict[str, Any]) -> None:
    """Refuse options that a replica on Ray cannot follow."""
    for option, value in said.items():
        if value:
            raise UsageError(
                f"--{option} is for a server without Ray, and does nothing with --ray: leave one of them out"
            )


def _print_checked(found: Checked) -> None:
    for each in found.models:
        role = ", a shadow" if each.shadow else f", for {100 * each.share:g} % of the requests" if each.share else ""
        print(f"{each.name}, version {each.version}: {each.target}{role}")


def _print_served(found: Served) -> None:
    names = [each.name for each in found.models]
    for each in found.models:
        version = f", version {each.version}" if names.count(each.name) > 1 else ""
        print(
            f"{each.name}{version}: {each.succeeded:,} requests answered in {each.batches:,} batches; {each.failed:,} failed, "
            f"{each.refused:,} refused, {each.late:,} late"
        )
