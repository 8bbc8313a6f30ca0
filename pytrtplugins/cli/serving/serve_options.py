"""The options of ``pytrt serve``, in groups, and their values for the server."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from ...errors import UsageError
from ...serving.access.access import Access
from ...serving.config import read_limits
from ...serving.model.spec import MOST_PROCESSES, Limits, ModelSpec
from ...utils.declared import field_limits
from ...utils.numbers import IntRange
from ...utils.toml_file import TomlFile
from ..shared import options
from ..shared.number import number
from ..shared.option import choice, option, typer

__all__ = ["ClientOptions", "ModelOptions", "ServerOptions", "milliseconds"]

_SHARED_REGIONS = 256
_MAX_MIB = 1 << 12
_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(us|ms|s)")
_MILLISECONDS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_LONGEST_MS = 10_000


def _read_delay(text: str) -> str:
    match = _DURATION.fullmatch(text)
    if match is None or milliseconds(text) > _LONGEST_MS:
        raise UsageError(f"--max-delay: expected a time of at most 10s, such as 500us, 2ms or 1s, found {text[:40]!r}")
    return text


def milliseconds(text: str) -> float:
    """The milliseconds in ``2ms``, which was checked."""
    match = _DURATION.fullmatch(text)
    assert match is not None
    return float(match[1]) * _MILLISECONDS[match[2]]


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and the processes that it runs."""

    host: Annotated[str, option("ADDRESS", "Address to listen on; 0.0.0.0 means all addresses of this machine.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, number(IntRange(0, 65535), "Port for HTTP; 0 means any free port.")] = 8000
    grpc_port: Annotated[
        int | None, number(IntRange(1, 65535), "Port for gRPC (Open Inference Protocol) as well, such as 8001.")
    ] = None
    cpu: Annotated[
        int | None,
        number(
            IntRange(0, MOST_PROCESSES),
            "Number of CPU processes (HTTP and image decoding); 0: everything in one process. Default: half of the cores; 0 on two cores.",
        ),
    ] = None
    gpu: Annotated[
        int | None,
        number(
            IntRange(0, MOST_PROCESSES),
            "Number of engine processes, which load the models and compute, also on a CPU; default: one per device. "
            "0: none; each --cpu process loads the models itself, for small models on a CPU.",
        ),
    ] = None
    device: Annotated[
        str | None, option("N,N,...", "GPUs to run the --gpu processes on, such as 0,1; default: the first.")
    ] = None
    local: Annotated[bool, choice("Run everything in one process, for debugging: --cpu 0.", "--local")] = False
    ray: Annotated[
        str | None,
        option(
            "ADDRESS",
            "Serve on a Ray cluster: local (a new one on this machine), auto (the one this machine is in), or HOST:PORT.",
        ),
    ] = None
    replicas: Annotated[
        str | None, option("N[:MOST]", "Replicas on Ray: 2, or 1:8 for a number that follows the load.")
    ] = None

    @property
    def devices(self) -> list[str]:
        """The numbers of the GPUs."""
        return [part.strip() for part in self.device.split(",")] if self.device else []


@dataclass(frozen=True)
class ModelOptions:
    """Defaults for all models; the file of ``--config`` can override them."""

    max_batch: Annotated[
        int | None,
        number(
            field_limits(ModelSpec, "max_batch"),
            "Largest number of rows in a run; default: as the model says, or else 32.",
        ),
    ] = None
    max_delay: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            callback=_read_delay,
            help="How long an incomplete batch may wait while another is computed.",
        ),
    ] = "2ms"
    queue: Annotated[
        int,
        number(field_limits(ModelSpec, "queue"), "Number of queued requests per model; further ones get status 503."),
    ] = 256
    decode: Annotated[
        Literal["auto", "cpu", "gpu"],
        option(
            "WHERE",
            "Where a detector decodes JPEG files: cpu; gpu (engine cuda); auto: the GPU too, while the CPU threads are busy.",
        ),
    ] = "auto"
    engine: options.Engine = "auto"
    registry: Annotated[
        Path | None,
        option(
            "DIR", "The registry's folder, for registry:NAME@STAGE; default: PYTRT_MODEL_REGISTRY, or .pytrt/models."
        ),
    ] = None

    def defaults(self) -> dict[str, Any]:
        """The defaults with the field names of `ModelSpec`."""
        values = {name: getattr(self, name) for name in ("engine", "max_batch", "queue", "decode")}
        registry = "" if self.registry is None else str(self.registry)
        return {**values, "max_delay_ms": milliseconds(self.max_delay), "registry": registry}


@dataclass(frozen=True)
class ClientOptions:
    """Access to a server, limits on clients, and logs."""

    body_limit: Annotated[int, number(IntRange(1, _MAX_MIB), "Largest body of a request.", metavar="MIB")] = (
        Limits.body_bytes >> 20
    )
    shared_memory: Annotated[
        bool,
        choice(
            "Let clients on this machine pass tensors through /dev/shm: they may then name any object there.",
            "--shared-memory",
        ),
    ] = False
    allow_urls: Annotated[
        list[str] | None,
        option(
            "https|ORIGIN",
            "Let clients name images by URLs: https at public addresses, or an ORIGIN such as http://camera.lan:80; may be repeated.",
        ),
    ] = None
    tls_cert: Annotated[Path | None, option("FILE", "Certificate of the server (PEM): HTTPS, and gRPC with TLS.")] = (
        None
    )
    tls_key: Annotated[Path | None, option("FILE", "Private key of that certificate (PEM).")] = None
    tls_ca: Annotated[
        Path | None,
        option("FILE", "CA certificates (PEM). Clients must present a certificate signed by one of them (mutual TLS)."),
    ] = None
    keys: Annotated[
        Path | None, option("FILE", "Keys of clients, as `pytrt serve-key` writes them; others are refused.")
    ] = None
    allow_control: Annotated[
        bool, choice("Let clients of other machines load and unload models without a key.", "--allow-control")
    ] = False
    cors: Annotated[
        list[str] | None,
        option("ORIGIN", "Let pages of this origin use the server, such as https://example.org; may be repeated."),
    ] = None
    access_log: Annotated[Path | None, option("FILE", "Write an access log to this file; - means standard error.")] = (
        None
    )
    access_log_form: Annotated[Literal["json", "plain"], choice("Form of the access log: JSON, or text.")] = "json"
    trace_endpoint: Annotated[
        str | None,
        option(
            "URL",
            "Send traces to this collector of OpenTelemetry, such as http://localhost:4318; default: as OTEL_... variables say.",
        ),
    ] = None

    def limits(self, file: TomlFile | None) -> Limits:
        """The limits, together with those of the file of ``--config``."""
        values = {
            "body_bytes": self.body_limit << 20,
            "shared_memory_regions": _SHARED_REGIONS if self.shared_memory else 0,
            "urls": tuple(self.allow_urls or ()),
        }
        return Limits(**values) if file is None else read_limits(file, values)  # type: ignore[arg-type]

    def access(self) -> Access:
        """The settings of access and logs."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Access)}
        values |= {name: str(value) for name, value in values.items() if isinstance(value, Path)}
        return Access(**{**values, "cors": tuple(self.cors or ())})
