"""The Open Inference Protocol over REST, but for inference itself: health, metadata, statistics, the repository of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...utils.optional import require
from ...utils.text_formats import shorten
from ...version import __version__
from ..backends.backend import Backend
from ..backends.service import Service
from ..http.body import UnreadError
from ..model.spec import Limits
from ..model.tensors import TensorSpec
from .routes import empty_answer, json_answer, make_route, read_json
from .settings import trace_settings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

__all__ = [
    "LOADS_NO_FILES",
    "error_answer",
    "extensions",
    "model_config",
    "model_metadata",
    "model_statistics",
    "with_routes",
]

LOADS_NO_FILES = (
    "the server takes no configuration and no files from clients that load a model: leave out the parameters"
)
_EXTENSIONS = (
    "classification",
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
    "trace",
    "logging",
)


def extensions(limits: Limits) -> list[str]:
    """Parts of the protocol that servers may leave out, and this one has."""
    return [*_EXTENSIONS, *(["system_shared_memory", "cuda_shared_memory"] if limits.shared_memory_regions else [])]


def error_answer(error: RequestError) -> Response:
    """An error as clients of the protocol expect it."""
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    if isinstance(error, UnreadError):
        headers["connection"] = "close"
    return json_answer({"error": str(error)}, error.status, headers)


def with_routes(backend: Backend, limits: Limits, others: Sequence[Route]) -> Starlette:
    """An application of these routes and ``others``; errors are JSON on all of them."""
    application = require("starlette.applications", extra="serve", package="starlette", feature="pytrt serve")
    exceptions = require("starlette.exceptions", extra="serve", package="starlette")
    services, route = backend.services, partial(make_route, limits)

    def service(request: Request) -> Service:
        return services.find(request.path_params["model"], request.path_params.get("version", ""))

    def stats(request: Request) -> Any:
        asked = services.asked(request.path_params["model"], request.path_params.get("version", ""))
        return {"model_stats": [model_statistics(each) for each in asked]}

    def about(request: Request) -> Any:
        return {"name": "pytrtplugins", "version": __version__, "extensions": extensions(limits)}

    def not_inferred(request: Request, body: bytes) -> Any:
        """Answer what did not go the short way: there is no such model."""
        raise RequestError(f"model {service(request).name!r} takes no requests to infer at this address", status=404)

    def ready(request: Request) -> Response:  # the code says it; KServe's client reads the body too
        found = service(request)
        return json_answer({"name": found.name, "ready": found.ready}, 200 if found.ready else 503)

    def all_ready(request: Request) -> Response:
        whole = all(each.ready for each in services.values())
        return json_answer({"ready": whole}, 200 if whole else 503)

    async def load(request: Request, body: bytes) -> Response:
        if _parameters(body):
            raise RequestError(LOADS_NO_FILES)
        await backend.load(services.find_to_load(request.path_params["model"]).name)
        return empty_answer(200)

    async def unload(request: Request, body: bytes) -> Response:
        _parameters(body)
        await backend.unload(service(request).name)
        return empty_answer(200)

    def trace(request: Request, body: bytes = b"") -> Any:
        service(request)
        return trace_settings(read_json(body))

    def index(request: Request, body: bytes) -> Any:
        only_ready = read_json(body).get("ready", False)
        if not isinstance(only_ready, bool):
            raise RequestError("Invalid value for 'ready': expected a boolean")
        return [
            {
                "name": each.name,
                "version": each.version,
                "state": each.state,
                **({"reason": each.reason} if each.reason else {}),
            }
            for each in services.every
            if each.ready or not only_ready
        ]

    def both(path: str, answer: Callable[..., Any], method: str = "GET") -> list[Any]:
        return [route(f"/v2/models/{{model}}{part}{path}", answer, method) for part in ("", "/versions/{version}")]

    async def on_error(request: Request, error: Exception) -> Response:
        return error_answer(error) if isinstance(error, RequestError) else json_answer({"error": str(error)}, 500)

    async def on_http_error(request: Request, error: Any) -> Response:
        text = f"{error.detail}: {request.method} {request.url.path[:200]}"
        return json_answer({"error": text}, error.status_code, error.headers)

    routes = [
        *others,  # the first that fits answers, and photos are asked about most
        *(route(path, about) for path in ("/v2", "/v2/")),
        route("/v2/health/live", lambda request: {"live": True}),
        route("/v2/health/ready", all_ready),
        route(
            "/v2/models/stats",
            lambda request: {"model_stats": [model_statistics(each) for each in services.every if each.ready]},
        ),
        *both("/ready", ready),
        *both("/config", lambda request: model_config(service(request))),
        *both("/stats", stats),
        *both("/infer", not_inferred, "POST"),
        *both("", lambda request: model_metadata(service(request))),
        route("/v2/models/{model}/trace/setting", trace, "GET", "POST"),
        route("/v2/repository/index", index, "POST"),
        route("/v2/repository/models/{model}/load", load, "POST"),
        route("/v2/repository/models/{model}/unload", unload, "POST"),
    ]
    handlers = {RequestError: on_error, exceptions.HTTPException: on_http_error, Exception: on_error}
    made: Starlette = application.Starlette(routes=routes, exception_handlers=handlers)
    return made


def model_metadata(service: Service) -> dict[str, Any]:
    """Inputs and outputs."""
    signature = service.signature
    return {
        "name": service.name,
        "versions": [each.version for each in service.siblings],
        "platform": signature.platform,
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.dims)}


def model_config(service: Service) -> dict[str, Any]:
    """As Triton says it: there the dims of a model that joins requests are without the batch."""
    signature = service.signature
    skipped = 1 if signature.joined and signature.inputs else 0

    def tensor(spec: TensorSpec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "data_type": "TYPE_STRING" if spec.datatype == "BYTES" else f"TYPE_{spec.datatype}",
            "dims": list(spec.dims[skipped:]),
        }

    config: dict[str, Any] = {
        "name": service.name,
        "platform": signature.platform,
        "backend": "pytrtplugins",
        "max_batch_size": signature.max_batch if skipped else 0,
        "input": [tensor(spec) for spec in signature.inputs],
        "output": [tensor(spec) for spec in signature.outputs],
    }
    config["model_transaction_policy"] = {"decoupled": False}  # each request has one answer
    if signature.file_input is not None:
        config["parameters"] = {"file_input": {"string_value": signature.file_input}}
    if signature.max_batch > 1:
        config["dynamic_batching"] = {
            "preferred_batch_size": list(signature.sizes),
            "max_queue_delay_microseconds": round(1000 * service.spec.max_delay_ms),
        }
    return config


def model_statistics(service: Service) -> dict[str, Any]:
    """What was asked of it."""
    total = service.statistics.total()
    done = total["succeeded"]

    def duration(name: str) -> dict[str, int]:
        return {"count": done, "ns": total[name]}

    none = {"count": 0, "ns": 0}
    return {
        "name": service.name,
        "version": service.version,
        "last_inference": 0,
        "inference_count": total["rows"],
        "execution_count": total["batches"],
        "inference_stats": {
            "success": duration("total_ns"),
            "fail": {"count": total["failed"] + total["refused"] + total["late"], "ns": 0},
            "queue": duration("queue_ns"),
            "compute_input": none,
            "compute_infer": duration("compute_ns"),
            "compute_output": none,
            "cache_hit": none,
            "cache_miss": none,
        },
        "batch_stats": [],
    }


def _parameters(body: bytes) -> dict[str, Any]:
    """Parameters of a request to load or unload; what they say of models that depend on others means nothing here."""
    found = read_json(body).get("parameters") or {}
    if not isinstance(found, dict):
        raise RequestError(f"Unable to parse 'parameters': it must be a JSON object; the request has {shorten(found)}")
    return {name: value for name, value in found.items() if name != "unload_dependents"}
