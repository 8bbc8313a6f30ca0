"""Which attention cuDNN is asked for, with a frontend of the test's making."""

import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.engines.cuda.device.attention import AttentionProblem, Operand
from pytrtplugins.engines.cuda.device.layout import linear
from pytrtplugins.engines.cuda.device.strided import contiguous
from pytrtplugins.engines.cuda.run.cudnn_attention import CudnnAttention, suits_cudnn
from pytrtplugins.tensor import DType
from tests.engines.cuda.attention import attended
from tests.engines.cuda.host import filled
from tests.engines.cuda.stand_in import OnGpu
from tests.interleaving import Interleaving

B, H, M, N, D = 2, 3, 5, 16, 8


class Graph:
    """A graph that notes what it is told; of its two plans the first cannot be built."""

    def __init__(self, frontend):
        self.frontend, self.told, self.runs = frontend, {}, []

    def tensor(self, name, dim, stride, data_type, uid):
        self.told[name] = (uid, tuple(dim), tuple(stride))
        return name

    def sdpa(self, q, k, v, attn_scale, generate_stats, bias=None):
        assert not generate_stats
        self.scale = attn_scale
        return self, None

    def set_output(self, _):
        return self

    def set_uid(self, uid):
        self.uid = uid
        return self

    def set_data_type(self, _):
        return self

    def set_dim(self, dims):
        self.dims = tuple(dims)
        return self

    def set_stride(self, strides):
        self.told["y"] = (self.uid, self.dims, tuple(strides))

    def validate(self):
        if self.frontend.refuses:
            raise self.frontend.cudnnGraphNotSupportedError("no such head")

    def build_operation_graph(self):
        pass

    def create_execution_plans(self, modes):
        pass

    def get_execution_plan_count(self):
        return 2

    def build_plan_at_index(self, index):
        if index == 0:
            raise RuntimeError("not here")

    def get_workspace_size_plan_at_index(self, index):
        return 16

    def execute_plan_at_index(self, pack, workspace, index, handle):
        self.runs.append((pack, index))


class Frontend:
    """What the engine asks of cuDNN's frontend, written down."""

    __version__ = "1.16.0"
    cudnnGraphNotSupportedError = type("cudnnGraphNotSupportedError", (Exception,), {})
    data_type = heur_mode = SimpleNamespace(FLOAT=0, HALF=1, A=0, FALLBACK=1)

    def __init__(self):
        self.graphs, self.refuses = [], False

    def backend_version(self):
        return 91900

    def create_handle(self):
        return 1

    def set_stream(self, handle, stream):
        pass

    def pygraph(self, **_):
        self.graphs.append(Graph(self))
        return self.graphs[-1]


@pytest.fixture
def frontend(monkeypatch):
    made = Frontend()
    monkeypatch.setitem(sys.modules, "cudnn", made)
    return made


def device(capability=90):
    return SimpleNamespace(
        model="H200", driver=13000, capability=capability, allocate=lambda size: np.zeros(size, np.uint8).view(OnGpu)
    )


def operand(dims, offset=0, dtype=DType.FLOAT16):
    return Operand(offset, contiguous(dims).strides, dtype)


def problem(**changes):
    dims = {"q": (B, H, M, D), "k": (B, H, N, D), "v": (B, H, N, D), "y": (B, H, M, D)}
    given = {**{name: operand(each) for name, each in dims.items()}, "dims": (B, H, M, N, D, D), **changes}
    return AttentionProblem(**{"bias": None, "period": 1, "scale": 0.3, "zero": False, **given})


def tensors():
    """q, k, v, y and what is added to the scores, of random numbers."""
    rng, found = np.random.default_rng(0), []
    for rows in (M, N, N, M):
        dims = (B, H, rows, D)
        tensor = filled(linear(dims, DType.FLOAT16), rng.standard_normal(dims))
        found.append(replace(tensor, flat=tensor.flat.view(OnGpu)))
    return found, rng.standard_normal(N).astype(np.float16).view(OnGpu)


def test_the_graph_says_where_everything_lies(frontend):
    values, mask = tensors()
    wanted = problem(bias=Operand(0, (0, 0, 0, 1), DType.FLOAT16))
    CudnnAttention(device())(wanted, *values, bias=mask)(SimpleNamespace(ptr=0))
    (graph,) = frontend.graphs
    assert graph.told == {
        "q": (1, (B, H, M, D), (H * M * D, M * D, D, 1)),
        "k": (2, (B, H, N, D), (H * N * D, N * D, D, 1)),
        "v": (3, (B, H, N, D), (H * N * D, N * D, D, 1)),
        "bias": (4, (1, 1, 1, N), (N, N, N, 1)),
        "y": (5, (B, H, M, D), (H * M * D, M * D, D, 1)),
    }
    addresses = [tensor.flat.ctypes.data for tensor in values]
    pack = dict(zip((1, 2, 3, 5), addresses, strict=True))
    assert graph.runs == [({**pack, 4: mask.ctypes.data}, 1)]
    assert graph.scale == 0.3


def test_a_problem_is_built_once(frontend):
    maker, (values, _) = CudnnAttention(device()), tensors()
    for _ in range(3):
        maker(problem(), *values, bias=None)
    assert len(frontend.graphs) == 1


