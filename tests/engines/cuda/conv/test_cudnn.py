"""Which of cuDNN's plans are built, with a frontend of the test's making."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda import cache
from pytrtplugins.engines.cuda.conv.cudnn import CudnnProvider
from pytrtplugins.engines.cuda.conv.problem import ConvProblem, Operands, Scratch
from pytrtplugins.engines.cuda.conv.search_time import SearchTime
from pytrtplugins.engines.cuda.device.layout import channels_last
from pytrtplugins.errors import BuildError
from pytrtplugins.tensor import DType
from tests.interleaving import Interleaving

PLANS = ["a", "b", "a", "c", "d", "e"]
"""Names as heuristics give them: two of one name, and one whose results differ from run to run."""


class Anything:
    """Tensors: every method gives the tensor."""

    def __getattr__(self, name):
        return lambda *_, **__: self


class Graph(Anything):
    """A graph; its plans 0 and 4 cannot be built."""

    def __init__(self, built):
        self.built, self.barred = built, []

    def deselect_numeric_notes(self, notes):
        self.barred = notes

    def get_execution_plan_count(self):
        return len(PLANS)

    def get_plan_name_at_index(self, index):
        return PLANS[index]

    def build_plan_at_index(self, index):
        if index in (0, 4) or (index == 5 and "nondeterministic" in self.barred):
            raise RuntimeError("not supported")
        self.built.append(index)

    def get_workspace_size_plan_at_index(self, index):
        return 16


class Frontend:
    """What the engine asks of cuDNN's frontend, written down."""

    __version__ = "1.16.0"
    cudnnGraphNotSupportedError = type("cudnnGraphNotSupportedError", (Exception,), {})
    data_type = heur_mode = numerical_note = SimpleNamespace(
        FLOAT=0, HALF=1, INT8=2, INT32=3, A=0, FALLBACK=1, TENSOR_CORE=0, NONDETERMINISTIC="nondeterministic"
    )

    def __init__(self):
        self.built, self.graphs, self.handles = [], 0, 0

    def backend_version(self):
        return 91900

    def create_handle(self):
        self.handles += 1

    def pygraph(self, **_):
        self.graphs += 1
        return Graph(self.built)


@pytest.fixture
def frontend(monkeypatch):
    made = Frontend()
    monkeypatch.setitem(sys.modules, "cudnn", made)
    return made


def problem(activation="leaky", dtype=DType.FLOAT16):
    x, y = channels_last((1, 16, 8, 8), dtype), channels_last((1, 32, 8, 8), dtype)
    return ConvProblem(x=x, y=y, kernel=(3, 3), pads=(1, 1, 1, 1), activation=activation, bounds=(0.1, 0.0))


def operands():
    weights = np.zeros((32, 16, 3, 3), np.float32)
    return Operands(load=lambda: weights, bias=np.zeros(32, np.float32))


FUSED, PLAIN = ([f"{form}:{name}" for name in "abc"] for form in ("fused", "plain"))
DEVICE = SimpleNamespace(
    model="H200", driver=13000, upload=lambda array: SimpleNamespace(nbytes=array.nbytes, data=SimpleNamespace(ptr=0))
)


def test_nothing_of_cudnn_is_loaded_before_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "cudnn", None)
    CudnnProvider(DEVICE)


def test_each_plan_that_can_be_built_is_a_tactic_once(frontend):
    assert list(CudnnProvider(DEVICE).tactics(problem())) == FUSED
    assert sorted(frontend.built) == [1, 2, 3]
    assert (frontend.graphs, frontend.handles) == (1, 1)


def test_sums_alone_are_tactics_where_the_epilogue_is_none_of_cudnns(frontend):
    assert list(CudnnProvider(DEVICE).tactics(problem("logistic"))) == PLAIN


def test_sums_alone_are_rivals_in_float32(frontend):
    assert list(CudnnProvider(DEVICE).tactics(problem(dtype=DType.FLOAT32))) == FUSED + PLAIN


@pytest.mark.parametrize(
    ("groups", "has_rivals", "tactics"),
    [(1, False, PLAIN), (1, True, PLAIN[:1]), (16, True, PLAIN[:1]), (4, True, PLAIN)],
)
def test_fp32_has_one_rival_beside_handwritten_kernels_and_all_without(frontend, groups, has_rivals, tactics):
    strict = replace(problem(dtype=DType.FLOAT32), tensor_cores=False, groups=groups)
    assert list(CudnnProvider(DEVICE, has_rivals=has_rivals).tactics(strict)) == tactics
    assert list(CudnnProvider(DEVICE, has_rivals=has_rivals).tactics(problem())) == FUSED


