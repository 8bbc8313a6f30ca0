"""Memory of GPUs that clients share: with a stand-in for CUDA's driver on this machine, and with a GPU."""

import base64
import ctypes
import subprocess
import sys
from enum import IntEnum
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda.driver import Driver
from pytrtplugins.errors import UnavailableError
from pytrtplugins.serving import Limits
from pytrtplugins.serving.protocol import cuda_memory
from tests.serving.conftest import Client, spec
from tests.serving.running import running

LIMITS = Limits(shared_memory_regions=3)
INFER, REGION = "/v2/models/double/infer", "/v2/cudasharedmemory/region"
HANDLE = bytes(range(64))


class Code(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


class HostDriver:
    """What the server calls of CUDA's driver, on memory of this process: one GPU, one block of 64 bytes, under `HANDLE`."""

    CUipcMem_flags = SimpleNamespace(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS=SimpleNamespace(value=1))

    def __init__(self):
        self.memory = ctypes.create_string_buffer(64)
        self.contexts, self.open = [], 0

    class CUipcMemHandle:
        def __init__(self):
            self.raw = ctypes.create_string_buffer(64)

        def getPtr(self):
            return ctypes.addressof(self.raw)

    def cuGetErrorString(self, code):
        return Code.CUDA_SUCCESS, b"invalid argument"

    def cuInit(self, flags):
        return (Code.CUDA_SUCCESS,)

    def cuDeviceGet(self, number):
        return (Code.CUDA_SUCCESS, number) if number == 0 else (Code.CUDA_ERROR_INVALID_VALUE, None)

    def cuDevicePrimaryCtxRetain(self, device):
        return Code.CUDA_SUCCESS, "context"

    def cuCtxPushCurrent(self, context):
        self.contexts.append(context)
        return (Code.CUDA_SUCCESS,)

    def cuCtxPopCurrent(self):
        return Code.CUDA_SUCCESS, self.contexts.pop()

    def cuIpcOpenMemHandle(self, handle, flags):
        assert self.contexts
        if handle.raw.raw != HANDLE:
            return Code.CUDA_ERROR_INVALID_VALUE, None
        self.open += 1
        return Code.CUDA_SUCCESS, ctypes.addressof(self.memory)

    def cuIpcCloseMemHandle(self, address):
        assert self.contexts
        self.open -= 1
        return (Code.CUDA_SUCCESS,)

    def cuMemGetAddressRange(self, address):
        return Code.CUDA_SUCCESS, ctypes.addressof(self.memory), 64

    def cuMemcpyDtoH(self, into, address, size):
        assert self.contexts
        ctypes.memmove(into, address, size)
        return (Code.CUDA_SUCCESS,)

    def cuMemcpyHtoD(self, address, data, size):
        return self.cuMemcpyDtoH(address, data, size)


@pytest.fixture
def card(monkeypatch):
    made = HostDriver()
    monkeypatch.setattr(cuda_memory, "driver", lambda: Driver(made))
    return made


@pytest.fixture
def client():
    with Client([spec("double", "Double")], LIMITS) as made:
        yield made


def register(client, handle=HANDLE, device_id=0, byte_size=64, name="g"):
    raw = {"b64": base64.b64encode(handle).decode()}
    return client.post(f"{REGION}/{name}/register", {"raw_handle": raw, "device_id": device_id, "byte_size": byte_size})


def place(offset=0, size=8):
    return {"shared_memory_region": "g", "shared_memory_offset": offset, "shared_memory_byte_size": size}


def request(into, out):
    given = {"name": "x", "shape": [1, 2], "datatype": "FP32", "parameters": into}
    return {"inputs": [given], "outputs": [{"name": "y", "parameters": out}]}


def test_tensors_go_into_and_out_of_a_gpus_memory(client, card):
    assert register(client).status == 200
    card.memory[8:16] = np.float32([5, 6]).tobytes()
    for _ in range(2):
        answer = client.post(INFER, request(place(8), place(32)))
        assert answer.json["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 2]}]
        assert np.frombuffer(card.memory[32:40], np.float32).tolist() == [10, 12]
    assert card.open == 1  # a handle is opened once
    assert client.get("/v2/cudasharedmemory/status").json == [{"name": "g", "device_id": 0, "byte_size": 64}]
    assert client.get("/v2/systemsharedmemory/status").json == []
    assert "Invalid offset + byte size" in client.post(INFER, request(place(60), place(32))).json["error"]
    client.post("/v2/systemsharedmemory/unregister")
    assert card.open == 1
    client.post(f"{REGION}/g/unregister")
    assert (card.open, card.contexts) == (0, [])
    assert client.post(INFER, request(place(8), place(32))).status == 404


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"handle": b"short"}, "'raw_handle' must have the 64 bytes of a CUDA IPC handle"),
        ({"handle": bytes(64)}, "cuIpcOpenMemHandle gives CUDA_ERROR_INVALID_VALUE"),
        ({"device_id": 7}, "the server cannot use GPU 7: CUDA: cuDeviceGet"),
        (
            {"device_id": -1},
            "Unable to parse 'device_id' of region 'g': it must be the number of a GPU; the request has -1",
        ),
        ({"byte_size": 65}, "the memory of the GPU has 64 bytes, and the request has 65"),
        ({"byte_size": 0}, "failed to register shared memory region 'g': invalid args: it has no bytes"),
        ({"name": "taken"}, "shared memory region 'taken' already in manager"),
    ],
)
def test_what_is_no_memory_of_a_gpu_is_refused(client, card, change, text):
    register(client, name="taken", byte_size=32)
    answer = register(client, **change)
    assert answer.status == 400
    assert text in answer.json["error"]
    assert (card.open, card.contexts) == (1, [])
    assert [each["name"] for each in client.get("/v2/cudasharedmemory/status").json] == ["taken"]


def test_without_a_gpu_the_error_says_so(client, monkeypatch):
    def none():
        raise UnavailableError("NVIDIA's driver is not installed.\nDo: nvidia-smi")

    monkeypatch.setattr(cuda_memory, "driver", none)
    assert "the server cannot use GPU 0: NVIDIA's driver is not installed." in register(client).json["error"]


CLIENT = """
import sys
import numpy as np
import tritonclient.http as http
from tritonclient.utils import cuda_shared_memory as shared

client = http.InferenceServerClient(sys.argv[1])
region = shared.create_shared_memory_region("g", 64, 0)
client.register_cuda_shared_memory("g", shared.get_raw_handle(region), 0, 64)
shared.set_shared_memory_region(region, [np.float32([[5, 6]])])
given = http.InferInput("x", [1, 2], "FP32")
given.set_shared_memory("g", 8)
print(client.infer("double", [given]).as_numpy("y").tolist())
wanted = http.InferRequestedOutput("y")
wanted.set_shared_memory("g", 8)
client.infer("double", [given], outputs=[wanted])
print(shared.get_contents_as_numpy(region, np.float32, [1, 2]).tolist())
client.unregister_cuda_shared_memory()
"""


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_tritonclient_shares_memory_of_a_gpu():
    for name in (
        "geventhttpclient",
        "tritonclient.http",
        "tritonclient.utils.cuda_shared_memory",
    ):  # for another process
        pytest.importorskip(name, reason="pip install 'tritonclient[http,cuda]'", exc_type=ImportError)
    with running(
        [spec("double", "Double")], LIMITS
    ) as server:  # another process: a handle is for others than its maker
        words = [sys.executable, "-c", CLIENT, f"127.0.0.1:{server.port}"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["[[10.0, 12.0]]"] * 2, done.stderr
