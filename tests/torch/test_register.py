"""Plugins as operators of PyTorch's, on the host."""

from __future__ import annotations

import importlib
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.cuda.backends import host as host_backend
from pytrtplugins.errors import DimsError, FieldError, PluginError, RegistryError
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.plugin.base import PluginKey
from pytrtplugins.plugin.runner import PluginRunner
from pytrtplugins.torch import launch
from pytrtplugins.torch.schema import input_names, operator_name
from tests.interleaving import Interleaving
from tests.torch.operators import Doubled, ManyKinds, PassThrough, Same, SumAndHalf, Twice

torch = pytest.importorskip("torch", reason='PyTorch is not installed (pip install "pytrtplugins[torch]")')

reorg = ptp.torch.register(Reorg)
ptp.torch.register(Region)
many_kinds = ptp.torch.register(ManyKinds)
sum_and_half = ptp.torch.register(SumAndHalf, outputs=2)


def numbers(*dims, dtype=torch.float32):
    return torch.arange(int(np.prod(dims)), dtype=dtype).reshape(dims)


def test_the_schema_has_the_inputs_and_the_fields():
    assert str(reorg.default._schema) == "darknet::reorg(Tensor x, *, int stride=1, bool reverse=False) -> Tensor"
    assert str(sum_and_half.default._schema) == "test_torch::sum_and_half(Tensor[] inputs) -> (Tensor, Tensor)"
    assert str(many_kinds.default._schema) == (
        "test_torch::many_kinds(Tensor x, *, float factor, str[]? names=None, bool[]? flags=None, str? mode=None, "
        "float[] weights=[0.5, 2.], int[] counts=[], float? limit=None) -> Tensor"
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64])
def test_the_operator_computes_what_the_plugin_computes(dtype):
    x = numbers(2, 16, 4, 4, dtype=torch.float32).remainder(100).to(dtype)
    y = torch.ops.darknet.reorg(x, stride=2)
    assert y.dtype == dtype
    wanted = Reorg(stride=2).compute(x.to(torch.float32).numpy())
    np.testing.assert_array_equal(y.to(torch.float32).numpy(), wanted)


def test_inputs_in_any_layout_are_read_as_pytorch_reads_them():
    x = numbers(2, 16, 4, 4).to(memory_format=torch.channels_last)
    torch.testing.assert_close(reorg(x, stride=2), reorg(x.contiguous(), stride=2))


def test_every_kind_of_field_reaches_the_plugin_with_the_classs_defaults():
    x = numbers(1, 2)
    given = {"names": ["x"], "flags": [False, True], "mode": "lin", "weights": [3.0], "counts": [1, 2], "limit": 1.0}
    for fields in ({}, given):
        wanted = ManyKinds(factor=2.0, **fields).compute(x.numpy())
        np.testing.assert_array_equal(many_kinds(x, factor=2.0, **fields).numpy(), wanted)


def test_any_number_of_inputs_and_several_outputs():
    x = numbers(2, 4)
    total, half = sum_and_half([x, x, x])
    torch.testing.assert_close(total, 3 * x)
    assert half.dtype == torch.int32
    torch.testing.assert_close(half, (3 * x[:, :2]).to(torch.int32))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operator", "inputs", "fields"),
    [
        (reorg, (numbers(2, 16, 4, 4),), {"stride": 2}),
        (torch.ops.darknet.region, (numbers(1, 6, 2, 2),), {"classes": 1}),
        (many_kinds, (numbers(1, 2),), {"factor": 2.0}),
        (sum_and_half, ([numbers(2, 4), numbers(2, 4)],), {}),
    ],
)
def test_pytorchs_own_checks_pass(operator, inputs, fields):
    found = torch.library.opcheck(operator.default, inputs, fields)
    assert set(found.values()) == {"SUCCESS"}


def test_an_output_that_is_the_input_or_another_output_is_copied():
    same, twice, x = ptp.torch.register(Same), ptp.torch.register(Twice, outputs=2), numbers(2, 2)
    y = same(x)
    y += 1
    torch.testing.assert_close(x, numbers(2, 2))
    one, other = twice(x)
    one += 1
    torch.testing.assert_close(other, x + 1)


