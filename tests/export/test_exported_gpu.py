"""Exported plugins on a GPU: the values of compute, streams, and CUDA graphs."""

import importlib
import shutil

import numpy as np
import pytest

from pytrtplugins import native
from pytrtplugins.cuda import gpu_reason
from pytrtplugins.cuda.compiler import find_nvcc, find_nvrtc
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.tensor import DType, TensorDesc

from .layers import BlockSums, Join, MeanAndRest, Mix, Normalize, PRelu, Scale

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(bool(gpu_reason("cupy")), reason=gpu_reason("cupy") or "-"),
    pytest.mark.skipif(not (find_nvcc()[0] or find_nvrtc()[1]), reason="no nvcc and no NVRTC"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler. Do: apt-get install g++"),
    pytest.mark.skipif(not native.available(), reason="the native part is not built. Do: make native"),
]
REGION = Region(classes=3, num=2, softmax=True, anchors=(1, 2, 3, 4))
CASES = [
    (Reorg(2), [(2, 64, 26, 26)], "float32"),
    (Reorg(2), [(2, 64, 26, 26)], "float16"),
    (Reorg(2, True), [(2, 64, 26, 26)], "int8"),
    (REGION, [(2, 16, 13, 13)], "float32"),
    (Scale(0.5, True), [(3, 1000)], "float16"),
    (MeanAndRest(), [(2, 8, 5, 5)], "float32"),
    (Join("table"), [(3, 6), (3, 6)], "float32"),
    (BlockSums(), [(640,)], "float32"),
    (PRelu(slope=np.linspace(-1, 1, 8)), [(2, 8, 5, 5)], "float32"),
    (PRelu(slope=np.linspace(-1, 1, 700)), [(2, 700, 3)], "float16"),
    (Normalize(mean=np.linspace(-1, 1, 40), variance=np.linspace(0, 3, 40), epsilon=0.5), [(3, 40, 7)], "float32"),
    (Mix(matrix=np.arange(6).reshape(2, 3) / 8, offsets=[1, 2]), [(4, 3, 11)], "float32"),
]


@pytest.fixture(scope="module")
def entries(tmp_path_factory):
    """The exported class of each plugin."""
    made = {}

    def entry(plugin):
        cls = type(plugin)
        if cls not in made:
            path = tmp_path_factory.mktemp("exported") / f"lib{cls.__name__.lower()}.so"
            with pytest.MonkeyPatch.context() as patch:
                patch.delenv("TENSORRT_INCLUDE", raising=False)
                export_plugin(cls, path, fixed=REGION.fields() if cls is Region else {})
            (made[cls],) = importlib.import_module("pytrtplugins._native").load(str(path))
        return made[cls]

    return entry


@pytest.mark.parametrize(("plugin", "dims", "dtype"), CASES, ids=[f"{plugin!r}-{dtype}" for plugin, _, dtype in CASES])
def test_a_stream_and_a_graph_give_what_compute_gives(entries, plugin, dims, dtype):
    cupy = pytest.importorskip("cupy")
    arrays = [(np.random.default_rng(0).standard_normal(one) * 30).astype(dtype) for one in dims]
    expected = plugin.all_outputs(arrays)
    made = entries(plugin).make(plugin.fields())
    inputs, outputs = (
        [cupy.asarray(array) for array in arrays],
        [cupy.zeros_like(cupy.asarray(one)) for one in expected],
    )
    ins, outs = ([TensorDesc("", one.shape, DType.of(one)) for one in side] for side in (arrays, expected))
    made.configure(ins, outs)
    workspace = cupy.zeros(made.workspace_size(ins, outs) + 1, cupy.uint8)
    made.initialize()
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()

    def enqueue():
        made.enqueue(inputs, outputs, ["linear"] * (len(ins) + len(outs)), workspace.data.ptr, stream.ptr)

    def check():
        stream.synchronize()
        for found, wanted in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(
                cupy.asnumpy(found), wanted, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-5
            )
            found[...] = 0
        cupy.cuda.get_current_stream().synchronize()

    with stream:
        stream.begin_capture()  # the first enqueue may be captured: kernels and constants are there since initialize
        enqueue()
        graph = stream.end_capture()
    graph.launch(stream)
    check()
    enqueue()
    check()