def test_threads_build_a_problem_once_and_queue_on_their_own_streams(frontend, monkeypatch):
    maker, (values, _), calls = CudnnAttention(device()), tensors(), []
    building, queueing = Interleaving(maker._lock), Interleaving(maker._lock)
    real = Graph.validate
    monkeypatch.setattr(Graph, "validate", lambda graph: building.inside() or real(graph))
    monkeypatch.setattr(maker, "_lock", building)
    launch, other = building.run(*[lambda: maker(problem(), *values, bias=None)] * 2)
    assert len(frontend.graphs) == 1
    monkeypatch.setattr(frontend, "set_stream", lambda handle, stream: calls.append(stream) or queueing.inside())
    monkeypatch.setattr(Graph, "execute_plan_at_index", lambda *_, **__: calls.append("run"))
    monkeypatch.setattr(maker, "_lock", queueing)
    queueing.run(lambda: launch(SimpleNamespace(ptr=7)), lambda: other(SimpleNamespace(ptr=8)))
    assert calls == [7, "run", 8, "run"]


def test_it_begins_behind_the_offset(frontend):
    (q, *others), _ = tensors()
    moved = problem(q=Operand(16, (0, M * D, D, 1), DType.FLOAT16), dims=(1, H, M, N, D, D))
    CudnnAttention(device())(moved, q, *others, bias=None)(SimpleNamespace(ptr=0))
    assert frontend.graphs[0].runs[0][0][1] == q.flat.ctypes.data + 32
    assert frontend.graphs[0].told["q"][2] == (H * M * D, M * D, D, 1)


@pytest.mark.parametrize("capability", [75, 90])
def test_where_cudnn_refuses_the_own_kernel_runs(frontend, capability):
    frontend.refuses = True
    (q, k, v, y), _ = tensors()
    CudnnAttention(device(capability))(problem(), q, k, v, y, None)(None)
    assert len(frontend.graphs) == (capability >= 80)
    np.testing.assert_allclose(y.view, attended([q.view, k.view, v.view], 0.3), atol=2e-3)


HALF_MASK = Operand(0, (0, 0, 0, 1), DType.FLOAT16)


@pytest.mark.parametrize(
    ("changes", "suits"),
    [
        ({}, True),
        ({"q": Operand(0, (H * M * D, M * D, 0, 1), DType.FLOAT16)}, False),  # one row, key or value that is repeated
        ({"k": Operand(0, (H * D, D, 0, 1), DType.FLOAT16)}, False),
        ({"v": Operand(0, (H * D, D, 0, 1), DType.FLOAT16)}, False),
        ({"zero": True}, True),  # nothing is masked
        ({"bias": HALF_MASK}, True),
        ({"bias": HALF_MASK, "zero": True}, False),
        ({"bias": replace(HALF_MASK, dtype=DType.FLOAT32)}, False),
        ({"bias": Operand(0, (H * M * N, M * N, N, 1), DType.FLOAT16), "period": B}, True),
        ({"bias": Operand(0, (H * M * N, M * N, N, 1), DType.FLOAT16), "period": 4, "dims": (8, H, M, N, D, D)}, False),
        ({"bias": Operand(0, (0, M * 13, 13, 1), DType.FLOAT16)}, False),  # rows of 26 bytes
        ({"q": operand((B, H, M, D), dtype=DType.FLOAT32)}, False),
        ({"k": operand((B, H, D, N))}, True),  # other strides, not other dims
        ({"k": Operand(0, (H * N * D, N * D, 1, N), DType.FLOAT16)}, False),
        ({"v": operand((B, H, N, D), offset=4)}, False),
        ({"q": Operand(0, (0, M * D, D, 1), DType.FLOAT16)}, False),  # one q for all of the batch
        ({"dims": (B, H, M, N, 20, D)}, False),
        ({"dims": (B, H, M, N, 264, 264)}, False),
        ({"dims": (B, H, 0, N, D, D)}, False),
    ],
)
def test_what_is_asked_for(changes, suits):
    assert suits_cudnn(problem(**changes)) is suits


@pytest.mark.parametrize(
    ("rows", "keys", "head", "biased", "fits"),
    [
        (64, 64, 32, True, True),
        (65, 64, 32, True, False),
        (64, 65, 32, True, False),
        (64, 64, 40, True, False),
        (64, 64, 64, False, True),
        (1, 8, 64, False, True),
        (64, 64, 72, False, False),
    ],
)
def test_one_tile_runs_on_the_own_kernel_where_that_is_faster(frontend, rows, keys, head, biased, fits):
    given = {"dims": (B, H, rows, keys, head, head), "bias": HALF_MASK if biased else None}
    sizes = {"q": rows, "k": keys, "v": keys, "y": rows}
    given |= {name: operand((B, H, length, head)) for name, length in sizes.items()}
    zeros = [filled(linear((B, H, length, head), DType.FLOAT16), 0) for length in sizes.values()]
    arrays = [replace(each, flat=each.flat.view(OnGpu)) for each in zeros]
    own: dict[bool, list] = {True: [], False: []}
    for has_tiles, asked in own.items():
        maker = CudnnAttention(device(), lambda *operands, asked=asked: asked.append(operands), has_tiles)
        maker(problem(**given), *arrays, bias=np.zeros(80, np.float16).view(OnGpu) if biased else None)
    assert [len(asked) for asked in own.values()] == [fits, 0]


def test_nothing_of_cudnn_is_loaded_for_float32(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", None)
    memory = filled(linear((math.prod((B, H, N, D)),), DType.FLOAT32), 1)
    floats = {name: replace(getattr(problem(), name), dtype=DType.FLOAT32) for name in "qkvy"}
    CudnnAttention(device())(problem(**floats), memory, memory, memory, memory, None)(None)
    np.testing.assert_allclose(memory.flat, 1)