@pytest.mark.filterwarnings("ignore")
def test_free_sizes_go_through_the_shape_rule():
    free = {axis: torch.export.Dim(name, min=2) for axis, name in ((0, "n"), (2, "h"), (3, "w"))}
    free[2], free[3] = 2 * torch.export.Dim("h", min=2), 2 * torch.export.Dim("w", min=2)

    class Net(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x):
            return torch.ops.darknet.reorg(x, stride=2)

    program = torch.export.export(Net(), (numbers(2, 4, 8, 6),), dynamic_shapes=(free,))
    for dims in ((3, 4, 8, 6), (2, 4, 10, 4)):
        x = numbers(*dims)
        np.testing.assert_array_equal(program.module()(x).numpy(), Reorg(stride=2).compute(x.numpy()))


@pytest.mark.filterwarnings("ignore")
def test_a_network_compiles_in_one_graph():
    net, x = PassThrough().eval(), torch.rand(1, 3, 8, 8)
    with torch.no_grad():
        compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), net(x))


def test_dims_and_fields_that_the_plugin_refuses_are_its_errors():
    with pytest.raises(DimsError, match="height"):
        reorg(numbers(1, 4, 3, 4), stride=2)
    with pytest.raises(FieldError, match="at least 1"):
        reorg(numbers(1, 4, 4, 4), stride=0)
    with pytest.raises(DimsError, match="height"):
        reorg(numbers(1, 4, 3, 4).to("meta"), stride=2)


def test_a_backward_pass_says_that_there_is_no_gradient():
    y = reorg(numbers(1, 4, 4, 4).requires_grad_(), stride=2)
    with pytest.raises(PluginError, match=r"Reorg has no gradient(.|\n)*Do: call it within torch.no_grad"):
        y.sum().backward()


def test_registering_again_gives_the_operator_and_another_class_is_refused():
    assert ptp.torch.register(Reorg) is reorg
    ptp.torch.register(Same)
    with pytest.raises(RegistryError, match="'test_torch::same' is Same") as raised:
        ptp.torch.register(ManyKinds, name="same")
    assert raised.value.name == "test_torch::same"


def test_threads_define_an_operator_once(monkeypatch):
    register = importlib.import_module("pytrtplugins.torch.register")  # the package's name is the function's
    both, define = Interleaving(register._LOCK), register._define
    monkeypatch.setattr(register, "_LOCK", both)
    monkeypatch.setattr(register, "_define", lambda *given: both.inside() or define(*given))
    first, second = both.run(*[lambda: ptp.torch.register(Same, name="defined_once")] * 2)
    assert first is second


def test_another_number_of_outputs_is_refused():
    one = ptp.torch.register(SumAndHalf, name="one_output")
    with pytest.raises(DimsError, match=r"2 outputs, and was registered with 1(.|\n)*outputs=2"):
        one([numbers(2, 4)])


def test_an_array_is_no_attribute_of_an_operator():
    @ptp.plugin(namespace="test.torch")
    class WithArray(ptp.Plugin):
        table: np.ndarray

        def output_dims(self, x):
            return x

        def compute(self, x):
            return x + self.table

    with pytest.raises(FieldError, match=r"WithArray\.table is an array"):
        ptp.torch.register(WithArray)


@ptp.plugin(namespace="test.torch")
class InputAlone(Doubled):
    def supports_format(self, position, descs):
        return position == 0


@pytest.fixture
def streams(monkeypatch):
    """The streams that plugins are queued on; NumPy is in CuPy's place."""
    addresses = []

    def stream_at(cupy, address):
        addresses.append(address)
        return nullcontext()

    monkeypatch.setattr(launch, "as_cupy", lambda tensor: tensor.numpy())
    monkeypatch.setattr(launch, "require", lambda *_, **__: None)
    monkeypatch.setattr(launch, "stream_at", stream_at)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=7))
    return addresses


