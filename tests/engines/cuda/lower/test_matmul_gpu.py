"""Products on a GPU: with constant matrices by each family of kernels, and of computed tensors."""

import pytest

import pytrtplugins as ptp
from pytrtplugins.engines.cuda.device.cublaslt import cublaslt_version
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import assert_near, by_reference
from tests.engines.cuda.lower.test_matmul import Rows, gelu_of_erf, gelu_of_tanh

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

BOUNDS = {"fp32": 1e-5, "tf32": 3e-3, "fp16": 4e-3}
OTHERS = {
    "all": [],
    "cuDNN": ["handwritten-kernels", "cublaslt-kernels"],
    "cuBLASLt": ["handwritten-kernels", "cudnn-kernels"],
    "plain": ["handwritten-kernels", "cudnn-kernels", "cublaslt-kernels"],
}


def assert_right(net, model, precision, disable):
    """The network's numbers are the reference engine's; what it runs as."""
    prepared, inputs = prepare(model), net.arrays()
    wanted = by_reference(prepared, inputs)
    engine = ptp.build(prepared, engine="cuda", precision=precision, settings={"disable": ["tactics", *disable]})
    with engine.create_context() as context:
        for _ in range(3):  # the first is captured
            assert_near(context.run(inputs), wanted, BOUNDS[precision])
        return next(iter(context._ready.values())).execution.segments


@pytest.mark.parametrize("disable", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize(("dims", "columns"), [((1, 64), 21), ((5, 13), 96), ((197, 768), 96), ((2, 3, 5, 24), 21)])
def test_rows_times_a_matrix(dims, columns, precision, disable):
    net = Rows(*dims)
    matrix, row = net.values(dims[-1], columns), net.values(columns)
    model = net.model(net.add("Add", [net.add("MatMul", ["x", matrix], "product"), row], "y"))
    assert len(assert_right(net, model, precision, disable)) == 1


@pytest.mark.parametrize("disable", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize("write", [gelu_of_erf, gelu_of_tanh])
def test_two_layers_with_gelu_and_a_residual(write, precision, disable):
    net = Rows(2, 50, 64)
    first = net.add("Add", [net.add("MatMul", ["x", 4 * net.values(64, 256)], "first"), net.values(256)], "biased")
    second = net.add("MatMul", [write(net, first, 1), net.values(256, 64)], "second")
    model = net.model(net.add("Add", ["x", second], "y"))
    assert len(assert_right(net, model, precision, disable)) == 1


@pytest.mark.parametrize("disable", [[], ["cublaslt-kernels"]], ids=["cuBLASLt", "CuPy"])
@pytest.mark.parametrize("precision", list(BOUNDS))
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((12, 197, 64), (12, 64, 197)),
        ((2, 3, 7, 5), (3, 5, 9)),
        ((2, 1, 3, 16), (1, 6, 16, 1)),
        ((4, 8), (8,)),
        ((8, 4, 64, 64), (4, 64, 64)),
        ((6, 16, 24), (5, 6, 24, 16)),
        ((5, 1, 7, 16), (1, 6, 16, 9)),
    ],
)
def test_products_of_computed_tensors(a, b, precision, disable):
    net = Rows(*a)
    net.inputs["z"] = b
    model = net.model(net.add("MatMul", [net.add("Neg", ["x"], "first"), net.add("Neg", ["z"], "second")], "y"))
    segments = assert_right(net, model, precision, disable)
    captured = not disable and cublaslt_version()
    assert (len(segments) == 1 and segments[0].capturable) == bool(captured)
