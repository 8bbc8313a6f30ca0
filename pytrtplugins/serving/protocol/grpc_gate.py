"""The gate of a gRPC server: checks keys and records requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ...errors import RequestError
from ...utils.optional import require
from ..access.exchange import CURRENT, Exchange
from ..access.gate import Gate
from ..access.roles import grpc_role
from .grpc_codes import status_code

__all__ = ["gate_interceptor"]


def gate_interceptor(gate: Gate) -> Any:
    """An interceptor of grpc.aio's that lets requests through a gate."""
    grpc = require("grpc", extra="grpc", package="grpcio")
    base = require("grpc.aio", extra="grpc", package="grpcio").ServerInterceptor

    class Interceptor(base):  # type: ignore[misc, valid-type]
        """Passes each request through the gate."""

        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = await continuation(details)
            if handler is None:
                return None
            method = details.method
            if handler.response_streaming:
                return grpc.stream_stream_rpc_method_handler(
                    _stream(gate, method, handler.stream_stream),
                    handler.request_deserializer,
                    handler.response_serializer,
                )
            return grpc.unary_unary_rpc_method_handler(
                _unary(gate, method, handler.unary_unary), handler.request_deserializer, handler.response_serializer
            )

    return Interceptor()


def _unary(gate: Gate, method: str, behavior: Any) -> Any:
    async def called(request: Any, context: Any) -> Any:
        exchange = _make_exchange(method, context)
        exchange.received = _size(request)
        try:
            await _enter(gate, exchange, context)
            answer = await behavior(request, context)
            exchange.sent, exchange.status = _size(answer), "OK"
            return answer
        finally:
            _end(gate, exchange, context)

    return called


def _stream(gate: Gate, method: str, behavior: Any) -> Any:
    async def called(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        exchange = _make_exchange(method, context)

        async def counted() -> AsyncIterator[Any]:
            async for request in requests:
                exchange.received += _size(request)
                yield request

        try:
            await _enter(gate, exchange, context)
            if gate.keys is not None:
                exchange.charge = gate.keys.charge
            async for answer in behavior(counted(), context):
                exchange.sent += _size(answer)
                yield answer
            exchange.status = "OK"
        finally:
            _end(gate, exchange, context)

    return called


def _make_exchange(method: str, context: Any) -> Exchange:
    headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
    exchange = Exchange("grpc", method.rpartition("/")[2], method, headers, _address(context.peer()))
    exchange.status = "UNKNOWN"
    context.set_trailing_metadata((("x-request-id", exchange.id),))
    CURRENT.set(exchange)  # until the task of this call ends
    return exchange


async def _enter(gate: Gate, exchange: Exchange, context: Any) -> None:
    try:
        gate.enter(exchange, grpc_role(exchange.method))
    except RequestError as error:
        trailing = [("x-request-id", exchange.id)]
        if error.retry_after is not None:
            trailing.append(("retry-after", str(error.retry_after)))
            trailing.append(("grpc-retry-pushback-ms", str(1000 * error.retry_after)))
        await context.abort(status_code(error), str(error), tuple(trailing))


def _end(gate: Gate, exchange: Exchange, context: Any) -> None:
    if exchange.status == "UNKNOWN":
        code = context.code()
        exchange.status = "CANCELLED" if context.cancelled() else getattr(code, "name", "UNKNOWN")
    gate.leave(exchange)


def _address(peer: str) -> str:
    """The address in gRPC's ``ipv4:127.0.0.1:80`` and ``ipv6:%5B::1%5D:80``."""
    return peer.partition(":")[2].rpartition(":")[0].replace("%5B", "").replace("%5D", "")


def _size(message: Any) -> int:
    """Bytes of a message of protobuf's, or of its bytes."""
    size: int = len(message) if isinstance(message, bytes) else message.ByteSize()
    return size
