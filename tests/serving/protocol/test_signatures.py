"""An answer is what `context.run` gives: models of all kinds of signatures, on engines, over HTTP and gRPC, in one process, behind an
engine process and in several processes."""

from __future__ import annotations

import functools
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.serving import Limits, ModelSpec
from tests.real_triton import free_port
from tests.serving.conftest import Client, spec
from tests.serving.running import running
from tests.serving.server_process import server_process

http = pytest.importorskip("tritonclient.http")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException


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
    "no inputs": Case("() => (float[3] y) { y = Constant <value_floats = [1.0, 2.0, 3.0]> () }", ()),
    "no batch": Case("(float x) => (float y) { y = Neg (x) }", ((),)),
    "rows that are picked": Case(
        "(float[N,3] x, bool[N] c) => (float[K,3] y) { y = Compress <axis = 0> (x, c) }", ((4, 3), (4,))
    ),
    "two batches": Case(
        "(float[N,3] x, float[M,3] z) => (float[N,M] y) { t = Transpose (z) y = MatMul (x, t) }", ((2, 3), (4, 3))
    ),
    "columns without elements": Case("(float[N,M] x) => (float[N,M] y) { y = Relu (x) }", ((2, 0),)),
    "an output twice": Case(
        "(float[N,3] x) => (float[N,3] y, float[N,3] z) { y = Relu (x) z = Identity (y) }", ((2, 3),)
    ),
    "the input as it is": Case("(float[N,3] x) => (float[N,3] y) { y = Identity (x) }", ((2, 3),)),
    "two outputs of other rows": Case(
        "(float[2,3] x) => (float[2,3] y, float[3,2] z) { y = Abs (x) z = Transpose (x) }", ((2, 3),)
    ),
}


MIXING = {
    "softmax of rows": "y = Softmax <axis = 0> (x)",
    "sums over time": "a = Constant <value_ints = [0]> () b = Squeeze (a) y = CumSum (x, b)",
    "distances to the mean": "m = ReduceMean (x) y = Sub (x, m)",
    "attention": "t = Transpose (x) s = MatMul (x, t) p = Softmax <axis = 1> (s) y = MatMul (p, x)",
    "rows backwards": "b = Constant <value_ints = [-1]> () e = Constant <value_ints = [-100]> () a = Constant <value_ints = [0]> () "
    "y = Slice (x, b, e, a, b)",
    "scale of all": "q, s, z = DynamicQuantizeLinear (x) y = DequantizeLinear (q, s, z)",
    "shares of a batch": "a = Constant <value_ints = [0]> () s = Shape (x) n = Gather (s, a) f = Cast <to = 1> (n) y = Div (x, f)",
}
"""Networks whose first axis is free and no batch: joined requests would get answers that depend on each other."""
CASES |= {label: Case(f"(float[N,3] x) => (float[N,3] y) {{ {nodes} }}", ((3, 3),)) for label, nodes in MIXING.items()}
LAYOUTS = {"an engine process": {"cpu": 2, "engines": 1}, "models in each process": {"cpu": 2, "engines": 0}}
PLACES = [
    *(("one process", engine) for engine in ENGINES),
    *(
        pytest.param((layout, engine), marks=[pytest.mark.slow] * (engine != "onnxruntime"))
        for layout in (LAYOUTS if hasattr(os, "memfd_create") else ())
        for engine in ENGINES
    ),
]


def name_of(label):
    return label.replace(" ", "_").replace(",", "")


@functools.cache
def exchanges_of(engine):
    """The model of each case, the inputs of a request and the outputs that `context.run` gives."""
    exchanges = {}
    for label, case in CASES.items():
        model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> g {case.graph}')
        rng = np.random.default_rng(0)
        inputs = {
            info.name: np.asarray(rng.integers(-3, 4, dims)).astype(
                onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            )
            for info, dims in zip(model.graph.input, case.dims, strict=True)
        }
        with ptp.build(model, engine=engine).create_context() as context:
            exchanges[label] = model, inputs, context.run(inputs)
    return exchanges


def built(engine, folder):
    """Models of all cases as files, and of each case the inputs of a request with its outputs."""
    specs, exchanges = [], {}
    for label, (model, inputs, outputs) in exchanges_of(engine).items():
        path = folder / f"{name_of(label)}.onnx"
        onnx.save(model, path)
        specs.append(ModelSpec(name_of(label), str(path), engine=engine))
        exchanges[label] = inputs, outputs
    return specs, exchanges


