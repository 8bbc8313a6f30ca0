"""The server as one deployment of Ray Serve: a replica is a whole engine process, with the network code in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import RequestError, UsageError
from ...utils.optional import require
from ...utils.user_module import import_user_module
from ..app import App
from ..local import LocalBackend
from ..scale import Scale
from ..spec import Limits, ModelSpec

__all__ = ["NAME", "application", "build", "options"]

NAME = "pytrt"
"""Of the deployment."""
_IN_FLIGHT = 128  # requests of a model that are decoded or computed, besides those in its queue


class ReplicaBackend(LocalBackend):
    """Models in a replica. The cluster decides what is loaded: a request would reach one replica of many."""

    async def load(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always.
        """
        raise _refused(name)

    async def unload(self, name: str) -> None:
        """Refuse.

        Raises:
            RequestError: always.
        """
        raise _refused(name)

    async def start(self) -> None:
        """Load all models; those that are loaded stay."""
        if not any(service.ready for service in self.services.values()):
            await super().start()


def application(specs: Sequence[ModelSpec], limits: Limits, scale: Scale, modules: Sequence[str] = ()) -> Any:
    """The application of Ray Serve that serves these models: give it to ``ray.serve.run``.

    Raises:
        MissingExtraError: Ray is not installed.
    """
    serve = _ray_serve()

    class Replica:
        """The server in a process of Ray's."""

        async def __init__(self) -> None:  # type: ignore[misc]  # Ray awaits it
            for module in modules:
                import_user_module(module)
            self._backend = ReplicaBackend(specs, limits)
            await self._backend.start()

        def __serve_build_asgi_app__(self) -> App:
            return App(self._backend, limits)

        async def check_health(self) -> None:
            """Called by Ray: raise if this replica must be replaced."""
            stopped = self._backend.stopped()
            if stopped:
                raise RuntimeError(f"no thread computes {', '.join(stopped)} any more")

    made = serve.deployment(serve.ingress()(Replica), **options(specs, scale))
    return made.bind()


def build(arguments: Mapping[str, Any]) -> Any:
    """The application, as a configuration file of Ray Serve names it: ``import_path: pytrtplugins.serving.ray:build``.

    Args:
        arguments: ``models``, a list of tables with the attributes of `ModelSpec`; ``limits`` and ``scale``, tables with those of `Limits`
            and `Scale`; ``modules``, a list of modules with plugins.

    Raises:
        UsageError: an unknown argument, or one out of range.
    """
    known = {"models", "limits", "modules", "scale"}
    try:
        if unknown := set(arguments) - known:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(sorted(known))}")
        specs = [ModelSpec(**each) for each in arguments["models"]]
        limits, scale = Limits(**arguments.get("limits", {})), Scale(**arguments.get("scale", {}))
        return application(specs, limits, scale, arguments.get("modules", ()))
    except (KeyError, TypeError) as error:
        raise UsageError(f"args of {__name__.rpartition('.')[0]}:build: {error}") from None


def options(specs: Sequence[ModelSpec], scale: Scale) -> dict[str, Any]:
    """The options of the deployment, as ``ray.serve.deployment`` takes them."""
    queued = sum(spec.queue + _IN_FLIGHT for spec in specs)
    made: dict[str, Any] = {
        "name": NAME,
        "ray_actor_options": {
            "num_cpus": scale.cpus,
            "num_gpus": scale.gpus,
            "memory": scale.memory_mib << 20,
        },
        # above what the models' own queues hold: they refuse first, with 429 and Retry-After
        "max_ongoing_requests": queued,
        "max_queued_requests": queued,
        "backpressure_config": {"status_code": 429, "retry_after_s": 1},
        "health_check_period_s": 2,
        "health_check_timeout_s": 10,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": scale.drain_seconds,
    }
    if scale.autoscaled:
        made["autoscaling_config"] = {
            "min_replicas": scale.min_replicas,
            "max_replicas": scale.max_replicas,
            "target_ongoing_requests": scale.target_requests,
        }
    else:
        made["num_replicas"] = scale.min_replicas
    return made


def _ray_serve() -> Any:
    return require("ray.serve", extra="serve-ray", package="ray", feature="pytrt serve --ray")


def _refused(name: str) -> RequestError:
    return RequestError(
        f"model {name!r}: the cluster decides what is loaded, since this request reaches one replica of several; "
        "deploy the application again",
        status=400,
    )
