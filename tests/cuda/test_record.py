"""Launches that are recorded: what an exporter gets."""

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins import DType, SymbolicDim, TensorDesc, errors
from pytrtplugins.cuda import Constant, SymbolicArray, record_launches
from pytrtplugins.cuda.record import SymbolicNumber
from pytrtplugins.plugin.runner import PluginRunner

N = SymbolicDim("N")


def arrays(dtype="float32"):
    return SymbolicArray("input", 0, (N, 4), dtype), SymbolicArray("output", 0, (N, 4), dtype)


def test_a_launch_is_recorded_with_its_arguments_in_the_order_of_the_parameters(affine):
    x, y = arrays("float16")
    with record_launches() as launches:
        affine.launch(x, y, y.size, 2, False, threads=y.size, block=(64, 2))
    (launch,) = launches
    assert launch.kernel is affine
    assert launch.arguments == (x, y, N * 4, 2.0, False)
    assert (launch.element, launch.block, launch.shared_bytes) == ("__half", (64, 2, 1), 0)
    assert [launch.threads[0].evaluate({"N": 100}), *launch.threads[1:]] == [400, 1, 1]
    assert [launch.grid[0].evaluate({"N": 100}), launch.grid[1], launch.grid[2]] == [7, 1, 1]


def test_arguments_are_checked_while_recording(affine):
    x, y = arrays()
    with record_launches(), pytest.raises(errors.KernelError, match="`float factor`: dim N is symbolic"):
        affine.launch(x, y, y.size, N, False, threads=y.size)


class Symbolic(SymbolicNumber):
    """A number of a kind."""

    def __init__(self, kind):
        self.kind = kind


@pytest.mark.parametrize(
    ("place", "kind", "message"),
    [
        (2, "f", "`int n`: expected int, found a symbolic number with a fraction"),
        (2, "b", "`int n`: expected int, found a symbolic truth value"),
        (3, "b", "`float factor`: expected float, found a symbolic truth value"),
        (4, "i", "`bool negate`: expected bool, found a symbolic whole number"),
        (4, "f", "`bool negate`: expected bool, found a symbolic number with a fraction"),
    ],
)
def test_a_symbolic_number_of_another_kind_is_named(affine, place, kind, message):
    given = [*arrays(), N * 4, 1.0, False]
    given[place] = Symbolic(kind)
    with record_launches(), pytest.raises(errors.KernelError, match=message):
        affine.launch(*given, threads=N)


def test_symbolic_arrays_outside_of_a_recording_are_refused(affine):
    x, y = arrays()
    with pytest.raises(errors.KernelError, match=r"outside of record_launches\(\)"):
        affine.launch(x, y, y.size, 1.0, False, threads=y.size)


def test_parts_of_the_workspace_keep_their_offset_in_bytes():
    workspace = SymbolicArray("workspace", 0, (4096,), "uint8")
    part = workspace[1024:].view(np.float32)[4:12].reshape(2, 4)
    assert [part.reshape(*dims).shape for dims in ((2, 2, 2), ((8, 1),), ([8],))] == [(2, 2, 2), (8, 1), (8,)]
    assert (part.role, part.offset, part.shape, part.dtype, part.nbytes) == ("workspace", 1040, (2, 4), np.float32, 32)
    behind = workspace[N * 16 :].view("float16")
    assert (behind.offset.evaluate({"N": 3}), behind.shape[0].evaluate({"N": 3})) == (48, 2024)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[0], lambda x: x[:-1], lambda x: x[::2], lambda x: x.reshape(-1), lambda x: x.reshape(4, -1),
        lambda x: np.asarray(x), lambda x: np.exp(x),
    ],
)  # fmt: skip
def test_what_only_values_can_answer_is_refused(use):
    with pytest.raises(errors.KernelError):
        use(SymbolicArray("input", 0, (16,), "float32"))


def test_constants_and_null_pointers_are_recorded_as_they_are():
    from pytrtplugins.cuda import CudaKernel

    kernel = CudaKernel.from_source("__global__ void f(float* y, const int* table, const float* bias) {}", "f")
    table = Constant(np.arange(3, dtype=np.int32))
    with record_launches() as launches:
        kernel.launch(SymbolicArray("output", 0, (3,), DType.FLOAT32), table, None, threads=3)
    assert launches[0].arguments[1:] == (table, None)
    with pytest.raises(ValueError, match="read-only"):
        table.array[0] = 5


class Launching(ptp.Plugin):
    """A plugin of a kernel that the test has."""

    def __init__(self, kernel, what):
        self.__dict__.update(kernel=kernel, what=what)

    def enqueue(self, inputs, outputs, workspace, stream):
        (x,), (y,) = inputs, outputs
        if self.what == "values":
            x.sum()
        self.kernel.launch(x, y, x.size if self.what == "kernel" else None, 1.0, False, threads=x.size, stream=stream)


def runner(kernel, what="kernel"):
    desc, found = TensorDesc("x", (2, 3), DType.FLOAT16), PluginRunner(Launching(kernel, what))
    found.prepare([desc], [desc])
    return found


def test_what_a_plugin_launches_is_prepared_before_the_first_launch(affine):
    assert runner(affine).compile() == 1
    assert runner(affine).recorded_launches()[0].arguments[2] == 6


def test_a_plugin_that_computes_with_values_is_left_to_its_first_enqueue(affine):
    assert runner(affine, "values").compile() == 0


def test_a_wrong_launch_is_an_error_before_the_first_enqueue(affine):
    wrong = runner(affine, "wrong")
    with pytest.raises(errors.KernelError, match="`int n`"):
        wrong.compile()
