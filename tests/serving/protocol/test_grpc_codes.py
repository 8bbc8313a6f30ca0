"""The codes of gRPC are those that google.rpc.Code maps HTTP's to."""

import pytest

from pytrtplugins.errors import RequestError
from pytrtplugins.serving.access import trace
from pytrtplugins.serving.protocol import grpc_codes
from pytrtplugins.serving.protocol.grpc_codes import status_code
from pytrtplugins.serving.protocol.memory import TakenNameError

grpc = pytest.importorskip("grpc", reason="pip install grpcio")

EXPECTED = {  # google/rpc/code.proto; 413 has none there: gRPC itself says this of a message that is too large
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    418: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    499: "INVALID_ARGUMENT",
    413: "RESOURCE_EXHAUSTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


@pytest.mark.parametrize("status", [*grpc_codes._CODES, 418, 422, 499, 500, 599])
def test_every_status_has_its_code(status):
    assert status_code(RequestError("no", status=status)).name == EXPECTED.get(status, "INTERNAL")


def test_a_name_that_is_taken_exists_already():
    assert status_code(TakenNameError("no")) is grpc.StatusCode.ALREADY_EXISTS


def test_of_each_code_that_the_server_is_to_blame_for_the_span_is_an_error():
    """OpenTelemetry's semantic conventions for gRPC servers: these codes, and no others."""
    blamed = {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
    assert blamed == trace._FAILURES
    assert blamed <= {code.name for code in grpc.StatusCode}
