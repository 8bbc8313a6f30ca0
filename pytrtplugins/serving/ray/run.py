"""Run a server on a Ray cluster until it is stopped."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import UsageError
from ...utils.optional import require
from ...utils.ray_cluster import connect
from ..backends.versions import check_versions
from ..batching.replica import names_code
from ..model.registered import is_registered
from ..model.spec import Limits, ModelSpec
from ..run import print_at_once
from ..scale import Scale
from .application import NAME, application

__all__ = ["INGRESS", "absolute", "apply_settings", "last_error", "serve_on_ray"]

INGRESS: Mapping[str, str] = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    # HAProxy sends a request again only if it had all of its body before it sent it the first time: hence the second line, which Ray
    # copies into HAProxy's configuration with the first, as it has no setting for it
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response 502 503\n    option http-buffer-request",
    "RAY_SERVE_HAPROXY_RETRIES": "3",
    "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(1 << 20),
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment variables of a Ray cluster. HAProxy takes the requests, and sends one again whose replica has died, if head and body fit into
its buffer of 1 MiB. A replica that is to end is sent no requests for 5 s before it does."""


_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (?!Traceback)(.*)", re.MULTILINE)
_log = logging.getLogger(__name__)


def serve_on_ray(
    specs: Sequence[ModelSpec],
    address: str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    scale: Scale | None = None,
    limits: Limits | None = None,
    modules: Sequence[str] = (),
    announce: Callable[[str], object] = print_at_once,
    wait: Callable[[], object] | None = None,
) -> None:
    """Serve models on a Ray cluster until the process gets SIGTERM or SIGINT.

    Args:
        specs: What is served. Each node needs this package, and each file at the same path.
        address: ``"local"``: a new cluster on this machine; ``"auto"``: the cluster that this machine belongs to; or ``HOST:PORT``.
        host: Address that the ingress listens on, if no application runs in the cluster yet.
        port: Of the ingress.
        scale: How many replicas, and what each gets.
        limits: Of requests.
        modules: Modules with plugins, which each replica imports.
        announce: Takes a line once requests are taken.
        wait: Returns when the server is to end; by default at SIGTERM or SIGINT.

    Raises:
        UsageError: there is no such cluster, or it cannot run the replicas.
    """
    check_versions(specs)
    scale, limits = scale or Scale(), limits or Limits()
    variables = apply_settings()
    ray = require("ray", extra="serve-ray", feature="pytrt serve --ray")
    serve = require("ray.serve", extra="serve-ray", package="ray", feature="pytrt serve --ray")
    with ExitStack() as stack:
        connect(ray, address, include_dashboard=False, runtime_env={"env_vars": dict(variables)}, log_to_driver=False)
        stack.callback(ray.shutdown)
        nodes = ray.nodes()
        _check_reachable(nodes, host)
        _warn_of_waiting(nodes, scale)
        try:
            logging.getLogger("ray.serve").setLevel(logging.ERROR)  # what failed is in the exception
            serve.start(http_options={"host": host, "port": port})
            if address == "local":
                stack.callback(serve.shutdown)
            else:
                stack.callback(serve.delete, NAME)
            app = application([absolute(spec) for spec in specs], limits, scale, modules)
            serve.run(app, name=NAME, route_prefix="/")
        except (RuntimeError, ValueError, TimeoutError) as error:
            raise UsageError(
                f"Ray cannot run the application: {_reason(serve) or error}\nRay's logs have more: /tmp/ray/session_latest/logs/serve"
            ) from error
        announce(_ready(specs, host, port, scale))
        (wait or _until_signal)()


def apply_settings() -> dict[str, str]:
    """Set the environment variables of `INGRESS` that are not set, before Ray is imported; all of them, as they are then."""
    return {name: os.environ.setdefault(name, value) for name, value in INGRESS.items()}


def _reason(serve: Any) -> str:
    """Ray's status message of the deployment, which its exception lacks."""
    status = serve.status().applications.get(NAME)
    return "\n".join(last_error(deployment.message) for deployment in status.deployments.values()) if status else ""


def last_error(text: str) -> str:
    """The message of the last exception in a text with tracebacks; the text where there is none."""
    matches = list(_ERROR.finditer(text))
    return text[matches[-1].start(1) :].strip() if matches else text.strip()


def _warn_of_waiting(nodes: Sequence[Mapping[str, Any]], scale: Scale) -> None:
    """Warn that no node can take a replica now: Ray waits for one without end."""
    resources = {"CPU": scale.cpus, "GPU": scale.gpus, "memory": scale.memory_mib << 20}
    free = [node["Resources"] for node in nodes if node["Alive"]]
    if not any(all(node.get(name, 0) >= amount for name, amount in resources.items()) for node in free):
        _log.warning(
            "no node of the Ray cluster has %g cores, %g GPUs and %d MiB of memory, which a replica gets: waiting for one. "
            "Do: change [scale] in the file of --config, or add a node",
            *(scale.cpus, scale.gpus, scale.memory_mib),
        )


def _check_reachable(nodes: Sequence[Mapping[str, Any]], host: str) -> None:
    """Require an address that other machines of the cluster can reach: replicas listen on it too."""
    machines = {node["NodeManagerAddress"] for node in nodes if node["Alive"]}
    if len(machines) > 1 and host in ("127.0.0.1", "::1", "localhost"):
        raise UsageError(
            f"--host {host}: the {len(machines)} machines of this cluster cannot reach replicas there.\n"
            "Do: --host 0.0.0.0, in a network that only you can reach: there are no keys on Ray"
        )


def absolute(spec: ModelSpec) -> ModelSpec:
    """A spec with absolute paths, for processes with other working directories."""
    module, _, name = spec.target.rpartition(":")
    if is_registered(spec.target):
        return replace(spec, registry=str(Path(spec.registry).absolute()))
    if not names_code(spec.target):
        return replace(spec, target=str(Path(spec.target).absolute()))
    return replace(spec, target=f"{Path(module).absolute()}:{name}") if module.endswith(".py") else spec


def _ready(specs: Sequence[ModelSpec], host: str, port: int, scale: Scale) -> str:
    replicas = f"{scale.min_replicas} to {scale.max_replicas}" if scale.autoscaled else f"{scale.min_replicas}"
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    return f"{', '.join(spec.name for spec in specs)}: ready at {address}, replicas on Ray: {replicas}; Ctrl-C ends"


def _until_signal() -> None:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    while not ended.wait(1):
        pass
