"""What Ray is told, and how a replica differs from a server of its own; no Ray is needed."""

import importlib.util
import threading
from pathlib import Path

import pytest

from pytrtplugins.errors import MissingExtraError, UsageError
from pytrtplugins.serving import Limits, ModelSpec
from pytrtplugins.serving.ray import INGRESS, build
from pytrtplugins.serving.ray.application import options
from pytrtplugins.serving.ray.replica import ReplicaBackend
from pytrtplugins.serving.ray.run import _check_reachable, _warn_of_waiting, absolute, apply_settings, last_error
from pytrtplugins.serving.scale import Scale
from tests.serving.conftest import Client, spec


@pytest.fixture(scope="module")
def replica():
    with Client([spec("double", "Double")]) as client:
        client.loop.run_until_complete(client.backend.stop())
        client.backend = ReplicaBackend([spec("double", "Double")], Limits())
        client.loop.run_until_complete(client.backend.start())
        client.app = type(client.app)(client.backend, Limits())
        yield client


def test_a_replica_answers_as_a_server_does(replica):
    assert replica.post("/v1/models/double:predict", b"1 2").json["rows"] == [[2.0, 4.0]]


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_replica_alone_loads_no_model(replica, what):
    answer = replica.post(f"/v2/repository/models/double/{what}", {})
    assert answer.status == 400
    assert "deploy the application again" in answer.json["error"]
    assert replica.get("/v2/models/double/ready").status == 200


def test_starting_a_replica_twice_loads_once(replica):
    before = replica.backend._replicas[0]
    replica.loop.run_until_complete(replica.backend.start())
    assert replica.backend._replicas[0] is before


def test_a_replica_whose_thread_has_ended_is_not_healthy(replica):
    assert replica.backend.stopped() == []
    batcher = replica.backend._replicas[0].batcher
    kept, batcher._thread = batcher._thread, threading.Thread(target=print, args=("",))
    batcher._thread.start()
    batcher._thread.join()
    assert replica.backend.stopped() == ["double"]
    batcher._thread = kept


def test_the_queues_of_the_models_refuse_before_ray_does():
    found = options([ModelSpec("a", "x", queue=10), ModelSpec("b", "x", queue=20)], Scale())
    assert found["max_ongoing_requests"] > 30
    assert found["backpressure_config"]["status_code"] == 503


def test_autoscaling_follows_the_requests_of_a_replica():
    scale = Scale(min_replicas=1, max_replicas=8, cpus=4, gpus=0.5, memory_mib=100_000, target_requests=7)
    found = options([ModelSpec("a", "x")], scale)
    assert found["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 8, "target_ongoing_requests": 7}
    assert found["ray_actor_options"] == {"num_cpus": 4, "num_gpus": 0.5, "memory": 100_000 << 20}
    assert "num_replicas" not in found
    assert options([ModelSpec("a", "x")], Scale(min_replicas=3))["num_replicas"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "models"),
        ({"models": [{"name": "a", "target": "x", "colour": 1}]}, "colour"),
        ({"models": [], "scales": {}}, "scales"),
        ({"models": [], "scale": {"gpus": 99}}, "gpus"),
    ],
)
def test_arguments_of_a_configuration_file_are_checked(arguments, said):
    with pytest.raises(UsageError, match=said):
        build(arguments)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_error_has_the_command():
    with pytest.raises(MissingExtraError, match="serve-ray"):
        build({"models": [{"name": "a", "target": "x.engine"}]})


def test_files_are_named_in_a_way_that_other_processes_understand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Path.cwd()
    assert absolute(ModelSpec("a", "nets/a.engine")).target == str(here / "nets/a.engine")
    assert absolute(ModelSpec("a", "nets/a.py:A")).target == f"{here}/nets/a.py:A"
    assert absolute(ModelSpec("a", "package.a:A")).target == "package.a:A"


def test_what_the_environment_says_of_ray_stays(monkeypatch):
    for name in INGRESS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_SERVE_ENABLE_HA_PROXY", "0")
    found = apply_settings()
    assert found.pop("RAY_SERVE_ENABLE_HA_PROXY") == "0"
    assert found == {name: value for name, value in INGRESS.items() if name in found}


TRACEBACK = """failed to start 3 times in a row. Error:
RuntimeError: Traceback (most recent call last):
  File "broken.py", line 3, in load
OSError: no weights

The above exception was the direct cause of the following exception:

  File "replica.py", line 113, in _loaded
pytrtplugins.errors.UsageError: broken.py:Broken: load raised OSError: no weights
Do: python -c "import broken"
"""


def test_of_a_traceback_the_last_error_is_shown_with_its_command():
    assert last_error(TRACEBACK).splitlines() == [
        "broken.py:Broken: load raised OSError: no weights",
        'Do: python -c "import broken"',
    ]
    assert last_error(" waits for a node ") == "waits for a node"


def node(address, **resources):
    return {"Alive": True, "NodeManagerAddress": address, "Resources": {"memory": 1 << 40, **resources}}


def test_replicas_on_several_machines_need_an_address_that_all_can_reach():
    nodes = [node("10.0.0.1"), node("10.0.0.2")]
    with pytest.raises(UsageError, match=r"--host 0\.0\.0\.0"):
        _check_reachable(nodes, "127.0.0.1")
    _check_reachable(nodes, "0.0.0.0")
    _check_reachable(nodes[:1], "127.0.0.1")
    _check_reachable([nodes[0], {**nodes[1], "Alive": False}], "127.0.0.1")


@pytest.mark.parametrize(("gpus", "warned"), [(0, False), (0.5, False), (2, True)])
def test_it_says_that_no_node_can_take_a_replica(gpus, warned, caplog):
    _warn_of_waiting([node("10.0.0.1", CPU=2), node("10.0.0.2", CPU=4, GPU=1)], Scale(cpus=4, gpus=gpus))
    assert ("waiting for one" in caplog.text) is warned
