"""NVIDIA's client over gRPC, unchanged, against a server in a thread."""

from __future__ import annotations

import queue
import socket
from contextlib import ExitStack, suppress

import numpy as np
import pytest

from pytrtplugins.serving import Limits, TensorSpec
from pytrtplugins.serving.protocol.grpc_infer import _explicit
from tests.serving.conftest import spec
from tests.serving.running import everything, running

pytest.importorskip("grpc", reason="pip install grpcio")
library = pytest.importorskip("tritonclient.grpc")
messages = pytest.importorskip("tritonclient.grpc.service_pb2")

LIMITS = Limits(body_bytes=1 << 20)


@pytest.fixture(scope="module")
def client():
    specs = [spec("double", "Double"), spec("lists", "Lists"), spec("shout", "Shout"), spec("files", "Files")]
    with (
        running(specs, LIMITS, grpc=True) as server,
        library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as made,
    ):
        yield made


def tensor(name, array, kind="FP32"):
    made = library.InferInput(name, list(array.shape), kind)
    made.set_data_from_numpy(array)
    return made


ROW = np.array([[1, 2]], np.float32)


def test_the_client_finds_the_server_and_its_models(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double", "1")
    assert client.get_server_metadata().name == "pytrtplugins"
    assert list(client.get_model_metadata("double").inputs[0].shape) == [-1, 2]
    config = client.get_model_config("double").config
    assert (config.max_batch_size, list(config.input[0].dims)) == (32, [2])
    assert [each.name for each in client.get_model_repository_index().models] == ["double", "lists", "shout", "files"]


def test_the_client_infers_with_bytes_classification_and_parameters(client):
    answer = client.infer("double", [tensor("x", ROW)], request_id="r7", priority=1, timeout=10_000_000)
    assert answer.as_numpy("y").tolist() == [[2, 4]]
    assert answer.get_response().id == "r7"
    wanted = [library.InferRequestedOutput("y", class_count=1)]
    assert client.infer("double", [tensor("x", ROW)], outputs=wanted).as_numpy("y").tolist() == [[b"4.000000:1:right"]]


def test_numbers_may_stand_in_the_message(client):
    request = messages.ModelInferRequest(model_name="double")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
    answer = client._client_stub.ModelInfer(request)
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [2, 4]


@pytest.mark.parametrize(
    ("datatypes", "contents"),
    [
        ("BOOL", "bool_contents"),
        ("INT8 INT16 INT32", "int_contents"),
        ("INT64", "int64_contents"),
        ("UINT8 UINT16 UINT32", "uint_contents"),
        ("UINT64", "uint64_contents"),
        ("FP32", "fp32_contents"),
        ("FP64", "fp64_contents"),
    ],
)
def test_numbers_of_each_type_have_the_field_of_the_protocol(datatypes, contents):
    for datatype in datatypes.split():
        tensor = messages.ModelInferRequest.InferInputTensor(name="x", datatype=datatype, shape=[2])
        getattr(tensor.contents, contents).extend([1, 0])
        assert _explicit(tensor, TensorSpec("x", datatype, (2,)), (2,), "model").tolist() == [1, 0]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model_name": "nothing"}, "NOT_FOUND"),
        ({"model_version": "9"}, "NOT_FOUND"),
        ({"inputs": []}, "INVALID_ARGUMENT"),
        ({"inputs": [messages.ModelInferRequest.InferInputTensor(name="z")]}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [b"1234"]}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [b"12345678"] * 2}, "INVALID_ARGUMENT"),
        ({"raw_input_contents": [np.float32([-1, 0]).tobytes()]}, "INTERNAL"),
        ({"outputs": [messages.ModelInferRequest.InferRequestedOutputTensor(name="z")]}, "INVALID_ARGUMENT"),
    ],
)
def test_a_request_that_does_not_fit_has_the_code_of_its_error(client, change, code):
    given = messages.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 2])
    whole = {"model_name": "double", "inputs": [given], "raw_input_contents": [ROW.tobytes()]}
    with pytest.raises(Exception) as caught:
        client._client_stub.ModelInfer(messages.ModelInferRequest(**{**whole, **change}))
    assert caught.value.code().name == code


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_a_message_beyond_the_limit_is_refused(client, compression):
    given = [tensor("x", np.zeros(300_000, np.int64), "INT64")]
    with pytest.raises(library.InferenceServerException, match="larger than max"):
        client.infer("lists", given, compression_algorithm=compression)


def test_a_stream_gives_answers_and_errors_in_the_order_of_its_requests(client):
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(5):
        client.async_stream_infer("lists", [tensor("x", np.arange(number + 1), "INT64")])
    client.async_stream_infer("double", [tensor("x", -ROW)])
    client.async_stream_infer("double", [tensor("x", ROW)])
    found = [answers.get(timeout=20) for _ in range(7)]
    client.stop_stream()
    assert [int(result.as_numpy("sum")) for result, _ in found[:5]] == [0, 1, 3, 6, 10]
    assert "Double.predict: ValueError: poison" in str(found[5][1])
    assert found[6][0].as_numpy("y").tolist() == [[2, 4]]


