"""Plugin classes as quickly deployable plugins, in TensorRT's own ``tensorrt.plugin`` over its real registry.

``register``, ``impl``, ``autotune`` and the template class that TensorRT makes of them are NVIDIA's code. What the builder and the
execution context would do with its objects is played here; dimension expressions are this folder's own.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import pytrtplugins as ptp
import pytrtplugins.tensorrt
from pytrtplugins import errors
from pytrtplugins.engines.tensorrt import _api, quick
from pytrtplugins.engines.tensorrt.collected import collecting
from pytrtplugins.engines.tensorrt.memory import use_memory
from pytrtplugins.layers import Reorg
from pytrtplugins.tensor import DType
from tests.host_memory import HostMemory
from tests.user_plugins import Copy

from . import user_plugins
from .driver import Driver, Expr, ExprBuilder

to_qdp = pytrtplugins.tensorrt.to_qdp


@ptp.plugin(namespace="quick_test")
class Shuffle(Copy):
    groups: int = 2

    def compute(self, x):
        n, c, h, w = x.shape
        return x.reshape(n, self.groups, c // self.groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)


@ptp.plugin(namespace="quick_test")
class Slopes(Copy):
    """A weight array, and a field of every other type."""

    slope: npt.NDArray[np.float32]
    number: int = 3
    flag: bool = True
    ratio: float = 0.1
    text: str = "edge"
    flags: tuple[bool, ...] = (True, False)
    numbers: tuple[int, ...] = (1, -2)
    ratios: tuple[float, ...] = (0.5,)
    texts: tuple[str, ...] = ("a", "b")

    def compute(self, x):
        return x * self.slope.astype(x.dtype)


@ptp.plugin(namespace="quick_test")
class Halves(ptp.Plugin):
    """Two outputs of other dims, two tactics, workspace, and float32 alone."""

    num_outputs: ClassVar[int] = 2
    tactics: ClassVar[tuple[str, ...]] = ("slow", "fast")
    tactic: ClassVar[str] = "slow"
    used: ClassVar[list[Any]] = []

    def output_dims(self, x, scale):
        n, c = x
        return (n, (c + 1) // 2), (n * 2 + 1, c // 2 - n % 3)

    def supports_format(self, position, tensors):
        return tensors[position].dtype == DType.FLOAT32 and tensors[position].layout in ("linear", "nhwc")

    def workspace_size(self, inputs, outputs):
        return 16

    def compute(self, x, scale):
        raise NotImplementedError

    def enqueue(self, inputs, outputs, workspace, stream):
        Halves.used.append((self.tactic, workspace.nbytes))
        outputs[0][...] = inputs[0][:, ::2]
        outputs[1][...] = 7


class Tensor:
    """A tensor of a network."""


def _keeping(real: Any, kept: list[Any]) -> Any:
    def make(*given: Any) -> Any:
        kept.append((given, real(*given)))
        return kept[-1][1]

    return make


@pytest.fixture
def trt(api: _api.Api, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The full bindings; expressions of dims and tensors of networks are this file's, since only TensorRT makes real ones."""
    if not api.builds:
        pytest.skip("the lean package has no tensorrt.plugin: TENSORRT_SUBSTRATE=stubs")
    monkeypatch.setattr(api.trt, "IDimensionExpr", Expr)
    monkeypatch.setattr(api.trt, "ITensor", Tensor)
    kept: list[Any] = []  # the collections hold pointers, which TensorRT's C++ follows before they are gone
    for name in ("PluginField", "PluginFieldCollection"):
        monkeypatch.setattr(api.trt, name, _keeping(getattr(api.trt, name), kept))
    monkeypatch.setattr(api.trt, "DimsExprs", lambda count: [None] * count)
    return api.trt


