"""The repositories in a real Triton server: the one in NVIDIA's wheel of PyTriton, which needs no GPU.

The wheel has Triton's core and its Python backend; triton_backend.py takes the onnxruntime backend's place.
"""

import json
import re
import shlex
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from pytrtplugins.export.triton import export_triton
from pytrtplugins.layers import Reorg
from tests.model.networks import Line, image, network, node
from tests.real_triton import copy_backends, needed, running_triton, site_packages

pytestmark = [pytest.mark.slow, needed]
NAMES = {"FP32": np.float32, "FP16": np.float16, "FP64": np.float64, "INT64": np.int64, "BOOL": np.bool_}


class Server:
    """A running server."""

    def __init__(self, url, log):
        self.url, self.log = url, log

    def get(self, path):
        with urllib.request.urlopen(f"{self.url}/v2/{path}") as answer:
            return json.loads(answer.read() or "{}")

    def ask(self, model, **arrays):
        """Run a model on arrays."""
        inputs = [
            {
                "name": name,
                "shape": array.shape,
                "datatype": next(text for text, dtype in NAMES.items() if array.dtype == dtype),
                "data": array.ravel().tolist(),
            }
            for name, array in arrays.items()
        ]
        body = json.dumps({"inputs": inputs}).encode()
        with urllib.request.urlopen(f"{self.url}/v2/models/{model}/infer", body) as answer:
            outputs = json.loads(answer.read())["outputs"]
        return {o["name"]: np.array(o["data"], NAMES[o["datatype"]]).reshape(o["shape"]) for o in outputs}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of all the models below, started by the command that the export gives."""
    folder = tmp_path_factory.mktemp("triton")
    _, *options = shlex.split(export_models(folder / "models"))
    backends, log = copy_backends(folder), folder / "log"
    add_onnxruntime(backends)
    with running_triton([*options, "--allow-grpc=false"], backends, log) as port:
        yield Server(f"http://127.0.0.1:{port}", log)


def add_onnxruntime(backends):
    """The backend that stands in."""
    (backends / "onnxruntime").mkdir()
    text = Path(__file__).with_name("triton_backend.py").read_text("utf-8")
    path = f"import sys\nsys.path.insert(0, {str(site_packages())!r})\n"
    (backends / "onnxruntime" / "model.py").write_text(path + text)


def export_models(repository):
    """All models; the command that serves them."""
    nodes = [node("Relu", "x", "a", "relu"), Reorg(2).as_node(["a"], ["y"], "reorg")]
    number = [node("ReduceMax", "x axes", "y", keepdims=0)]
    written = export_triton(network(nodes), repository, name="free", queue_delay=300_000, instances=1)
    export_triton(network(nodes), repository, name="free", queue_delay=300_000, version=2)
    export_triton(network(nodes, (2, 4, 6, 6)), repository, name="fixed")
    export_triton(network(number, ("N", "width"), axes=np.array([1])), repository, name="numbers")
    export_triton(network([node("ReduceMax", "x", "y", keepdims=0)], ("N", 3)), repository, name="one")
    for name in ("FLOAT16", "DOUBLE", "INT64", "BOOL"):
        infos = [helper.make_tensor_value_info(item, getattr(TensorProto, name), ["N", 3]) for item in "xy"]
        graph = helper.make_graph([node("Identity", "x", "y")], "net", infos[:1], infos[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        export_triton(model, repository, name=name)
    export_triton(network([Line(2, 1).as_node(["x"], ["y"], "line")]), repository, name="kind", kind="cpu", instances=2)
    return written.start


def test_requests_are_put_together_and_each_gets_its_own_answer(server):
    images = [image(batch) for batch in (1, 2, 1, 3, 1, 1, 2, 1)]
    with ThreadPoolExecutor(len(images)) as pool:
        answers = list(pool.map(lambda x: server.ask("free", x=x)["y"], images))
    for x, y in zip(images, answers, strict=True):
        np.testing.assert_array_equal(y, Reorg(2).compute(np.maximum(x, 0)))
    runs = [list(map(int, text.split(", "))) for text in re.findall(r"free ran \[(.*)\]", server.log.read_text())]
    assert sum(map(sum, runs)) == 12
    assert max(map(len, runs)) > 1
    assert max(map(sum, runs)) <= 8


def test_the_server_tells_clients_the_shapes_of_the_model(server):
    assert server.get("models/free")["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4, 6, 6]}]
    assert server.get("models/free")["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 16, 3, 3]}]
    assert server.get("models/fixed")["inputs"][0]["shape"] == [2, 4, 6, 6]
    assert server.get("models/free/config")["dynamic_batching"]["max_queue_delay_microseconds"] == 300_000
    assert [group["count"] for group in server.get("models/kind/config")["instance_group"]] == [2]


def test_a_fixed_batch_is_served_as_it_is(server):
    x = image(2)
    np.testing.assert_array_equal(server.ask("fixed", x=x)["y"], Reorg(2).compute(np.maximum(x, 0)))


def test_numbers_are_reshaped(server):
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    np.testing.assert_array_equal(server.ask("numbers", x=x)["y"].ravel(), [4, 9])
    np.testing.assert_array_equal(server.ask("one", x=x[:, :3])["y"].ravel(), [7])


@pytest.mark.parametrize("name", ["DOUBLE", "INT64", "BOOL"])
def test_types_arrive_as_they_are(server, name):
    x = np.array([[0, 1, 1]]).astype({"DOUBLE": "float64", "INT64": "int64", "BOOL": "bool"}[name])
    np.testing.assert_array_equal(server.ask(name, x=x)["y"], x)
    assert server.ask(name, x=x)["y"].dtype == x.dtype


@pytest.mark.parametrize(
    ("x", "message"), [(image(9), "batch-size must be <= 8"), (image(1, 3), r"Expected \[-1,4,6,6\], got \[1,3,6,6\]")]
)
def test_requests_that_do_not_fit_are_refused_by_the_server(server, x, message):
    with pytest.raises(urllib.error.HTTPError) as caught:
        server.ask("free", x=x)
    assert re.search(message, caught.value.read().decode())


def test_all_versions_and_models_are_ready(server):
    index = urllib.request.Request(f"{server.url}/v2/repository/index", b"", method="POST")
    with urllib.request.urlopen(index) as answer:
        found = json.loads(answer.read())
    ready = {(item["name"], item["version"]) for item in found if item.get("state") == "READY"}
    names = {"fixed", "numbers", "one", "kind", "FLOAT16", "DOUBLE", "INT64", "BOOL"}
    assert ready == {("free", "2")} | {(name, "1") for name in names}