def test_the_client_reads_statistics_and_unloads_and_loads(client):
    (stats,) = client.get_inference_statistics("lists").model_stats
    assert stats.inference_count >= stats.execution_count
    client.unload_model("lists")
    assert not client.is_model_ready("lists")
    with pytest.raises(library.InferenceServerException, match="not ready: unloaded"):
        client.infer("lists", [tensor("x", np.arange(3), "INT64")])
    client.load_model("lists")
    assert client.is_model_ready("lists")
    client._client_stub.RepositoryModelUnload(
        messages.RepositoryModelUnloadRequest(repository_name="lists")
    )  # KServe's form
    assert not client.is_model_ready("lists")
    client._client_stub.RepositoryModelLoad(messages.RepositoryModelLoadRequest(repository_name="lists"))
    assert client.is_model_ready("lists")
    assert not client.is_model_ready("nothing")
    with pytest.raises(library.InferenceServerException, match="no files from clients"):
        client.load_model("lists", config="{}")


def test_strings_go_in_and_out(client):
    for given in (tensor("text", np.array([[b"ab"], [b"\xff"]], object), "BYTES"),):
        found = client.infer("shout", [given])
        assert found.as_numpy("loud").ravel().tolist() == [b"AB", b"\xff"]
    request = messages.ModelInferRequest(model_name="shout")
    request.inputs.add(name="text", datatype="BYTES", shape=[1, 1]).contents.bytes_contents.append(b"abc")
    assert client._client_stub.ModelInfer(request).raw_output_contents[0] == b"\3\0\0\0ABC"


def test_the_client_reads_trace_and_log_settings_and_cannot_change_them(client):
    assert client.get_trace_settings(as_json=True)["settings"]["trace_level"]["value"] == ["OFF"]
    client.update_trace_settings("double", settings={"trace_level": None, "trace_rate": "1000"})
    with pytest.raises(library.InferenceServerException, match="trace_rate is '1000'"):
        client.update_trace_settings(settings={"trace_rate": "1"})
    assert client.get_log_settings().settings["log_error"].bool_param
    client.update_log_settings({"log_error": True})
    with pytest.raises(library.InferenceServerException, match="log_file is ''"):
        client.update_log_settings({"log_file": "/etc/passwd"})


def test_a_stream_of_many_files_is_answered_in_order_with_its_errors(client):
    answers: queue.Queue = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for number in range(150):
        row = b"no number" if number == 70 else b"%d 0" % number
        client.async_stream_infer("files", [tensor("rows", np.array([row], object), "BYTES")], request_id=str(number))
    found = [answers.get(timeout=20) for _ in range(150)]
    client.stop_stream()
    assert "could not convert string to float" in str(found.pop(70)[1])
    assert [int(result.as_numpy("y")[0, 0]) for result, _ in found] == [2 * n for n in range(150) if n != 70]
    assert [result.get_response().id for result, _ in found] == [str(n) for n in range(150) if n != 70]


def test_there_is_a_limit_on_connections():
    """Those that are there go on; once one is gone, another is taken."""
    with (
        running([spec("double", "Double")], Limits(connections=3), grpc=True) as server,
        library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as made,
    ):
        assert made.is_server_live()
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection(("127.0.0.1", server.grpc_port), 20)) for _ in range(2)
            ]
            assert all(sock.recv(1) for sock in silent)
            with socket.create_connection(("127.0.0.1", server.grpc_port), 20) as further:
                assert everything(further) == b""
            assert made.is_server_live()
        while True:  # until the server has heard that they are gone
            with socket.create_connection(("127.0.0.1", server.grpc_port), 20) as further, suppress(ConnectionError):
                if further.recv(1):
                    break


def test_a_message_that_is_none_is_an_error_and_ends_no_stream(client):
    def bytes_of(message):
        return message if isinstance(message, bytes) else message.SerializeToString()

    channel, path = client._channel, "/inference.GRPCInferenceService/"
    with pytest.raises(Exception) as caught:
        channel.unary_unary(f"{path}ModelInfer", bytes_of)(b"\x0a\x7f")
    assert caught.value.code().name == "INVALID_ARGUMENT"
    good = messages.ModelInferRequest(model_name="double", id="g", raw_input_contents=[ROW.tobytes()])
    good.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    found = channel.stream_stream(f"{path}ModelStreamInfer", bytes_of, messages.ModelStreamInferResponse.FromString)(
        iter([b"\x0a\x7f", good])
    )
    told, answer = found
    assert "is not a ModelInferRequest" in told.error_message
    assert (answer.error_message, answer.infer_response.id) == ("", "g")


@pytest.mark.parametrize(
    "method", ["/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer", "/grpc.health.v1.Health/Check"]
)
def test_unknown_methods_are_unimplemented(client, method):
    grpc = pytest.importorskip("grpc")
    with pytest.raises(grpc.RpcError) as caught:
        client._channel.unary_unary(method)(b"", timeout=20)
    assert caught.value.code().name == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Model name cannot be empty. Please enter a valid name to deploy."),
        (" \t", "Model name cannot be empty. Please enter a valid name to deploy."),
        (
            "../etc",
            "invalid model name '../etc', model name must not contain path traversal characters: it is a name, not a path",
        ),
        ("..", "model name must not contain path traversal characters"),
        (
            "nothing",
            "failed to load 'nothing', failed to poll from model repository: the server has double, lists, shout, files",
        ),
    ],
)
def test_names_of_models_to_load_are_checked(client, name, text):
    with pytest.raises(library.InferenceServerException) as caught:
        client.load_model(name)
    assert text in str(caught.value)
