"""Which role each address and method needs."""

import pytest

from pytrtplugins.serving.access.roles import ADMIN, INFER, grpc_role, http_role
from pytrtplugins.serving.protocol.app import ENDPOINTS

OPEN = {"/v2/health/live", "/v2/health/ready", "/", "/page/{name}"}
OF_CLIENTS = {
    "/docs",
    "/openapi.json",
    "/v1/detect",
    "/v1/models/double:predict",
    "/v1/models/double/versions/1:predict",
    "/v2",
    "/v2/",
    "/v2/models/double",
    "/v2/models/double/config",
    "/v2/models/double/infer",
    "/v2/models/double/ready",
    "/v2/models/double/versions/1",
    "/v2/models/double/versions/1/config",
    "/v2/models/double/versions/1/infer",
    "/v2/models/double/versions/1/ready",
    "/v2/repository/index",
}


def routes(client):
    """All addresses of an application, with a model in them."""
    for route in client.app._others.routes:
        yield route.path.format_map({"model": "double", "version": "1", "region": "a", "name": "{name}"})
    yield from (path for path in client.app._short if "/double/" in path)


def test_every_address_is_open_or_for_clients_or_for_admins(client):
    found = {path.replace("{model}", "double"): client.app.role(path) for path in routes(client)}
    assert {path for path, role in found.items() if role is None} == OPEN
    assert {path for path, role in found.items() if role == INFER} == OF_CLIENTS
    for path, role in found.items():
        if any(word in path for word in ("repository/models", "stats", "metrics", "memory", "trace", "logging")):
            assert role == ADMIN, path


@pytest.mark.parametrize(
    "path",
    [
        *("/V2/HEALTH/LIVE", "/v2/health/live/", "//v2", "/v2/models/a/b/infer", "/nothing", "/v2/models/stats"),
        *("/v2/models/stats\n", "/v2/health/live\n", "/docs\n", "/openapi_json"),
    ],
)
def test_what_is_not_known_is_for_admins(client, path):
    assert client.app.role(path) == ADMIN


def test_the_first_path_that_fits_says_the_role():
    role = http_role({"/a/all": ADMIN, "/a/{name}": INFER, "/a/{name}/open": None})
    assert [role(path) for path in ("/a/all", "/a/b", "/a/all/open", "/a/", "/a/b/c")] == [
        ADMIN,
        INFER,
        None,
        ADMIN,
        ADMIN,
    ]


def test_all_methods_of_a_path_have_one_role():
    roles: dict[str, str | None] = {}
    for endpoint in ENDPOINTS:
        assert roles.setdefault(endpoint.path, endpoint.role) == endpoint.role, endpoint.path


def test_every_method_of_grpc_has_a_role():
    library = pytest.importorskip("tritonclient.grpc.service_pb2")
    (service,) = library.DESCRIPTOR.services_by_name.values()
    roles = {method.name: grpc_role(method.name) for method in service.methods}
    assert {name for name, role in roles.items() if role is None} == {"ServerLive", "ServerReady"}
    assert {name for name, role in roles.items() if role == INFER} == {
        "ServerMetadata",
        "ModelReady",
        "ModelMetadata",
        "ModelConfig",
        "ModelInfer",
        "ModelStreamInfer",
        "RepositoryIndex",
    }
