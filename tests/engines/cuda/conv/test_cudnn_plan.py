"""Plans of cuDNN are written to the disk and read from it, with a frontend of the test's making."""

from types import SimpleNamespace

import pytest

from pytrtplugins.cuda import cache
from pytrtplugins.engines.cuda.conv import cudnn_plan
from pytrtplugins.engines.cuda.conv.cudnn_plan import kept_plan

GPU = {"model": "H200", "driver": 13000}


class Frontend:
    """Graphs of cuDNN's that hold what they were read from; ``fails`` names the methods that raise."""

    __version__ = "1.32.0"

    def __init__(self):
        self.fails, self.built = set(), []

    def backend_version(self):
        return 91900

    def pygraph(self, handle):
        return SimpleNamespace(handle=handle, data=[], serialize=self.serialize, deserialize=self.deserialize)

    def serialize(self):
        if "serialize" in self.fails:
            raise RuntimeError("this plan cannot be written")
        return list(b"a plan")

    def deserialize(self, data):
        if "deserialize" in self.fails:
            raise ValueError("this plan cannot be read")
        self.data = data


@pytest.fixture
def frontend(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    return Frontend()


def plan_of(frontend, key="conv", gpu=GPU):
    def build():
        if "build" in frontend.fails:
            raise KeyError("no such plan")
        frontend.built.append(key)
        return SimpleNamespace(serialize=frontend.serialize), 3

    return kept_plan(frontend, 7, SimpleNamespace(**gpu), key, build)


def test_a_plan_is_built_once_and_then_read(frontend):
    assert plan_of(frontend)[1] == 3
    graph, index = plan_of(frontend)
    assert (frontend.built, frontend.data, graph.handle, index) == (["conv"], list(b"a plan"), 7, 0)


@pytest.mark.parametrize("other", ["key", "model", "driver", "frontend", "library", "format"])
def test_another_problem_gpu_or_version_has_a_plan_of_its_own(frontend, monkeypatch, other):
    plan_of(frontend)
    gpu, key = dict(GPU), "conv"
    if other in gpu:
        gpu[other] = {"model": "H100", "driver": 13010}[other]
    elif other == "key":
        key = "attention"
    elif other == "frontend":
        frontend.__version__ = "1.33.0"
    elif other == "library":
        frontend.backend_version = lambda: 92000
    else:
        monkeypatch.setattr(cudnn_plan, "_FORMAT", cudnn_plan._FORMAT + 1)
    assert plan_of(frontend, key, gpu)[1] == 3
    assert len(frontend.built) == 2


@pytest.mark.parametrize("method", ["serialize", "deserialize"])
def test_a_plan_that_cannot_be_written_or_read_is_built_each_time(frontend, method):
    frontend.fails.add(method)
    assert [plan_of(frontend)[1] for _ in range(3)] == [3, 3, 3]
    assert len(frontend.built) == 3


def test_what_building_raises_is_raised_and_nothing_is_kept(frontend):
    frontend.fails.add("build")
    for _ in range(2):
        with pytest.raises(KeyError, match="no such plan"):
            plan_of(frontend)
    frontend.fails.clear()
    assert plan_of(frontend)[1] == 3
