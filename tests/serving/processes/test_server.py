"""A server behind a port: what the real client of the protocol gets, and what slow and long requests do."""

import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.processes.server import bind
from tests.serving.conftest import spec
from tests.serving.running import running


def test_a_port_that_is_taken_is_one_line_and_the_next_command():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {number} of 127.0.0.1 is taken") as caught:
            bind("127.0.0.1", number)
    assert f"--port {number + 1}" in str(caught.value)


def test_an_address_of_another_machine_is_refused():
    with pytest.raises(UsageError, match=r"cannot listen on 192\.0\.2\.1"):
        bind("192.0.2.1", 0)


@pytest.fixture(scope="module")
def triton():
    library = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    with (
        running([spec("double", "Double"), spec("lists", "Lists")], Limits(body_bytes=1 << 20)) as server,
        library.InferenceServerClient(f"localhost:{server.port}", concurrency=2) as client,
    ):
        yield library, client


def tensor(library, name, array, binary):
    made = library.InferInput(name, array.shape, {"float32": "FP32", "int64": "INT64"}[array.dtype.name])
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def test_tritonclient_finds_the_server_and_its_models(triton):
    _, client = triton
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double")
    assert not client.is_model_ready("nothing")
    assert client.get_server_metadata()["name"] == "pytrtplugins"
    assert client.get_model_metadata("double", "1")["inputs"][0]["shape"] == [-1, 2]
    assert client.get_model_config("double")["max_batch_size"] == 32
    assert [each["name"] for each in client.get_model_repository_index()] == ["double", "lists"]


@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("out", [True, False])
def test_tritonclient_infers_with_bytes_and_json(triton, into, out):
    library, client = triton
    array = np.array([[1, 2], [3, 4]], np.float32)
    wanted = [library.InferRequestedOutput("y", binary_data=out)]
    answer = client.infer("double", [tensor(library, "x", array, into)], outputs=wanted, request_id="r1")
    np.testing.assert_array_equal(answer.as_numpy("y"), 2 * array)
    assert answer.get_response()["id"] == "r1"


def test_tritonclient_compresses_classifies_and_asks_for_all_outputs(triton):
    library, client = triton
    given = [tensor(library, "x", np.array([[1, 2]], np.float32), True)]
    answer = client.infer("double", given, request_compression_algorithm="gzip", priority=1, timeout=10_000_000)
    assert answer.as_numpy("y").tolist() == [[2, 4]]
    wanted = [library.InferRequestedOutput("y", class_count=1)]
    assert client.infer("double", given, outputs=wanted).as_numpy("y").tolist() == [[b"4.000000:1:right"]]


def test_tritonclient_infers_at_the_same_time(triton):
    library, client = triton
    arrays = [np.arange(size, dtype=np.int64) for size in range(1, 9)]
    asked = [client.async_infer("lists", [tensor(library, "x", array, True)]) for array in arrays]
    assert [int(each.get_result().as_numpy("sum")) for each in asked] == [array.sum() for array in arrays]


def test_tritonclient_gets_errors_with_their_status(triton):
    library, client = triton
    given = [tensor(library, "x", np.array([[1, 2, 3]], np.float32), True)]
    with pytest.raises(library.InferenceServerException, match="expected shape") as caught:
        client.infer("double", given)
    assert caught.value.status() == "400"
    with pytest.raises(
        library.InferenceServerException,
        match=r"Request for unknown model: 'nothing' is not found\. The server has double, lists",
    ):
        client.get_model_metadata("nothing")


def test_tritonclient_reads_statistics_and_unloads_and_loads(triton):
    _, client = triton
    stats = client.get_inference_statistics("lists")["model_stats"][0]
    assert stats["inference_count"] >= stats["execution_count"]
    client.unload_model("lists")
    assert not client.is_model_ready("lists")
    client.load_model("lists")
    assert client.is_model_ready("lists")
