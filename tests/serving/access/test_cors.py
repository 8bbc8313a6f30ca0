"""Pages of other origins: what browsers ask, and what they are told."""

import json
from http.client import HTTPConnection

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Access, Limits
from pytrtplugins.serving.access.cors import allow_origins, check_origins
from tests.serving.conftest import JSON, Client, spec
from tests.serving.running import running

HOME = "https://example.org"
ASK = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}


@pytest.fixture(scope="module")
def open_client():
    with Client([spec("double", "Double")]) as made:
        made.app = allow_origins(made.app, [HOME])
        yield made


def test_a_page_of_an_allowed_origin_may_ask_and_read(open_client):
    asked = open_client.ask("OPTIONS", "/v2/models/double/infer", headers={"Origin": HOME, **ASK})
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (200, HOME)
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    answer = open_client.post("/v2/models/double/infer", JSON, headers={"Origin": HOME})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, HOME)
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
    assert "access-control-allow-credentials" not in answer.headers


def test_a_page_of_another_origin_is_told_nothing(open_client):
    for other in ("https://example.org.evil.test", "http://example.org", "null"):
        assert open_client.ask("OPTIONS", "/v2", headers={"Origin": other, **ASK}).status == 400
        assert "access-control-allow-origin" not in open_client.get("/v2", headers={"Origin": other}).headers


def test_without_the_option_no_page_is_allowed(client):
    assert "access-control-allow-origin" not in client.get("/v2", headers={"Origin": HOME}).headers


def test_answers_of_a_server_have_the_headers_too():
    with running([spec("double", "Double")], Limits(), Access(cors=[HOME])) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("POST", "/v2/models/double/infer", json.dumps(JSON), {"Origin": HOME})
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("access-control-allow-origin")) == (200, HOME)
        connection.close()


@pytest.mark.parametrize("what", ["models/double/load", "models/double/unload", "index"])
def test_a_page_of_another_origin_changes_no_models(open_client, what):
    for origin in (HOME, "http://localhost:8001", "null"):
        answer = open_client.post(f"/v2/repository/{what}", headers={"Origin": origin, "Host": "localhost:8000"})
        assert (answer.status, "without a key" in answer.json["error"]) == (403, True)
    own = {"Origin": "http://localhost:8000", "Host": "localhost:8000"}
    assert open_client.post("/v2/repository/index", headers=own).status == 200


@pytest.mark.parametrize("origin", ["example.org", "https://example.org/", "ftp://a", "https://*.org", ""])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(UsageError, match="--cors: expected an origin"):
        check_origins(["*", HOME, "http://localhost:3000", "http://[::1]:8000", origin])
