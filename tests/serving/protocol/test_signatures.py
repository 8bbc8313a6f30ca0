"""An answer is what `context.run` gives: models of all kinds of signatures, on engines, over HTTP and gRPC, in one process and behind an
engine process."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.serving import Limits, ModelSpec
from tests.serving.conftest import Client, spec
from tests.serving.rig import Rig, infer
from tests.serving.running import running

http = pytest.importorskip("tritonclient.http")

LIMITS = Limits(body_bytes=1 << 20)
ENGINES = ["reference", "onnxruntime", "cpu"]
NAMES = {"float32": "FP32", "int64": "INT64", "bool": "BOOL"}


class Case(NamedTuple):
    """A model, and the dims of what it is asked."""

    graph: str
    dims: tuple[tuple[int, ...], ...]


CASES = {
    "fixed batch": Case("(float[4,3] x) => (float[4,3] y) { y = Relu (x) }", ((4, 3),)),
    "free batch": Case("(float[N,3] x) => (float[N,3] y) { y = Relu (x) }", ((3, 3),)),
    "free batch, reduced": Case(
        "(float[N,3] x) => (float[N] y) { a = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (x, a) }",
        ((3, 3),),
    ),
    "two free dims": Case("(float[N,M] x) => (float[N,M] y) { y = Neg (x) }", ((2, 5),)),
    "batch at another axis": Case("(float[3,N] x) => (float[3,N] y) { y = Neg (x) }", ((3, 4),)),
    "batch that moves": Case("(float[N,3] x) => (float[3,N] y) { y = Transpose (x) }", ((4, 3),)),
    "batch that joins": Case(
        "(float[N,M,3] x) => (float[K,3] y) { s = Constant <value_ints = [-1, 3]> () y = Reshape (x, s) }", ((2, 3, 3),)
    ),
    "a row less": Case(
        "(float[1,8,3] x) => (float[8,3] y) { a = Constant <value_ints = [0]> () y = Squeeze (x, a) }", ((1, 8, 3),)
    ),
    "scalar": Case("(float[2,3] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }", ((2, 3),)),
    "scalar of a free batch": Case("(float[N,3] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }", ((2, 3),)),
    "scalar in": Case("(float s, float[2,3] x) => (float[2,3] y) { y = Mul (x, s) }", ((), (2, 3))),
    "image and size": Case(
        "(float[1,3,N,M] x, int64[2] size) => (float[1,3,N,M] y, int64[2] z) { y = Abs (x) z = Add (size, size) }",
        ((1, 3, 4, 5), (2,)),
    ),
    "rows by values": Case("(float[6] x) => (int64[1,K] y) { y = NonZero (x) }", ((6,),)),
    "nothing": Case(
        "(float[2,3] x) => (float[0,3] y) { b = Constant <value_ints = [0]> () y = Slice (x, b, b) }", ((2, 3),)
    ),
    "two outputs of other rows": Case(
        "(float[2,3] x) => (float[2,3] y, float[3,2] z) { y = Abs (x) z = Transpose (x) }", ((2, 3),)
    ),
}


def named(label):
    return label.replace(" ", "_").replace(",", "")


@pytest.fixture(scope="module", params=ENGINES)
def models(request, tmp_path_factory):
    """What is served, with what each model is asked and gives."""
    folder, asked = tmp_path_factory.mktemp("models"), {}
    for label, case in CASES.items():
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {case.graph}')
        onnx.save(model, folder / f"{named(label)}.onnx")
        rng = np.random.default_rng(0)
        inputs = {
            info.name: np.asarray(rng.integers(-3, 4, dims)).astype(
                onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            )
            for info, dims in zip(model.graph.input, case.dims, strict=True)
        }
        with ptp.build(model, engine=request.param).create_context() as context:
            asked[label] = inputs, context.run(inputs)
    specs = [ModelSpec(named(label), str(folder / f"{named(label)}.onnx"), engine=request.param) for label in CASES]
    return specs, asked


@pytest.fixture(scope="module")
def server(models):
    with running(models[0], LIMITS, grpc=True) as found:
        yield found


def requested(library, inputs, **options):
    found = []
    for name, array in inputs.items():
        tensor = library.InferInput(name, list(array.shape), NAMES[array.dtype.name])
        tensor.set_data_from_numpy(array, **options)
        found.append(tensor)
    return found


def assert_same(found, wanted):
    assert found is not None
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize("label", CASES)
def test_over_http(models, server, label, binary):
    inputs, outputs = models[1][label]
    with http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in outputs]
        answer = client.infer(named(label), requested(http, inputs, binary_data=binary), outputs=wanted)
        for name, array in outputs.items():
            if binary or array.size:
                assert_same(answer.as_numpy(name), array)
            else:  # the client makes no array of it
                assert answer.get_output(name)["shape"] == list(array.shape)


@pytest.mark.parametrize("label", CASES)
def test_over_grpc(models, server, label):
    library = pytest.importorskip("tritonclient.grpc")
    inputs, outputs = models[1][label]
    with library.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        answer = client.infer(named(label), requested(library, inputs))
        for name, array in outputs.items():
            if array.size:
                assert_same(answer.as_numpy(name), array)
            else:
                assert list(answer.get_output(name).shape) == list(array.shape)


def test_behind_an_engine_process(models):
    specs, asked = models
    rig = Rig(specs)
    try:
        rig.engine()
        for label, (inputs, outputs) in asked.items():
            item = rig.do(infer(rig, inputs, named(label)))
            for name, array in outputs.items():
                assert_same(np.asarray(item.outputs[name]), array)
    finally:
        rig.close()


def test_requests_that_are_joined_get_their_own_rows(models, server):
    """Several at once, of several rows each."""
    from concurrent.futures import ThreadPoolExecutor

    def ask(rows):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        with http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
            answer = client.infer("free_batch_reduced", requested(http, {"x": x}))
        return x, answer.as_numpy("y")

    with ThreadPoolExecutor(8) as pool:
        for x, y in pool.map(ask, [1, 2, 3, 4, 5, 1, 2, 3] * 3):
            np.testing.assert_allclose(y, x.sum(axis=1), rtol=1e-5)


@pytest.fixture
def other_rows():
    made = Client([spec("other", "OtherRows")])
    yield made
    made.close()


@pytest.mark.parametrize("gives", [3, 1, 0])
def test_a_model_that_gives_other_rows_than_it_got_is_named_with_its_output(other_rows, gives):
    body = {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [gives, 0, 0, 0]}]}
    answer = other_rows.ask("POST", "/v2/models/other/infer", json.dumps(body).encode())
    assert answer.status == 500
    assert (
        f"OtherRows.predict: expected 2 rows of 'y', as many as it was given, found an array of ({gives}, 2)"
        in answer.json["error"]
    )