class Layer:
    """One quickly deployable plugin through its life, as TensorRT calls NVIDIA's template."""

    def __init__(self, made: quick.QuickPlugin, **fields: Any) -> None:
        self.made, self.api, self.driver = made, made._api, Driver(made._api, "v3")
        trt = self.api.trt
        namespace, _, name = made.id.partition("::")
        found = trt.get_plugin_registry().get_creator(name, "1", namespace)
        self.names = [field.name for field in found.field_names]
        given = made(*(Tensor() for _ in made.inputs), **fields)
        _, shape_inputs, self.build = (
            given() if callable(given) else given
        )  # what add_plugin does since 10.9, and before
        assert shape_inputs == []
        saved = self.build.get_fields_to_serialize()
        self.engine = found.create_plugin(name, namespace, saved, trt.TensorRTPhase.RUNTIME)

    def types(self, *dtypes: DType, ranks: Sequence[int] = (4,)) -> list[DType | None]:
        found = self.build.get_output_data_types([self.api.data_type(dtype) for dtype in dtypes], list(ranks))
        return [self.api.dtype(value) for value in found]

    def shapes(self, *dims: Sequence[int], free: Sequence[int] = (0,)) -> list[list[Expr]]:
        exprs = [[Expr(size, axis in free) for axis, size in enumerate(shape)] for shape in dims]
        return self.build.get_output_shapes(exprs, [], ExprBuilder())

    def combinations(self, count: int, *dims: Sequence[int]) -> set[tuple[str, ...]]:
        """What ``autotune`` answers, after `types` and `shapes`; types and layouts of each tensor."""
        shown = [self.dynamic(shape) for shape in dims]
        found = self.build.get_supported_format_combinations(shown, count)
        each = [f"{desc.type.name} {desc.format.name}" for desc in found]
        return {tuple(each[index : index + len(dims)]) for index in range(0, len(each), len(dims))}

    def dynamic(self, dims: Sequence[int]) -> Any:
        dynamic = self.driver.dynamic(self.driver.desc([max(size, 1) for size in dims], DType.FLOAT32))
        dynamic.desc = self.driver.desc(dims, DType.FLOAT32)
        return dynamic

    def run(self, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray], tactic: int = 0) -> None:
        context = self.engine.clone()
        context.set_tactic(tactic)
        sides = (arrays, outputs)
        descs = [[self.driver.desc(array.shape, DType.of(array)) for array in side] for side in sides]
        addresses = [[array.ctypes.data for array in side] for side in sides]
        strides = [[tuple(s // array.itemsize for s in array.strides) for array in side] for side in sides]
        context.aliased_map = {}
        context.enqueue(*descs, *addresses, *strides, 0)


@pytest.fixture(autouse=True)
def _memory():
    with use_memory(HostMemory()):
        yield


def image(*dims: int) -> np.ndarray:
    return np.random.default_rng(0).random(dims, dtype=np.float32)


@pytest.mark.parametrize("dims", [(2, 6, 4, 4), (1, 6, 2, 2)])
def test_a_class_runs_as_a_quickly_deployable_plugin(trt, dims):
    layer = Layer(to_qdp(Shuffle), groups=3)
    assert layer.types(DType.FLOAT32) == [DType.FLOAT32]
    (exprs,) = layer.shapes(dims)
    assert [expr.value for expr in exprs] == list(dims)
    assert exprs[0].free
    assert layer.combinations(1, (-1, *dims[1:]), (-1, *dims[1:])) >= {
        ("FLOAT LINEAR", "FLOAT LINEAR"),
        ("HALF LINEAR", "HALF LINEAR"),
    }
    x = image(*dims)
    for _ in range(2):
        y = np.zeros_like(x)
        layer.run([x], [y])
        np.testing.assert_array_equal(y, Shuffle(groups=3).compute(x))


def test_layers_of_other_dims_and_fields_take_turns(trt):
    made = to_qdp(Shuffle)
    assert made is to_qdp(Shuffle)
    layers = {groups: Layer(made, groups=groups) for groups in (2, 3, 6)}
    for count in (1, 2, 1):
        for groups, layer in layers.items():
            x = image(count, 6, 2, 2)
            y = np.zeros_like(x)
            layer.run([x], [y])
            np.testing.assert_array_equal(y, Shuffle(groups=groups).compute(x))


@pytest.mark.parametrize("slope", [[[[0.5]], [[2.0]]], [[[3.0]]], 4.0])
def test_fields_of_every_type_arrive_through_the_engine(trt, slope, monkeypatch):
    given = Slopes(
        slope=slope, number=-(2**40), flag=False, ratio=0.3, text="ä b", flags=(False, True, True), numbers=(7,),
        ratios=(1.5, 2.5), texts=("x", "ü,y"),
    )  # fmt: skip
    layer = Layer(to_qdp(Slopes), **given.fields())
    assert layer.names[:3] == ["slope", "slope_dims", "number"]
    seen = []
    monkeypatch.setattr(Slopes, "compute", lambda self, x: seen.append(self) or x * self.slope)
    x = image(1, 2, 2, 2)
    y = np.zeros_like(x)
    layer.run([x], [y])
    assert seen[-1] == given
    np.testing.assert_array_equal(y, x * np.float32(slope))


@pytest.mark.parametrize(("text", "texts", "numbers"), [("", (), ()), ("a", ("",), (0,))])
def test_what_is_empty_arrives_empty(trt, text, texts, numbers, monkeypatch):
    given = Slopes(slope=np.zeros((0, 3), np.float32), text=text, texts=texts, numbers=numbers)
    layer = Layer(to_qdp(Slopes), **given.fields())
    seen = []
    monkeypatch.setattr(Slopes, "compute", lambda self, x: seen.append(self) or x)
    layer.run([image(1, 2)], [image(1, 2)])
    assert seen[-1] == given


@pytest.mark.parametrize("tactic", [1, 2])
def test_outputs_arithmetic_of_dims_tactics_and_workspace(trt, tactic):
    made = to_qdp(Halves)
    assert made.inputs == ("x", "scale")
    layer = Layer(made)
    assert layer.types(DType.FLOAT32, DType.FLOAT32, ranks=(2, 1)) == [DType.FLOAT32] * 2
    first, second = layer.shapes((4, 7), (1,))
    assert [expr.value for expr in first] == [4, 4]
    assert [expr.value for expr in second] == [9, 3 - 4 % 3]
    assert all(expr.free for expr in (first[0], *second))
    layouts = layer.combinations(2, (-1, 7), (1,), (-1, 4), (-1, -1))
    assert len(layouts) == 16
    assert {part.split()[0] for combination in layouts for part in combination} == {"FLOAT"}
    layer.build.configure_plugin(
        [layer.dynamic((4, 7)), layer.dynamic((1,))], [layer.dynamic((4, 4)), layer.dynamic((9, 2))]
    )
    assert layer.build.get_valid_tactics() == [1, 2]
    x, y, z = image(4, 7), np.zeros((4, 4), np.float32), np.zeros((9, 2), np.float32)
    Halves.used.clear()
    layer.run([x, image(1)], [y, z], tactic)
    assert Halves.used == [(Halves.tactics[tactic - 1], 16)]
    np.testing.assert_array_equal(y, x[:, ::2])
    np.testing.assert_array_equal(z, 7)


@pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler: apt-get install g++")
def test_a_kernel_of_the_class_is_what_runs(trt):
    made = to_qdp(Reorg, "quick_darknet::Reorg")
    layer, x = Layer(made, stride=2), image(1, 4, 4, 4)
    layer.types(DType.FLOAT32)
    (exprs,) = layer.shapes((1, 4, 4, 4))
    y = np.zeros([expr.value for expr in exprs], np.float32)
    layer.run([x], [y])
    np.testing.assert_array_equal(y, Reorg(stride=2).compute(x))


def test_what_a_plugin_raises_inside_of_tensorrt_is_raised_here(trt):
    layer = Layer(to_qdp(Reorg, "quick_darknet::Reorg"), stride=2)
    layer.types(DType.FLOAT32)
    with (
        pytest.raises(errors.DimsError, match="height must be a multiple of 2"),
        collecting(),
        contextlib.suppress(errors.DimsError),
    ):
        layer.shapes((1, 4, 3, 4))  # TensorRT's C++ does not let an exception through


def test_two_creators_of_one_name_and_missing_numbers_of_inputs_are_refused(trt):
    class_of_v3 = ptp.plugin(namespace="quick_test", name="Taken")(type("Taken", (Shuffle,), {}))
    pytrtplugins.tensorrt.register(class_of_v3)
    words = r'creator of this name[\s\S]*Do: to_qdp\(Taken, "quick_test_quick::Taken"\)'
    with pytest.raises(errors.RegistryError, match=words):
        to_qdp(class_of_v3)
    pytrtplugins.tensorrt.unregister(class_of_v3)

    @ptp.plugin(namespace="quick_test")
    class Sum(ptp.Plugin):
        def output_dims(self, *dims):
            return dims[0]

        def compute(self, *arrays):
            return sum(arrays)

    with pytest.raises(errors.UsageError, match=r"Do: to_qdp\(Sum, inputs=2\)"):
        to_qdp(Sum)
    made = to_qdp(Sum, inputs=3)
    assert made.inputs == ("input0", "input1", "input2")
    y = image(2, 2)
    Layer(made).run([image(2, 2)] * 3, [y])
    np.testing.assert_allclose(y, image(2, 2) * 3)


def test_names_and_arrays_that_qdp_does_not_have_are_refused(trt):
    for error, cls, name, words in (
        (
            errors.UsageError,
            user_plugins.Scale,
            [],
            r"'test.tensorrt::Scale'.\nDo: to_qdp\(Scale, \"test_tensorrt::Scale\"\)",
        ),
        (
            errors.PluginError,
            Shuffle,
            ["trt::Shuffle"],
            r"Shuffle: TensorRT .* as 'trt::Shuffle': .* reserved namespace",
        ),
        (
            *(errors.FieldError, user_plugins.Everything, ["quick_test::Everything"]),
            r"Everything.table: .* found any type.\nDo: annotate it, .*NDArray\[numpy.float32\]",
        ),
    ):
        with pytest.raises(error, match=words):
            to_qdp(cls, *name)
    with pytest.raises(errors.FieldError, match="groups"):
        to_qdp(Shuffle)(groups="two")


def test_the_functions_that_are_used_are_there(trt):
    assert hasattr(trt.INetworkDefinition, "add_plugin")
    trtp = importlib.import_module("tensorrt.plugin")
    assert {"register", "impl", "autotune", "AutoTuneCombination", "ShapeExpr", "TensorDesc", "from_shape_expr"} <= set(
        dir(trtp)
    )


def test_older_and_lean_packages_are_refused_with_the_command(monkeypatch):
    class Old:
        version = "10.6.0"
        name = "tensorrt"

        def require_builder(self):
            """It builds."""

    monkeypatch.setattr(quick, "load", lambda package: Old())
    words = r'TensorRT 10.6.0: .* 10.7 or newer.\nDo: pip install "tensorrt>=10.7,<12"'
    with pytest.raises(errors.UnavailableError, match=words):
        to_qdp(Shuffle)


def test_without_tensorrt_and_with_a_package_that_only_runs_engines_the_command_is_named(monkeypatch):
    for name in _api.MODULES:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(quick, "load", _api.load.__wrapped__)
    with pytest.raises(errors.MissingExtraError, match=r'Do: pip install "pytrtplugins\[tensorrt\]"'):
        to_qdp(Shuffle)


def test_a_package_that_only_runs_engines_is_refused(api):
    if not api.builds:
        with pytest.raises(errors.UnavailableError, match=r"runs engines and cannot build them.\nDo: pip install"):
            to_qdp(Shuffle)
