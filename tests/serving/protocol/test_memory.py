"""Memory that clients share with the server: NVIDIA's client, unchanged, and clients that are not."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import pytest

from pytrtplugins.serving import Limits
from pytrtplugins.serving.shared.settings import SharedSettings
from tests.serving.conftest import INFER, Client, spec, until
from tests.serving.running import running
from tests.serving.served import Slow
from tests.serving.server_process import server_process

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
LIMITS = Limits(body_bytes=1 << 20, shared_memory_regions=3)
NUMBERS = itertools.count()
REGION = "/v2/systemsharedmemory/region"


def new_key():
    """A name that nobody else uses."""
    return f"pytrt-test-{os.getpid()}-{next(NUMBERS)}"


@contextmanager
def an_object(size):
    """An object in shared memory, and its key."""
    made = shared_memory.SharedMemory(new_key(), create=True, size=size)
    try:
        yield made, made.name
    finally:
        made.close()
        made.unlink()


@pytest.fixture
def client():
    with Client([spec("double", "Double")], LIMITS) as made:
        yield made


def place(name="r", size=8, offset=0):
    return {"shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset}


def request(into=None, out=None):
    given = {"name": "x", "shape": [1, 2], "datatype": "FP32"}
    given |= {"data": [1, 2]} if into is None else {"parameters": into}
    return {"inputs": [given], "outputs": [{"name": "y", "parameters": out or {}}]}


def register(client, key, name="r", offset=0, size=64):
    return client.post(f"{REGION}/{name}/register", {"key": key, "offset": offset, "byte_size": size})


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_tritonclient_puts_inputs_and_outputs_into_shared_memory(kind):
    library = pytest.importorskip(f"tritonclient.{kind}", reason=f"pip install 'tritonclient[{kind}]'")
    shared = pytest.importorskip("tritonclient.utils.shared_memory")
    key = new_key()
    with running([spec("double", "Double")], LIMITS, grpc=True) as server:
        handle = shared.create_shared_memory_region("both", f"/{key}", 64)
        try:
            with library.InferenceServerClient(
                f"127.0.0.1:{server.port if kind == 'http' else server.grpc_port}"
            ) as client:
                client.register_system_shared_memory("both", f"/{key}", 64)
                shared.set_shared_memory_region(handle, [np.array([[1, 2], [3, 4]], np.float32)])
                row = library.InferInput("x", [2, 2], "FP32")
                row.set_shared_memory("both", 16)
                wanted = library.InferRequestedOutput("y")
                wanted.set_shared_memory("both", 32, offset=32)
                answer = client.infer("double", [row], outputs=[wanted])
                assert answer.get_output("y") is not None
                found = shared.get_contents_as_numpy(handle, np.float32, [2, 2], offset=32)
                assert found.tolist() == [[2, 4], [6, 8]]
                (status,) = (
                    dict(client.get_system_shared_memory_status(as_json=True)["regions"]).values()
                    if (kind == "grpc")
                    else client.get_system_shared_memory_status()
                )
                assert (status["name"], int(status["byte_size"])) == ("both", 64)
                client.unregister_system_shared_memory()
                with pytest.raises(
                    library.InferenceServerException, match=r"Unable to find shared memory region: '\w+'"
                ):
                    client.infer("double", [row])
        finally:
            shared.destroy_shared_memory_region(handle)


def test_an_output_in_shared_memory_is_not_in_the_answer(client):
    with an_object(64) as (memory, key):
        assert register(client, key).status == 200
        memory.buf[8:16] = np.float32([5, 6]).tobytes()
        output = client.post(INFER, request(place(offset=8), place(offset=24, size=40))).json["outputs"][0]
        assert output == {"name": "y", "datatype": "FP32", "shape": [1, 2]}
        assert np.frombuffer(memory.buf[24:32], np.float32).tolist() == [10, 12]


def test_processes_with_one_board_know_each_others_regions_at_once():
    board = SharedSettings.create()
    with (
        an_object(64) as (memory, key),
        running([spec("double", "Double")], LIMITS, board=SharedSettings(board)) as first,
        running([spec("double", "Double")], LIMITS, board=SharedSettings(board)) as second,
    ):
        memory.buf[:8] = np.float32([5, 6]).tobytes()
        library = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
        clients = [library.InferenceServerClient(f"127.0.0.1:{each.port}") for each in (first, second)]
        row = library.InferInput("x", [1, 2], "FP32")
        row.set_shared_memory("r", 8)
        for one, other in (clients, clients[::-1]):
            one.register_system_shared_memory("r", key, 64)
            assert other.infer("double", [row]).as_numpy("y").tolist() == [[10, 12]]
            other.unregister_system_shared_memory("r")
            with pytest.raises(library.InferenceServerException, match=r"Unable to find shared memory region: '\w+'"):
                one.infer("double", [row])
        for each in clients:
            each.close()
    os.close(board)


@pytest.mark.parametrize(
    "key", ["../etc/passwd", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "x" * 300, 7, None, ".hidden", "é"]
)
def test_a_key_that_is_no_name_of_an_object_is_refused(client, key):
    answer = register(client, key)
    assert answer.status == 400
    assert "cannot register shared memory region 'r' - invalid shm key" in answer.json["error"]


def test_links_folders_and_pipes_are_no_memory(client):
    name = new_key()
    path = Path("/dev/shm") / name
    for make, remove in (
        (lambda: path.symlink_to("/etc/passwd"), path.unlink),
        (path.mkdir, path.rmdir),
        (lambda: os.mkfifo(path), path.unlink),
    ):
        make()
        try:
            assert register(client, name).status == 400
        finally:
            remove()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"byte_size": 65}, "has 64 bytes, and 65 at 0 are not within it"),
        ({"offset": 1}, "has 64 bytes, and 64 at 1 are not within it"),
        ({"offset": 1 << 63}, "64 at 9,223,372,036,854,775,808 are not within it"),
        ({"offset": 1 << 64}, "Unable to parse 'offset' of region 'r': it must be a number of bytes"),
        (
            {"byte_size": -1},
            "Unable to parse 'byte_size' of region 'r': it must be a number of bytes; the request has -1",
        ),
        ({"byte_size": 0}, "failed to register shared memory region 'r': invalid args"),
        ({"byte_size": True}, "it must be a number of bytes; the request has True"),
        ({"byte_size": None}, "it must be a number of bytes; the request has None"),
    ],
)
def test_a_region_outside_of_its_object_is_refused(client, change, text):
    with an_object(64) as (_, key):
        body = {"key": key, "offset": 0, "byte_size": 64, **change}
        assert text in client.post(f"{REGION}/r/register", body).json["error"]


def test_regions_are_bounded_and_have_one_name(client):
    with an_object(64) as (_, key):
        assert [register(client, key, name).status for name in ("a", "a", "b", "c", "d")] == [200, 400, 200, 200, 400]
        assert [each["name"] for each in client.get("/v2/systemsharedmemory/status").json] == ["a", "b", "c"]
        assert client.get(f"{REGION}/b/status").json[0]["key"] == key
        assert client.get(f"{REGION}/z/status").status == 404
        assert [client.post(f"{REGION}/{name}/unregister").status for name in ("a", "a")] == [200, 200]
        assert client.post("/v2/systemsharedmemory/unregister").status == 200
        assert client.get("/v2/systemsharedmemory/status").json == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (place("nothing"), "Unable to find shared memory region: 'nothing'"),
        (place(""), "Unable to parse 'shared_memory_region' of "),
        (place(7), "it must be a name; the request has 7"),
        (
            place(size=65),
            "Invalid offset + byte size for shared memory region: 'r' has 64 bytes, the request has 65 at 0",
        ),
        (place(size=8, offset=60), "Invalid offset + byte size for shared memory region: 'r'"),
        (place(size=8, offset=64), "Invalid offset for shared memory region: 'r'"),
        (place(size=-8), "it must be a number of bytes; the request has -8"),
        (place(size=None), "it must be a number of bytes; the request has None"),
        (place(offset="0"), "it must be a number of bytes; the request has '0'"),
    ],
)
def test_a_tensor_outside_of_its_region_is_refused(client, given, text):
    with an_object(64) as (_, key):
        register(client, key)
        for body in (request(into=given), request(out=given)):
            answer = client.post(INFER, body)
            assert answer.status == (404 if text.startswith("Unable to find") else 400)
            assert text in answer.json["error"]


def test_a_tensor_is_in_one_place(client):
    with an_object(64) as (_, key):
        register(client, key)
        twice = request(into=place())
        twice["inputs"][0]["data"] = [1, 2]
        for body in (
            twice,
            request(out={**place(), "binary_data": True}),
            request(out={**place(), "classification": 1}),
        ):
            assert client.post(INFER, body).status == 400


def test_tensors_have_the_size_that_their_dims_need(client):
    with an_object(64) as (_, key):
        register(client, key)
        assert (
            "input byte size mismatch for input 'x' for model 'double'. Expected 8, got 12"
            in client.post(INFER, request(into=place(size=12))).json["error"]
        )
        assert (
            "for output 'y' (4 bytes) should be at least 8 bytes to hold the results"
            in client.post(INFER, request(out=place(size=4))).json["error"]
        )


@pytest.mark.parametrize("slashes", ["", "/", "///"])
def test_objects_of_tritons_python_backend_are_not_for_clients(client, slashes):
    answer = register(client, f"{slashes}triton_python_backend_shm_region_1")
    assert (answer.status, "as the key contains the reserved prefix" in answer.json["error"]) == (400, True)


def test_a_sum_beyond_64_bits_is_refused(client):
    with an_object(64) as (_, key):
        register(client, key)
        answer = client.post(INFER, request(out=place(size=(1 << 64) - 32, offset=32)))
        assert "Integer overflow detected: byte_size (18446744073709551584) + offset (32)" in answer.json["error"]


def names(client):
    return [each["name"] for each in client.get("/v2/systemsharedmemory/status").json]


def test_a_region_that_a_request_uses_is_forgotten_once_it_is_answered(held):
    with Client([spec("double", "Slow")], LIMITS) as client:
        other = SharedSettings(client.app.memory._board._descriptor)

        async def run(body):
            request = asyncio.create_task(client.call("POST", INFER, json.dumps(body).encode()))
            await until(Slow.entered.is_set)
            await client.call("POST", "/v2/systemsharedmemory/unregister")
            kept = json.loads((await client.call("GET", "/v2/systemsharedmemory/status")).body)
            Slow.go.set()
            return [each["name"] for each in kept], await request

        with an_object(64) as (memory, key):
            memory.buf[:8] = np.float32([5, 6]).tobytes()
            for name in ("r", "out", "unused"):
                register(client, key, name)
            kept, answer = client.loop.run_until_complete(run(request(place(), place("out", offset=32))))
            assert (kept, answer.status) == (["r", "out"], 200)
            assert np.frombuffer(memory.buf[32:40], np.float32).tolist() == [10, 12]
            assert names(client) == []
            assert register(client, key).status == 200  # the name is free again
        assert not other.is_held("r")


HOLD = """
import sys
from pytrtplugins.serving.shared.settings import SharedSettings
board = SharedSettings(int(sys.argv[1]))
board.hold("r")
print(flush=True)
input()
"""


def test_a_process_that_dies_holds_nothing():
    board = SharedSettings()
    command = [sys.executable, "-c", HOLD, str(board._descriptor)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[board._descriptor], text=True
    ) as process:
        process.stdout.readline()
        assert board.is_held("r")
        assert not board.is_held("other")
        process.kill()
        process.wait(20)
    assert not board.is_held("r")
    board.close()


def test_a_tensor_is_not_larger_than_a_body(client):
    with an_object(2 << 20) as (_, key):
        register(client, key, size=2 << 20)
        assert client.post(INFER, request(into=place(size=(1 << 20) + 1))).status == 413


def test_an_object_that_is_cut_replaced_or_removed_is_an_error_and_the_server_goes_on(client):
    name = new_key()
    path = Path("/dev/shm") / name
    path.write_bytes(bytes(8192))
    try:
        register(client, name, size=8192)
        body = request(place(offset=4096), place(offset=8000))
        assert client.post(INFER, body).status == 200
        os.truncate(path, 4000)
        assert "made smaller" in client.post(INFER, body).json["error"]
        assert path.stat().st_size == 4000  # an output does not let it grow again
        path.unlink()
        assert "No such file" in client.post(INFER, body).json["error"]
        path.write_bytes(bytes(8192))
        assert "was replaced" in client.post(INFER, body).json["error"]
    finally:
        path.unlink(missing_ok=True)
    assert client.post(INFER, request()).status == 200


def test_without_the_option_nothing_is_shared():
    with Client([spec("double", "Double")]) as made:
        with an_object(64) as (_, key):
            refused = [register(made, key), made.post(f"{REGION}/r/unregister"), made.post(INFER, request(place()))]
        for answer in refused:
            assert answer.status == 501
            assert (
                answer.json["error"]
                == "Client shared memory is disabled. Start the server with '--shared-memory' to enable."
            )
        assert made.get("/v2/systemsharedmemory/status").json == []
        assert "system_shared_memory" not in made.get("/v2").json["extensions"]


def test_a_board_keeps_its_document_when_a_change_fails():
    descriptor = SharedSettings.create()
    one, other = SharedSettings(descriptor), SharedSettings(descriptor)

    def fail(document):
        document["x"] = 2
        raise KeyError("x")

    one.change(lambda document: document.update(x=1))
    with pytest.raises(KeyError):
        other.change(fail)
    assert json.dumps(other.read()) == '{"x": 1}'
    for number in range(5):
        (one, other)[number % 2].change(lambda document: document.update(x=document["x"] + 1))
    assert one.read() == other.read() == {"x": 6}
    os.close(descriptor)


@pytest.mark.slow
def test_every_process_of_a_server_knows_a_region_and_one_that_replaces_another_too():
    library = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    with (
        an_object(64) as (memory, key),
        server_process([spec("double", "Double")], cpu=2, limits={"shared_memory_regions": 1}) as server,
    ):
        address = server.address.removeprefix("http://")
        row = library.InferInput("x", [1, 2], "FP32")
        row.set_shared_memory("r", 8)
        with library.InferenceServerClient(address) as client:
            client.register_system_shared_memory("r", key, 64)
        for number in range(60):  # each over its own connection, which either process may take
            memory.buf[:8] = np.float32([number, 1]).tobytes()
            with library.InferenceServerClient(address) as client:
                assert client.infer("double", [row]).as_numpy("y").tolist() == [[2 * number, 2]]
            if number == 30:
                for pid in server.children()["cpu"]:
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.1)  # until their connections are gone