@pytest.mark.parametrize("place", ["activation", "residual_activation"])
@pytest.mark.parametrize("activation", ["prelu", "swish"])
def test_there_are_no_sums_alone_in_int8(frontend, place, activation):
    given = replace(problem(activation="linear"), **{place: activation})
    assert list(CudnnProvider(DEVICE).tactics(given))
    x = channels_last(given.x.dims, DType.INT8)
    assert list(CudnnProvider(DEVICE).tactics(replace(given, x=x))) == []
    assert list(CudnnProvider(DEVICE).tactics(replace(given, x=x, **{place: "linear"}))) == FUSED


def test_plans_that_cannot_be_built_take_time_too(frontend):
    limit = SearchTime(0.5, iter(range(0, 1000, 2)).__next__)
    limit.begin()
    assert list(CudnnProvider(DEVICE, search_time=limit).tactics(problem())) == []  # the first of them cannot be built
    assert limit.cut == [problem().title]


@pytest.mark.parametrize(("tactic", "built"), [("fused:a", [2]), ("fused:b", [1]), ("fused:c", [3]), ("plain:b", [1])])
def test_a_known_tactic_builds_its_own_plan_alone_and_once(frontend, tactic, built):
    provider = CudnnProvider(DEVICE)
    for _ in range(2):
        provider.prepare(problem(), tactic, operands(), Scratch())
    assert frontend.built == built


@pytest.mark.parametrize(
    ("owner", "step", "call"),
    [
        (Frontend, "pygraph", lambda provider: list(provider.tactics(problem()))),
        (Graph, "build_plan_at_index", lambda provider: provider.prepare(problem(), "fused:b", operands(), Scratch())),
    ],
)
def test_threads_make_each_graph_and_plan_once(frontend, monkeypatch, owner, step, call):
    provider, real = CudnnProvider(DEVICE), getattr(owner, step)
    both = Interleaving(provider._lock)
    monkeypatch.setattr(provider, "_lock", both)
    monkeypatch.setattr(owner, step, lambda *given, **more: both.inside() or real(*given, **more))
    both.run(*[lambda: call(provider)] * 2)
    assert (frontend.graphs, len(frontend.built)) == (1, len(set(frontend.built)))


def test_threads_queue_on_their_own_streams(frontend, monkeypatch):
    provider, calls, graph = CudnnProvider(DEVICE), [], Graph([])
    both = Interleaving(provider._lock)
    monkeypatch.setattr(provider, "_lock", both)
    monkeypatch.setattr(
        frontend, "set_stream", lambda handle, stream: calls.append(stream) or both.inside(), raising=False
    )
    graph.execute_plan_at_index = lambda *_, **__: calls.append("run")
    plan = graph, 0, lambda: DEVICE.upload(np.zeros(1))
    both.run(*[lambda ptr=ptr: provider._execute(plan, {}, SimpleNamespace(ptr=ptr)) for ptr in (7, 8)])
    assert calls == [7, "run", 8, "run"]


def test_the_plan_that_a_search_has_chosen_is_kept_and_read_without_heuristics(frontend, monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    read = []
    monkeypatch.setattr(Graph, "serialize", lambda graph: [graph.built[-1]], raising=False)
    monkeypatch.setattr(Graph, "deserialize", lambda graph, data: read.append(data), raising=False)
    search = CudnnProvider(DEVICE)
    assert list(search.tactics(problem())) == FUSED
    assert not list(tmp_path.iterdir())  # a search keeps nothing
    for _ in range(2):
        search.prepare(problem(), "fused:b", operands(), Scratch())
        search.keep(problem(), "fused:b")
    assert frontend.built == [2, 1, 3, 1]  # the last selects it
    frontend.built.clear()
    again = CudnnProvider(DEVICE)
    again.prepare(problem(), "fused:b", operands(), Scratch())
    again.keep(problem(), "fused:b")
    assert (frontend.built, read, again._plan(problem(), "fused", "b")[1]) == ([], [[1]], 0)
    again.prepare(problem(), "fused:c", operands(), Scratch())
    assert frontend.built == [3]
    CudnnProvider(DEVICE).prepare(problem(), "fused:c", operands(), Scratch())
    assert (frontend.built, read) == ([3], [[1], [3]])


@pytest.mark.parametrize("tactic", ["fused:d", "fused:nowhere", "other:a"])
def test_a_tactic_that_is_not_here_is_an_error(frontend, tactic):
    with pytest.raises(BuildError, match=f"cuDNN has no plan '{tactic}' here"):
        CudnnProvider(DEVICE).prepare(problem(), tactic, operands(), Scratch())
