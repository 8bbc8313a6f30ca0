"""When a detection captures graphs and which batch it takes, with NumPy in the GPU's place; test_image_run.py has the boxes."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.engines.cuda.engine import CudaEngine
from pytrtplugins.engines.cuda.run import detection as module
from pytrtplugins.engines.cuda.run.detection import CudaDetection
from pytrtplugins.engines.cuda.run.image_run import ImageRun
from pytrtplugins.errors import EngineError, UnavailableError, UsageError
from pytrtplugins.models import read_heads
from pytrtplugins.tensor import SymbolicDim, TensorDesc
from tests.engines.cuda.run.test_image_run import detection_model, executed, random_image

pytestmark = pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")


class Graph:
    launches = 0

    def upload(self, stream):
        pass

    def launch(self, stream):
        self.launches += 1


class Stream(nullcontext):
    """Counts what is captured; work is done when it is queued."""

    def __init__(self, non_blocking, priority=0):
        super().__init__()
        self.graphs, self.priority = [], priority

    def synchronize(self):
        pass

    def begin_capture(self):
        self.graphs.append(Graph())

    def end_capture(self):
        return self.graphs[-1]


class NumpyAsCupy(SimpleNamespace):
    cuda = SimpleNamespace(Device=lambda number: nullcontext(), Stream=Stream)

    def __getattr__(self, name):
        return getattr(np, name)


class Engine:
    """What a detection needs of the engine."""

    nests = True

    def __init__(self, model, batches=(1,), disable=()):
        self.model, self.batches, self.disabled = model, batches, frozenset(disable)
        self.inputs = (TensorDesc("data", (SymbolicDim("N"), 3, 16, 32)),)
        self.capturing, self.device = threading.Lock(), HostDevice()
        self.device.xp, self.device.number = NumpyAsCupy(), 0
        self.executions = []

    def check_process(self):
        pass

    def execution(self, sizes):
        self.executions.append(executed(self.model, sizes["N"]))
        return self.executions[-1]


@pytest.fixture
def model(tmp_path):
    return detection_model("region", tmp_path)


def detection(engine):
    return CudaDetection(engine, read_heads(engine.model), (32, 16))


def test_images_of_all_sizes_go_through_one_graph_until_the_memory_grows(model):
    context = detection(Engine(model))
    for size in [(40, 30), (1, 1), (600, 400), (33, 77)]:
        context.detect([random_image(size)])
    (graph,) = context._stream.graphs
    assert graph.launches == 3
    context.detect([random_image((700, 600))])
    context.detect([random_image((700, 600))])
    assert [graph.launches for graph in context._stream.graphs] == [3, 1]


def test_times_are_milliseconds_of_each_part(model, monkeypatch):
    """20 ms until images are queued, 50 ms until the stream is done, 7 ms until boxes are read."""
    now, context = [100.0], detection(Engine(model))
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def taking(seconds, owner, name):
        function = getattr(owner, name)

        def run(*arguments):
            now[0] += seconds
            return function(*arguments)

        monkeypatch.setattr(owner, name, run)

    context.detect([random_image((40, 30))])  # captures
    for seconds, owner, name in ((0.020, ImageRun, "send"), (0.050, Stream, "synchronize"), (0.007, ImageRun, "boxes")):
        taking(seconds, owner, name)
    context.detect([random_image((40, 30))])
    spent = context.timings
    assert (spent.preprocess_ms, spent.network_ms, spent.postprocess_ms) == pytest.approx((20, 50, 7))


def test_images_take_the_smallest_batch_that_holds_them(model):
    engine = Engine(model, batches=(4, 1))
    context = detection(engine)
    assert context.batch == 4
    for count in (1, 3, 4, 1, 2):
        assert len(context.detect([random_image((20, 20))] * count)) == count
    assert [execution.input("data").shape[0] for execution in engine.executions] == [1, 4]
    with pytest.raises(UsageError, match="expected 1 to 4 images, found 5"):
        context.detect([random_image((20, 20))] * 5)
    with pytest.raises(UsageError, match="found 0"):
        context.detect([])


def test_a_free_batch_is_what_the_context_was_made_for(model):
    engine = Engine(model, batches=(4, 1))
    context = CudaDetection(engine, read_heads(model), (32, 16), batch=3)
    assert (context.batch, context.another().batch) == (3, 3)
    assert len(context.detect([random_image((20, 20))] * 2)) == 2
    assert [execution.input("data").shape[0] for execution in engine.executions] == [3]


def test_images_are_decoded_into_page_locked_memory_of_a_few_sizes(model):
    asked = []

    class Locked(HostDevice):
        def pinned_memory(self, size):
            asked.append(size)
            if size > 4 << 20:
                raise UnavailableError("no more memory can be locked")
            return super().pinned_memory(size)

    engine = Engine(model)
    engine.device.__class__ = Locked
    memory = detection(engine).memory
    sizes = [1, 3 * 768 * 576, 3 * 768 * 577, 5 << 20, 9 << 20]
    assert [(given.size, given.dtype) for given in map(memory, sizes)] == [(size, np.uint8) for size in sizes]
    assert asked[1] == asked[2] < 1.25 * sizes[1]
    assert len(asked) == 4  # the last image is too large to be worth it


def test_without_graphs_nothing_is_captured(model):
    context = detection(Engine(model, disable=["graph"]))
    found = [context.detect([random_image((40, 30))], score_threshold=0.2)[0].scores.tolist() for _ in range(3)]
    assert found[0] == found[1] == found[2] != []
    assert context._stream.graphs == []


def test_what_cannot_be_captured_as_a_whole_is_captured_in_parts(model):
    engine = Engine(model)
    make = engine.execution

    def in_parts(sizes):
        execution = make(sizes)
        execution.segments[0].capturable = False
        return execution

    engine.execution = in_parts
    context = detection(engine)
    for _ in range(3):
        assert len(context.detect([random_image((40, 30))], score_threshold=0.2)[0].scores)
    assert context._stream.graphs == []


def test_a_closed_context_and_a_second_thread_are_refused(model):
    context = detection(Engine(model))
    with context._busy, pytest.raises(EngineError, match="another thread"):
        context.detect([random_image((9, 9))])
    context.detect([random_image((9, 9))])
    context.close()
    context.close()
    with pytest.raises(EngineError, match=r"closed[\s\S]*Do: engine\.create_detection_context"):
        context.detect([random_image((9, 9))])


def test_another_context_is_of_the_same_kind_with_memory_of_its_own(model):
    engine = Engine(model, batches=(4, 1))
    first = CudaEngine.create_detection_context(engine, read_heads(model), (32, 16), "stretch", 7, 3)
    second = first.another()
    for context in (first, second):
        assert len(context.detect([random_image((40, 30))], score_threshold=0.0)[0].scores) == 7
        assert (context.mode, context.batch) == ("stretch", 3)
    assert len(engine.executions) == 2


def test_a_run_that_is_queued_is_finished_by_its_owner_or_by_close(model):
    context, image = detection(Engine(model)), [random_image((40, 30))]
    wanted = context.detect(image, score_threshold=0.2)[0].scores.tolist()
    future = context.detect_async(image, score_threshold=0.2)
    with pytest.raises(EngineError, match="not finished"):
        context.detect(image)
    assert future.result()[0].scores.tolist() == wanted != []
    assert future.result() is future.result()
    future = context.detect_async(image, score_threshold=0.2)
    context.close()
    assert future.result()[0].scores.tolist() == wanted
    with pytest.raises(EngineError, match="closed"):
        context.detect_async(image)
