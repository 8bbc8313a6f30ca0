"""OpenTelemetry traces: a span for each request, and one for each of its stages."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...errors import MissingExtraError, UsageError
from ...utils.optional import require
from ...version import __version__
from .access import Access
from .exchange import Exchange

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

__all__ = ["Tracer", "trace_url"]

_log = logging.getLogger(__name__)
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_FAILURES = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
"""Codes of gRPC that are the server's failure, as OpenTelemetry counts them."""


class Tracer:
    """Makes spans of finished exchanges, which join the client's trace (W3C ``traceparent``).

    Args:
        provider: Of OpenTelemetry's SDK; `close` shuts it down.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("pytrtplugins.serving", __version__)
        self._trace = require("opentelemetry.trace", extra="otel", package="opentelemetry-sdk")
        self._extract = require("opentelemetry.propagate", extra="otel", package="opentelemetry-sdk").extract

    @classmethod
    def of(cls, access: Access) -> Tracer | None:
        """The tracer that the settings or the environment ask for; None if neither does.

        The environment's variables are OpenTelemetry's own: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_SERVICE_NAME``,
        ``OTEL_TRACES_SAMPLER`` and the others. Where they alone ask for traces, missing packages are a warning.

        Raises:
            UsageError: the endpoint is no URL.
        """
        url = trace_url(access.trace_endpoint)
        enabled_by_environment = (
            any(map(os.environ.get, _ENDPOINTS)) and os.environ.get("OTEL_SDK_DISABLED", "").lower() != "true"
        )
        if url is None and not enabled_by_environment:
            return None
        try:
            return cls(_provider(url))
        except MissingExtraError as error:
            if url is not None:
                raise
            _log.warning("no traces, though %s is set: %s", " or ".join(_ENDPOINTS), error)
            return None

    def record(self, exchange: Exchange) -> None:
        """Make the spans of a request that has ended."""
        parent = self._extract(exchange.headers)
        span = self._tracer.start_span(
            _name(exchange), parent, self._trace.SpanKind.SERVER, _attributes(exchange), start_time=exchange.time_ns
        )
        context = span.get_span_context()
        exchange.trace = f"{context.trace_id:032x}"
        if span.is_recording():
            inside = self._trace.set_span_in_context(span, parent)
            for stage, began, seconds in sorted(exchange.stages, key=lambda each: each[1]):
                begin = exchange.time_ns + int(1e9 * (began - exchange.began))
                self._tracer.start_span(stage, inside, start_time=begin).end(begin + int(1e9 * seconds))
            if exchange.status in _FAILURES or (isinstance(exchange.status, int) and exchange.status >= 500):
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    def close(self) -> None:
        """Send what was not sent yet."""
        self._provider.shutdown()


def trace_url(endpoint: str | None) -> str | None:
    """The address for traces: an endpoint without a path gets OTLP's.

    Raises:
        UsageError: it is no URL of http or https.
    """
    if endpoint is None:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UsageError(f"--trace-endpoint: expected a URL, such as http://localhost:4318, found {endpoint[:80]!r}")
    return endpoint if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/v1/traces"


def _provider(url: str | None) -> Any:
    needs = {"extra": "otel", "feature": "--trace-endpoint"}
    sdk = require("opentelemetry.sdk.trace", package="opentelemetry-sdk", **needs)
    export = require("opentelemetry.sdk.trace.export", package="opentelemetry-sdk", **needs)
    resources = require("opentelemetry.sdk.resources", package="opentelemetry-sdk", **needs)
    otlp = require(
        "opentelemetry.exporter.otlp.proto.http.trace_exporter",
        package="opentelemetry-exporter-otlp-proto-http",
        **needs,
    )
    named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "pytrtplugins"}
    provider = sdk.TracerProvider(resource=resources.Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(otlp.OTLPSpanExporter(url)))
    return provider


def _name(exchange: Exchange) -> str:
    """The span's name; unknown paths are left out, so that clients cannot create names."""
    if exchange.protocol == "grpc":
        return exchange.path.lstrip("/")
    return f"{exchange.method} {exchange.path}" if exchange.model else exchange.method


def _attributes(exchange: Exchange) -> dict[str, Any]:
    """Attributes with the names of OpenTelemetry's semantic conventions, and some of our own."""
    if exchange.protocol == "grpc":
        attributes: dict[str, Any] = {
            "rpc.system": "grpc",
            "rpc.service": exchange.path.strip("/").partition("/")[0],
            "rpc.method": exchange.method,
            "rpc.response.status_code": exchange.status,
        }
    else:
        attributes = {
            "http.request.method": exchange.method,
            "url.path": exchange.path,
            "http.response.status_code": exchange.status,
        }
    attributes |= {
        "client.address": exchange.client,
        "pytrt.request_id": exchange.id,
        "pytrt.received_bytes": exchange.received,
        "pytrt.sent_bytes": exchange.sent,
    }
    if exchange.model:
        attributes["pytrt.model"] = exchange.model
    if exchange.key is not None:
        attributes["pytrt.key"] = exchange.key.name
    return attributes