@pytest.fixture(scope="module", params=PLACES, ids=" on ".join)
def server(request, tmp_path_factory):
    """The ports of HTTP and gRPC of a server, and what its models are asked."""
    layout, engine = request.param
    specs, exchanges = built(engine, tmp_path_factory.mktemp("models"))
    if layout in LAYOUTS:
        port = free_port()
        with server_process(specs, grpc_port=port, **LAYOUTS[layout]) as several:
            yield int(several.address.rpartition(":")[2]), port, exchanges
    else:
        with running(specs, LIMITS, grpc=True) as one:
            yield one.port, one.grpc_port, exchanges


def tensors(library, inputs, **options):
    made = []
    for name, array in inputs.items():
        tensor = library.InferInput(name, list(array.shape), NAMES[array.dtype.name])
        tensor.set_data_from_numpy(array, **options)
        made.append(tensor)
    return made


def over_http(client, name, inputs, outputs, binary):
    wanted = [http.InferRequestedOutput(output, binary_data=binary) for output in outputs]
    return client.infer(name, tensors(http, inputs, binary_data=binary), outputs=wanted)


def assert_same(answer, outputs):
    for name, array in outputs.items():
        output = answer.get_output(name)
        shape, datatype = (
            (output["shape"], output["datatype"]) if isinstance(output, dict) else (list(output.shape), output.datatype)
        )
        assert (shape, datatype) == (list(array.shape), NAMES[array.dtype.name])
        if array.size:  # else the client makes no array of it
            np.testing.assert_array_equal(answer.as_numpy(name), array)


def check(exchanges, infer):
    """Ask each model once, and name those whose answers differ."""
    failed = {}
    for label, (inputs, outputs) in exchanges.items():
        try:
            assert_same(infer(name_of(label), inputs, outputs), outputs)
        except (AssertionError, InferenceServerException) as error:
            failed[label] = str(error)
    assert not failed


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_over_http(server, binary):
    port, _, exchanges = server
    with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
        check(exchanges, lambda name, inputs, outputs: over_http(client, name, inputs, outputs, binary))


def test_over_grpc(server):
    library = pytest.importorskip("tritonclient.grpc")
    _, port, exchanges = server
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        check(exchanges, lambda name, inputs, _: client.infer(name, tensors(library, inputs)))


@pytest.mark.parametrize("label", [*MIXING, "free batch"])
def test_requests_at_once_get_the_answers_that_each_gets_alone(server, label):
    """A request of other rows waits beside each, with which it would be joined where the first axis is no batch."""
    port, _, exchanges = server
    inputs, outputs = exchanges[label]
    others = {"x": 1000 + np.arange(6, dtype=np.float32).reshape(2, 3)}

    def ask(given):
        with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            return over_http(client, name_of(label), given, outputs, True)

    with ThreadPoolExecutor(8) as pool:
        for answer in list(pool.map(ask, [inputs, others] * 8))[::2]:
            assert_same(answer, outputs)


def test_requests_that_are_joined_get_their_own_rows(server):
    """Several at once, of several rows each."""
    port = server[0]

    def ask(rows):
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        with http.InferenceServerClient(f"127.0.0.1:{port}") as client:
            answer = client.infer(name_of("free batch, reduced"), tensors(http, {"x": x}))
        return x, answer.as_numpy("y")

    with ThreadPoolExecutor(8) as pool:
        for x, y in pool.map(ask, [1, 2, 3, 4, 5, 1, 2, 3] * 3):
            np.testing.assert_allclose(y, x.sum(axis=1), rtol=1e-5)


@pytest.fixture
def other_rows():
    with Client([spec("other", "OtherRows")]) as made:
        yield made


@pytest.mark.parametrize("gives", [3, 1, 0])
def test_a_model_that_gives_other_rows_than_it_got_is_named_with_its_output(other_rows, gives):
    body = {"inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [gives, 0, 0, 0]}]}
    answer = other_rows.ask("POST", "/v2/models/other/infer", json.dumps(body).encode())
    assert answer.status == 500
    assert (
        f"OtherRows.predict: expected 2 rows of 'y', as many as it was given, found an array of ({gives}, 2)"
        in answer.json["error"]
    )
