"""Replicas that decode before replicas that compute; Ray is played by calls."""

import asyncio
import sys
import types

import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.protocol.app import App
from pytrtplugins.serving.ray.chain import ChainBackend, Engines, check_chain
from tests.serving.conftest import Client, spec


class RayActorError(Exception):
    pass


class Handle:
    """As Ray's handle: ``handle.method.remote(...)`` is awaited; the first calls of `infer` may find a dead replica."""

    def __init__(self, engines, deaths=0):
        self.engines, self.deaths, self.calls = engines, deaths, 0

    def __getattr__(self, name):
        async def remote(*arguments):
            self.calls += 1
            if name == "infer" and self.deaths:
                self.deaths -= 1
                raise RayActorError
            found = getattr(self.engines, name)(*arguments)
            return await found if asyncio.iscoroutine(found) else found

        return types.SimpleNamespace(remote=remote)


@pytest.fixture
def chain(monkeypatch):
    module = types.ModuleType("ray.exceptions")
    module.RayActorError = RayActorError
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.exceptions", module)
    specs, limits = [spec("double", "Double")], Limits()
    engines = Engines(specs, limits)
    with Client(specs) as client:
        client.loop.run_until_complete(client.backend.stop())
        client.loop.run_until_complete(engines.backend.start())
        client.handle = Handle(engines)
        client.backend = ChainBackend(specs, limits, client.handle)
        client.loop.run_until_complete(client.backend.start())
        client.app = App(client.backend, limits)
        yield client
    client.loop = asyncio.new_event_loop()
    client.loop.run_until_complete(engines.backend.stop())
    client.loop.close()


def infer(client, *row):
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": list(row)}]}
    return client.post("/v2/models/double/infer", body)


def test_a_request_is_decoded_here_and_computed_there(chain):
    assert chain.post("/v1/models/double:predict", b"1 2").json["rows"] == [[2.0, 4.0]]
    np.testing.assert_array_equal(infer(chain, 3, 4).json["outputs"][0]["data"], [6, 8])


def test_an_error_of_the_model_keeps_its_status_and_text(chain):
    answer = infer(chain, -1, 0)
    assert (answer.status, "poison" in answer.json["error"]) == (500, True)


@pytest.mark.parametrize(("deaths", "status"), [(1, 200), (2, 200), (3, 500)])
def test_a_request_whose_replica_died_is_computed_by_another_twice_at_most(chain, deaths, status):
    chain.handle.deaths = deaths
    assert infer(chain, 1, 2).status == status
    assert infer(chain, 1, 2).status == 200


def test_models_are_not_loaded_by_clients(chain):
    assert chain.post("/v2/repository/models/double/unload", {}).status == 400


@pytest.mark.parametrize("wrong", [{"share": 0.5}, {"shadow": True}])
def test_canaries_and_shadows_are_refused(wrong):
    with pytest.raises(UsageError, match="cpu_replicas"):
        check_chain([ModelSpec("a", "x", version="1"), ModelSpec("a", "x", version="2", **wrong)])
