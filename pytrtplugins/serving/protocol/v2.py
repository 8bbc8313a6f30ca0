"""The Open Inference Protocol over REST, except inference: health, metadata, statistics, model repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import RequestError
from ...utils.text_formats import shorten
from ...version import __version__
from ..access.roles import ADMIN, INFER
from ..backends.service import Service
from ..model.spec import Limits
from ..model.tensors import TensorSpec
from .endpoint import AppState, Endpoint, with_versions
from .openapi import INTEGER, TEXT, describe_infer, list_of, object_of
from .routes import empty_answer, json_answer, read_json
from .settings import trace_settings

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["ENDPOINTS", "LOADS_NO_FILES", "extensions", "model_config", "model_metadata", "model_statistics"]

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


def _service(state: AppState, request: Request) -> Service:
    return state.backend.services.find(request.path_params["model"], request.path_params.get("version", ""))


def _about(state: AppState, request: Request) -> Any:
    return {"name": "pytrtplugins", "version": __version__, "extensions": extensions(state.limits)}


def _live(state: AppState, request: Request) -> Any:
    return {"live": True}


def _all_ready(state: AppState, request: Request) -> Response:
    ready = all(entry.ready for entry in state.backend.services.values())
    return json_answer({"ready": ready}, 200 if ready else 503)


def _all_stats(state: AppState, request: Request) -> Any:
    return {"model_stats": [model_statistics(entry) for entry in state.backend.services.every if entry.ready]}


def _ready(state: AppState, request: Request) -> Response:  # the code says it; KServe's client reads the body too
    service = _service(state, request)
    return json_answer({"name": service.name, "ready": service.ready}, 200 if service.ready else 503)


def _config(state: AppState, request: Request) -> Any:
    return model_config(_service(state, request))


def _stats(state: AppState, request: Request) -> Any:
    services = state.backend.services.select(request.path_params["model"], request.path_params.get("version", ""))
    return {"model_stats": [model_statistics(entry) for entry in services]}


def _not_inferred(state: AppState, request: Request, body: bytes) -> Any:
    """Answer inference requests that the short way did not: there is no such model."""
    name = _service(state, request).name
    raise RequestError(f"model {name!r} takes no requests to infer at this address", status=404)


def _metadata(state: AppState, request: Request) -> Any:
    return model_metadata(_service(state, request))


def _trace(state: AppState, request: Request, body: bytes = b"") -> Any:
    _service(state, request)
    return trace_settings(read_json(body))


def _index(state: AppState, request: Request, body: bytes) -> Any:
    only_ready = read_json(body).get("ready", False)
    if not isinstance(only_ready, bool):
        raise RequestError("Invalid value for 'ready': expected a boolean")
    return [
        {
            "name": entry.name,
            "version": entry.version,
            "state": entry.state,
            **({"reason": entry.reason} if entry.reason else {}),
        }
        for entry in state.backend.services.every
        if entry.ready or not only_ready
    ]


async def _load(state: AppState, request: Request, body: bytes) -> Response:
    if _parameters(body):
        raise RequestError(LOADS_NO_FILES)
    await state.backend.load(state.backend.services.find_to_load(request.path_params["model"]).name)
    return empty_answer(200)


async def _unload(state: AppState, request: Request, body: bytes) -> Response:
    _parameters(body)
    await state.backend.unload(_service(state, request).name)
    return empty_answer(200)


def model_metadata(service: Service) -> dict[str, Any]:
    """Metadata of a model: its inputs and outputs."""
    signature = service.signature
    return {
        "name": service.name,
        "versions": [sibling.version for sibling in service.siblings],
        "platform": signature.platform,
        "inputs": [_tensor(spec) for spec in signature.inputs],
        "outputs": [_tensor(spec) for spec in signature.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.dims)}


def model_config(service: Service) -> dict[str, Any]:
    """Triton's configuration of a model: if it joins requests, its dims have no batch."""
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
    """Triton's statistics of a model."""
    total = service.statistics.total()
    succeeded = total["succeeded"]

    def duration(name: str) -> dict[str, int]:
        return {"count": succeeded, "ns": total[name]}

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
    """Parameters of a load or unload request; those for dependent models are ignored."""
    parameters = read_json(body).get("parameters") or {}
    if not isinstance(parameters, dict):
        raise RequestError(
            f"Unable to parse 'parameters': it must be a JSON object; the request has {shorten(parameters)}"
        )
    return {name: value for name, value in parameters.items() if name != "unload_dependents"}


_MODEL, _REPOSITORY = "/v2/models/{model}", "/v2/repository"
_TENSORS = list_of(object_of(name=TEXT, datatype=TEXT, shape=list_of(INTEGER)))
_SERVER_ANSWER = {"name": TEXT, "version": TEXT, "extensions": list_of(TEXT)}
_STATS_ANSWER = {"model_stats": list_of(object_of())}
_INDEX_ANSWER = list_of(object_of(name=TEXT, version=TEXT, state=TEXT))
ENDPOINTS = (
    Endpoint("/v2", "GET", INFER, "Name and version of the server", _about, _SERVER_ANSWER),
    Endpoint("/v2/", "GET", INFER, "", _about),
    Endpoint("/v2/health/live", "GET", None, "Whether the server runs", _live, {"live": {"const": True}}),
    Endpoint(
        "/v2/health/ready", "GET", None, "Whether all models take requests", _all_ready, {"ready": {"const": True}}
    ),
    Endpoint("/v2/models/stats", "GET", ADMIN, "Statistics of all models", _all_stats, _STATS_ANSWER),
    *with_versions(
        Endpoint(
            f"{_MODEL}/ready",
            "GET",
            INFER,
            "Whether it takes requests",
            _ready,
            {"name": TEXT, "ready": {"const": True}},
        )
    ),
    *with_versions(
        Endpoint(
            f"{_MODEL}/config",
            "GET",
            INFER,
            "Configuration, as Triton says it",
            _config,
            {"name": TEXT, "max_batch_size": INTEGER},
        )
    ),
    *with_versions(Endpoint(f"{_MODEL}/stats", "GET", ADMIN, "Statistics", _stats, _STATS_ANSWER)),
    *with_versions(
        Endpoint(
            f"{_MODEL}/infer",
            "POST",
            INFER,
            "Infer, with tensors as JSON or bytes",
            _not_inferred,
            {"model_name": TEXT, "outputs": _TENSORS},
            describe_infer,
        )
    ),
    *with_versions(
        Endpoint(
            _MODEL,
            "GET",
            INFER,
            "Inputs and outputs",
            _metadata,
            {"name": TEXT, "inputs": _TENSORS, "outputs": _TENSORS},
        )
    ),
    Endpoint(f"{_MODEL}/trace/setting", "GET", ADMIN, "", _trace),
    Endpoint(f"{_MODEL}/trace/setting", "POST", ADMIN, "", _trace),
    Endpoint(f"{_REPOSITORY}/index", "POST", INFER, "List the models", _index, _INDEX_ANSWER),
    Endpoint(f"{_REPOSITORY}/models/{{model}}/load", "POST", ADMIN, "Load it anew", _load),
    Endpoint(f"{_REPOSITORY}/models/{{model}}/unload", "POST", ADMIN, "Unload it", _unload),
)
"""The addresses of the Open Inference Protocol."""
