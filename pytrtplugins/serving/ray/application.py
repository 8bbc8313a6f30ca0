"""The server as one deployment of Ray Serve: each replica is an engine process with the network code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import UsageError
from ...utils.optional import require
from ...utils.user_module import import_user_module
from ..backends.follow import follow_registry
from ..model.spec import Limits, ModelSpec
from ..protocol.app import App
from ..scale import Scale
from .chain import ChainBackend, Engines, check_chain
from .replica import ReplicaBackend

__all__ = ["NAME", "application", "build", "options"]

NAME = "pytrt"
"""Of the deployment."""
_IN_FLIGHT = 128  # requests of a model that are decoded or computed, besides those in its queue


def application(specs: Sequence[ModelSpec], limits: Limits, scale: Scale, modules: Sequence[str] = ()) -> Any:
    """The application of Ray Serve that serves these models: give it to ``ray.serve.run``.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    serve = _ray_serve()

    class Deployed:
        """Methods that Ray calls on a replica with models."""

        backend: ReplicaBackend
        following: asyncio.Future[None]

        async def begin(self) -> None:
            for module in modules:
                import_user_module(module)
            await self.backend.start()
            self.following = asyncio.ensure_future(follow_registry(self.backend))

        async def check_health(self) -> None:
            """Called by Ray: raise if this replica must be replaced."""
            stopped = self.backend.stopped()
            if stopped:
                raise RuntimeError(f"no thread computes {', '.join(stopped)} any more")

    class Replica(Deployed):
        """The server in a Ray process."""

        async def __init__(self) -> None:  # type: ignore[misc]  # Ray awaits it
            self.backend = ReplicaBackend(specs, limits)
            await self.begin()

        def __serve_build_asgi_app__(self) -> App:
            return App(self.backend, limits)

    class Computing(Deployed, Engines):
        """The models in a Ray process."""

        async def __init__(self) -> None:  # type: ignore[misc]
            Engines.__init__(self, specs, limits)
            await self.begin()

    class Decoding:
        """The network code in a Ray process."""

        async def __init__(self, engines: Any) -> None:  # type: ignore[misc]
            self.backend = ChainBackend(specs, limits, engines)
            await self.backend.start()

        def __serve_build_asgi_app__(self) -> App:
            return App(self.backend, limits)

    if not scale.cpu_replicas:
        return serve.deployment(serve.ingress()(Replica), **options(specs, scale)).bind()
    check_chain(specs)
    engines = serve.deployment(Computing, **{**options(specs, scale), "name": "engines"}).bind()
    decoding = Scale(min_replicas=scale.cpu_replicas, cpus=scale.cpus, memory_mib=scale.memory_mib)
    return serve.deployment(serve.ingress()(Decoding), **options(specs, decoding)).bind(engines)


def build(arguments: Mapping[str, Any]) -> Any:
    """The application, as a configuration file of Ray Serve names it: ``import_path: pytrtplugins.serving.ray:build``.

    Args:
        arguments: ``models``, a list of tables with the attributes of `ModelSpec`; ``limits`` and ``scale``, tables with those of `Limits`
            and `Scale`; ``modules``, a list of modules with plugins.

    Raises:
        UsageError: an unknown argument, or one out of range.
    """
    known_keys = {"models", "limits", "modules", "scale"}
    try:
        if unknown := set(arguments) - known_keys:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(sorted(known_keys))}")
        specs = [ModelSpec(**spec) for spec in arguments["models"]]
        limits, scale = Limits(**arguments.get("limits", {})), Scale(**arguments.get("scale", {}))
        return application(specs, limits, scale, arguments.get("modules", ()))
    except (KeyError, TypeError) as error:
        raise UsageError(f"args of {__name__.rpartition('.')[0]}:build: {error}") from None


def options(specs: Sequence[ModelSpec], scale: Scale) -> dict[str, Any]:
    """The deployment's options for ``ray.serve.deployment``."""
    queued = sum(spec.queue + _IN_FLIGHT for spec in specs)
    deployment_options: dict[str, Any] = {
        "name": NAME,
        "ray_actor_options": {
            "num_cpus": scale.cpus,
            "num_gpus": scale.gpus,
            "memory": scale.memory_mib << 20,
        },
        # above what the models' own queues hold: they refuse first, with 503 and Retry-After
        "max_ongoing_requests": queued,
        "max_queued_requests": queued,
        "backpressure_config": {"status_code": 503, "retry_after_s": 1},
        "health_check_period_s": 2,
        "health_check_timeout_s": 10,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": scale.drain_seconds,
    }
    if scale.autoscaled:
        deployment_options["autoscaling_config"] = {
            "min_replicas": scale.min_replicas,
            "max_replicas": scale.max_replicas,
            "target_ongoing_requests": scale.target_requests,
        }
    else:
        deployment_options["num_replicas"] = scale.min_replicas
    return deployment_options


def _ray_serve() -> Any:
    return require("ray.serve", extra="serve-ray", package="ray", feature="pytrt serve --ray")
