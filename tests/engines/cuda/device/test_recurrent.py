"""The recurrence kernel on the CPU, in each way to spread it over blocks, against onnxruntime."""

from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins.engines.cuda.device.recurrent as module
from pytrtplugins.cuda.backends.host import available
from pytrtplugins.engines.cuda.device.device import CudaDevice
from pytrtplugins.engines.cuda.device.recurrent_choice import choose_form
from pytrtplugins.engines.cuda.device.recurrent_form import (
    CLUSTER,
    ONE_BLOCK,
    WHOLE_GRID,
    LanesForm,
    MatrixForm,
    RecurrentShape,
)
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import assert_close, run_on_host
from tests.engines.cuda.recurrent import BOTH, LAYERS, Layer

SINGLE, HALF = DType.FLOAT32, DType.FLOAT16
REGISTERS, SHARED, L2 = range(3)


def spread(monkeypatch, *form):
    """Let the kernel run in a form: exchange, blocks, groups, threads, type of the weights, their place, warps of columns."""
    kind = MatrixForm if len(form) == 7 else LanesForm
    monkeypatch.setattr(module, "_choose_form", lambda device, problem, max_cluster: kind(problem.shape, *form))


def check(layer, float_type=SINGLE, room=2e-6):
    """Require onnxruntime's numbers of a layer that the kernel runs."""
    model, inputs = layer.model()
    outputs, execution = run_on_host(prepare(model), inputs, float_type)
    assert "recurrent" in [step.kind for step in execution.plan.steps]
    assert all(step.capturable for step in execution.plan.steps)
    assert_close(outputs, layer.wanted(), room)


needs_compiler = pytest.mark.skipif(not available(), reason="g++ is missing")


@needs_compiler
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_every_form_of_the_node_gives_onnxruntimes_numbers(layer):
    check(layer)


@needs_compiler
@pytest.mark.parametrize("layer", [Layer(direction=BOTH, lengths=(4, 2, 1)), Layer("GRU", optional="bh")], ids=str)
@pytest.mark.parametrize(
    "form",
    [
        (ONE_BLOCK, 1, 1, 64, SINGLE, REGISTERS),
        (ONE_BLOCK, 1, 3, 256, SINGLE, SHARED),
        (CLUSTER, 4, 2, 64, SINGLE, SHARED),
        (CLUSTER, 2, 4, 32, SINGLE, L2),  # more groups than sequences
        (CLUSTER, 2, 1, 32, HALF, REGISTERS),
        (WHOLE_GRID, 3, 1, 64, SINGLE, REGISTERS),
        (WHOLE_GRID, 2, 2, 64, HALF, L2),
    ],
)
def test_every_way_to_spread_it_gives_the_same(layer, form, monkeypatch):
    spread(monkeypatch, *form)
    check(layer, room=1e-3 if form[4] is HALF else 2e-6)


@needs_compiler
@pytest.mark.parametrize(
    "layer",
    [
        Layer(direction=BOTH, lengths=(4, 2, 1), optional="bhcp"),
        Layer("GRU", hidden=35, batch=9, steps=3, optional="bh", layout=1),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "form",
    [
        (ONE_BLOCK, 1, 1, 64, HALF, REGISTERS, 1),
        (ONE_BLOCK, 1, 2, 128, HALF, SHARED, 4),
        (CLUSTER, 2, 1, 64, HALF, REGISTERS, 2),
        (WHOLE_GRID, 3, 2, 64, HALF, L2, 1),
    ],
)
def test_matrix_units_give_the_same_in_float16(layer, form, monkeypatch):
    spread(monkeypatch, *form)
    check(layer, HALF, room=4e-3)


@needs_compiler
@pytest.mark.parametrize("layer", [Layer(direction=BOTH), Layer("GRU", optional="bh", layout=1)], ids=str)
def test_float16_rounds_what_it_reads_and_writes_only(layer):
    check(layer, HALF, 3e-3)


@pytest.mark.parametrize(
    ("shape", "half", "exchange", "most"),
    [
        (RecurrentShape("LSTM", 40, 1, 256, 2), True, CLUSTER, 16),
        (RecurrentShape("LSTM", 40, 1, 32, 2), False, ONE_BLOCK, 16),
        (RecurrentShape("LSTM", 40, 1, 1024, 1), True, WHOLE_GRID, 16),
        (RecurrentShape("LSTM", 40, 1, 256, 2), True, WHOLE_GRID, 1),
    ],
)
def test_larger_states_are_spread_over_more_blocks(shape, half, exchange, most):
    form = choose_form(shape, half, 132, most, 227 * 1024)
    assert form.exchange == exchange


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("hidden", [1, 7, 100, 512, 1000, 4096])
@pytest.mark.parametrize("batch", [1, 3, 64, 200])
@pytest.mark.parametrize("most", [1, 16])
def test_a_form_covers_all_units_and_sequences_and_fits_the_gpu(op, hidden, batch, most):
    shape = RecurrentShape(op, 10, batch, hidden, 2, op == "GRU")
    form = choose_form(shape, True, 100, most, 99 * 1024, True)
    assert form.blocks * form.units >= hidden
    assert form.groups * form.group_rows >= batch
    assert form.chunks * form.rows_each >= form.group_rows
    assert form.shared_floats * 4 <= 99 * 1024
    assert form.exchange != WHOLE_GRID or form.grid <= 100
    assert form.exchange != CLUSTER or form.blocks <= most


@pytest.mark.parametrize("batch", [8, 16, 64])
@pytest.mark.parametrize("room", [0, 3, 7, 8])
def test_groups_run_at_the_same_time_if_the_gpu_has_room_for_their_clusters(batch, room):
    shape = RecurrentShape("LSTM", 50, batch, 512, 1)
    form = choose_form(shape, True, 132, 16, 227 * 1024, True, {16: room})
    clusters = form.exchange == CLUSTER and form.blocks == 16
    assert not clusters or form.groups <= room
    if room == 132 // 16:
        assert form == choose_form(shape, True, 132, 16, 227 * 1024, True)


class Gpu(CudaDevice):
    """Facts of a GPU that runs so many clusters of a size at the same time."""

    capability, multiprocessors, number, model = 90, 132, 0, "a GPU"
    attribute = staticmethod(lambda attribute, number: 228 * 1024)
    xp = SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(deviceGetAttribute=attribute)))

    def __init__(self, rooms):
        self.rooms = rooms

    def upload(self, array):
        return array


@pytest.mark.parametrize("rooms", [{16: 8}, {16: 7}, {16: 0, 8: 5, 4: 2, 2: 1}])
def test_a_form_is_chosen_again_where_the_gpu_runs_fewer_clusters(monkeypatch, rooms):
    def room(kernel):
        blocks, groups = kernel.form.blocks, kernel.form.grid // kernel.form.blocks
        return rooms.get(blocks, groups) if kernel.form.exchange == CLUSTER else groups

    monkeypatch.setattr(module.RecurrentKernel, "_load", room)
    shape = RecurrentShape("LSTM", 50, 16, 512, 1)
    problem = module.RecurrentProblem(shape, HALF, "forward", False, False, (("return v",) * 3,))
    kernel = module.RecurrentKernel(Gpu(rooms), problem, np.zeros((1, 2048, 512), np.float32))
    assert room(kernel) >= kernel.form.groups
    if rooms[16] < 8:
        assert (kernel.form.exchange, kernel.form.groups) != (CLUSTER, 8)


def test_a_state_without_room_has_no_form():
    assert choose_form(RecurrentShape("RNN", 1, 1, 10**6, 1), False, 132, 16, 99 * 1024) is None
