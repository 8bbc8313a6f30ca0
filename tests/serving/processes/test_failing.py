"""A model that raises is one line, whichever method it is, and the server goes on."""

import errno
import logging
import os
import socket

import pytest

from pytrtplugins.engines.registry import availability_of
from pytrtplugins.errors import UnavailableError, UsageError
from pytrtplugins.serving import ModelSpec
from pytrtplugins.serving.batching.replica import Replica
from pytrtplugins.serving.processes.server import bind
from pytrtplugins.serving.run import serve
from pytrtplugins.serving.shared.anonymous_memory import anonymous_memory
from tests.model.networks import network, node
from tests.serving.conftest import Client

INFER = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}


def spec(cls):
    return ModelSpec(cls.lower(), f"tests.serving.failing:{cls}")


@pytest.mark.parametrize(
    ("cls", "said", "command"),
    [
        ("InInit", "__init__ raised ValueError: no such thing", "m.InInit()"),
        ("Exits", "load raised SystemExit: 3", "m.Exits().load(None)"),
    ],
)
def test_at_the_start_it_is_one_line_and_the_command_that_shows_more(cls, said, command):
    with pytest.raises(UsageError) as caught:
        Replica(spec(cls), None, print)
    assert str(caught.value) == (
        f"tests.serving.failing:{cls}: {said}\n"
        f'Do: python -c "import tests.serving.failing as m; {command}", for the whole traceback'
    )


def test_an_object_that_cannot_be_made_a_second_time_ends_the_start_with_a_line():
    with pytest.raises(UsageError, match="Elsewhere: __init__ raised ValueError: already made"):
        Client([spec("Elsewhere")])


@pytest.fixture(scope="module")
def client():
    with Client([spec(cls) for cls in ("InPreprocess", "InPredict", "InPostprocess", "InClose")]) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/models/inpreprocess:predict", "InPreprocess.preprocess: SystemExit: bye"),
        ("/v2/models/inpredict/infer", "InPredict.predict: SystemExit: bye"),
        ("/v1/models/inpostprocess:predict", "InPostprocess.postprocess: ZeroDivisionError: by nothing"),
    ],
)
def test_in_a_request_it_is_the_answer_and_the_next_request_is_answered_too(client, path, said, caplog):
    for _ in range(2):
        answer = client.post(path, INFER)
        assert (answer.status, answer.json) == (500, {"error": said})
    assert "failing.py, line " in caplog.text
    assert client.post("/v2/models/inclose/infer", INFER).json["outputs"][0]["data"] == [2, 4]


def test_in_close_it_is_a_line_and_the_model_is_released(client, caplog):
    with caplog.at_level(logging.ERROR):
        assert client.post("/v2/repository/models/inclose/unload").status == 200
    assert "InClose.close: RuntimeError: it stays open (" in caplog.text
    assert client.post("/v2/repository/models/inclose/load").status == 200
    assert client.post("/v2/models/inclose/infer", INFER).status == 200


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux (memfd)")
@pytest.mark.parametrize("number", [errno.EFBIG, errno.EMFILE, errno.ENOMEM])
def test_memory_for_several_processes_that_cannot_be_had_is_one_line(monkeypatch, number):
    def refused(descriptor, size):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "ftruncate", refused)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(
        UsageError, match=f"4,096 bytes of shared memory cannot be allocated: {os.strerror(number)}"
    ) as caught:
        anonymous_memory("test", 4096)
    assert "Do: ulimit -f unlimited" in str(caught.value)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_port_for_grpc_that_is_taken_is_told_with_its_own_option():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {number} of 127.0.0.1 is taken") as caught:
            serve([spec("InClose")], port=0, grpc_port=number)
        assert f"--grpc-port {number + 1}" in str(caught.value)
        with pytest.raises(UsageError, match="--port"):
            bind("127.0.0.1", number)


def test_an_engine_that_this_machine_lacks_is_told_with_what_to_do(tmp_path):
    onnx = pytest.importorskip("onnx")
    if availability_of("cuda").available:
        pytest.skip("this machine has a GPU")
    onnx.save(network([node("Relu", "x", "y")]), tmp_path / "relu.onnx")
    with pytest.raises(UnavailableError, match="engine 'cuda' cannot be used here") as caught:
        Replica(ModelSpec("relu", str(tmp_path / "relu.onnx"), engine="cuda"), None, print)
    assert "\nDo: " in str(caught.value)