@pytest.mark.skipif(not host_backend.available(), reason="no C++ compiler (apt-get install g++)")
@pytest.mark.parametrize(
    ("plugin", "form"),
    [(Doubled(), "enqueue"), (SumAndHalf(), "compute"), (Twice(), "compute"), (InputAlone(), "compute")],
)
def test_on_a_gpu_the_plugin_is_configured_once_and_queued_with_its_workspace(monkeypatch, streams, plugin, form):
    forms = []

    class Runner(PluginRunner):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            forms.append(kwargs["form"])

    monkeypatch.setattr(launch, "PluginRunner", Runner)
    launches = launch.PluginLaunches()
    for factor in (1, 2):
        x = factor * numbers(4, 2).T  # whose elements lie in another order
        found = launches.run(plugin, [x])
        for y, wanted in zip(found, plugin.all_outputs([x.numpy()]), strict=True):
            np.testing.assert_array_equal(y.numpy(), wanted)
    launches.run(plugin, [numbers(1, 2)])
    assert forms == [form, form]
    assert streams == [7] * 3


class OnAnother(torch.Tensor):  # type: ignore[name-defined]
    device = torch.device("cpu", 1)

    def detach(self):
        return self


def test_on_a_gpu_other_fields_dims_types_and_devices_are_configured_anew_and_the_oldest_is_released(
    monkeypatch, streams
):
    real = launch._prepare_runner
    made: list = []
    closed: list = []

    def prepare(plugin, tensors):
        runner, types = real(plugin, tensors)
        monkeypatch.setattr(runner, "close", partial(closed.append, len(made)))
        made.append(runner)
        return runner, types

    monkeypatch.setattr(launch, "_prepare_runner", prepare)
    monkeypatch.setattr(launch, "_MAX_RUNNERS", 5)
    launches, x = launch.PluginLaunches(), numbers(1, 4, 2, 2)
    calls = [
        (2, [x]),
        (1, [x]),
        (2, [x.reshape(1, 4, 1, 4).repeat(1, 1, 2, 1)]),
        (2, [x.half()]),
        (2, [x.as_subclass(OnAnother)]),
    ]
    for _ in range(2):
        for stride, inputs in calls:
            (y,) = launches.run(Reorg(stride=stride), inputs)
            wanted = Reorg(stride=stride).compute(inputs[0].as_subclass(torch.Tensor).numpy())
            np.testing.assert_array_equal(y.numpy(), wanted)
    assert (len(made), closed) == (5, [])
    launches.run(Reorg(stride=2), [numbers(2, 4, 2, 2)])
    assert (len(made), closed) == (6, [0])


@pytest.mark.parametrize("key", ["CPU", "CUDA", "Meta", "Autograd"])
def test_an_operator_has_a_kernel_for_the_host_a_gpu_shapes_and_gradients(key):
    assert torch._C._dispatch_has_kernel_for_dispatch_key("darknet::reorg", key)


@pytest.mark.parametrize(
    ("compute", "names"),
    [
        (lambda self, x, y: 0, ["x", "y"]),
        (lambda self, x, /, y, *, z=0: 0, ["x", "y"]),
        (lambda self, x, *more: 0, None),
        (staticmethod(lambda x: 0), ["x"]),
        (lambda self: 0, []),
    ],
)
def test_the_inputs_are_what_compute_takes_by_place(compute, names):
    assert input_names(type("Plugin", (), {"compute": compute})) == names


@pytest.mark.parametrize(
    ("key", "name", "wanted"),
    [
        (("a.b", "LeakyScale"), None, "a_b::leaky_scale"),
        (("a", "Conv2DBlock"), None, "a::conv2_dblock"),
        (("a", "X"), "my-name", "a::my_name"),
    ],
)
def test_what_pytorchs_names_cannot_hold_becomes_an_underscore(key, name, wanted):
    cls = SimpleNamespace(plugin_key=lambda: PluginKey(key[0], key[1], "1"))
    assert operator_name(cls, name) == wanted


def test_pytorch_is_imported_when_it_is_needed():
    code = "import sys, pytrtplugins as ptp; ptp.torch.register; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_without_pytorch_the_error_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import pytrtplugins as ptp\n"
        "from pytrtplugins.layers import Reorg\n"
        "for call in (lambda: ptp.torch.register(Reorg), lambda: ptp.torch.as_module(None), ptp.torch.export_options):\n"
        "    try: call()\n"
        "    except ptp.errors.MissingExtraError as error: print(error.extra)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["torch"] * 3
