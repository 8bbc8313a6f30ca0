"""What an exported plugin gives is what its Python class gives: values, dims, types, errors and bytes."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytrtplugins import SymbolicDim
from pytrtplugins.errors import DimsError, FieldError, PluginError
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.tensor import PLUGIN_DTYPES, DType, TensorDesc

from .arithmetic import FLOATS, WHOLE, Formula, Numbers
from .layers import BlockSums, Join, MeanAndRest, Rectified, Repeat, Scale

REGION = {"classes": 3, "num": 2, "softmax": True, "anchors": (1.0, 2.0, 3.0, 4.0), "coords": 4}
REGION |= {"background": False, "tree": ()}
N = SymbolicDim("N")


def array(dims, dtype=np.float32, seed=0):
    values = np.random.default_rng(seed).standard_normal(dims) * (30 if np.dtype(dtype).kind == "i" else 1)
    return values.astype(dtype)


def as_nhwc(x):
    """The values in NHWC order in memory, under the same shape."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(x.shape)


def check(exported, plugin, *arrays, **options):
    expected = plugin.all_outputs(arrays)
    found = exported.run(plugin, *arrays, **options)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


@given(
    n=st.integers(1, 3), c=st.integers(1, 5), h=st.integers(1, 4), w=st.integers(1, 5), s=st.integers(1, 3),
    reverse=st.booleans(), dtype=st.sampled_from(["float32", "float16", "int8"]), seed=st.integers(0, 99),
)  # fmt: skip
def test_reorg_gives_what_compute_gives(export, n, c, h, w, s, reverse, dtype, seed):
    check(export(Reorg), Reorg(s, reverse), array((n, c * s * s, h * s, w * s), dtype, seed))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_layout_has_its_own_kernel(export, dtype, reverse):
    x, plugin = array((2, 8, 6, 4), dtype), Reorg(2, reverse)
    expected = plugin.compute(x)
    (found,) = export(Reorg).run(plugin, as_nhwc(x), layout="nhwc")
    np.testing.assert_array_equal(found, as_nhwc(expected))


@given(
    dims=st.lists(st.integers(0, 5), min_size=1, max_size=6), factor=st.floats(0.0625, 8, width=32), inverse=st.booleans(),
    dtype=st.sampled_from(["float32", "float16"]),
)  # fmt: skip
def test_any_number_of_axes_shares_one_launch(export, dims, factor, inverse, dtype):
    check(export(Scale), Scale(factor, inverse), array(dims, dtype))


def test_codes_have_the_scales_that_configure_finds(export):
    check(export(Rectified), Rectified(), array((2, 3)))
    x, y, steps = np.arange(-128, 128).astype(np.int8), np.empty(256, np.int8), (0.5, 0.25)
    ins, outs = ([TensorDesc("", (256,), DType.INT8, scale=step)] for step in steps)
    expected = np.clip(np.maximum(x.astype(np.float32), 0) * 2, 0, 127)
    made = export(Rectified).made(Rectified())
    made.configure(ins, outs)
    made.initialize()
    made.enqueue([x], [y], ["linear"] * 2, 0, 0, steps)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dims", [(1, 1, 1, 1), (3, 4, 5, 2)])
def test_two_outputs_and_a_workspace(export, dims, dtype):
    check(export(MeanAndRest), MeanAndRest(), array(dims, dtype))


@pytest.mark.parametrize("kind", ["sum", "product", "table"])
@pytest.mark.parametrize("dims", [(7,), (3, 6), (2, 3, 5), (1, 2, 3, 4)])
def test_branches_on_texts_dims_and_state_are_kept(export, kind, dims):
    check(export(Join), Join(kind), array(dims), array(dims, seed=1))


@example(a=7, b=-3, x=-3.5, flag=False, text="one", n=1, m=1)
@given(
    a=st.integers(-1000, 1000), b=st.integers(-50, 50).filter(bool), x=st.floats(-100, 100, width=32), flag=st.booleans(),
    text=st.sampled_from(["one", "two", "three"]), n=st.integers(1, 9), m=st.integers(1, 9),
)  # fmt: skip
def test_arithmetic_is_pythons(export, a, b, x, flag, text, n, m):
    check(export(Numbers), Numbers(a, b, x, flag, text), np.zeros((n, m), np.float32))


def formula_gives(export, *fields):
    """What Python and the exported layer make of one formula: bits of a number, or that there is none."""
    plugin, exported, x, found = Formula(*fields), export(Formula), np.zeros(1, np.float32), []
    for run in (plugin.compute, lambda x: exported.run(plugin, x)[0]):
        try:
            (value,) = run(x)
        except (ArithmeticError, ValueError, PluginError):
            found.append("no value")
        else:
            number = value.view(np.float64)
            found.append(math.nan if fields[0] in FLOATS and np.isnan(number) else int(value))
    return found


FLOAT = st.floats(width=32) | st.integers(-40, 40).map(lambda value: value / 8) | st.sampled_from([2.0**53, 2.0**63])
INT = st.integers(-(2**63), 2**63 - 1) | st.integers(-20, 20) | st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1])


@pytest.mark.parametrize("formula", [*FLOATS, *WHOLE])
@given(x=FLOAT, y=FLOAT, a=INT, b=INT)
@example(x=-3.5, y=0.699999988079071, a=2**53 + 1, b=3)
@example(x=2.0**53, y=2.0**63, a=2**53 + 1, b=2**63 - 1)  # which doubles cannot tell apart
@example(x=0.0, y=-0.0, a=-(2**63), b=-1)
@example(x=-0.0, y=1.0, a=0, b=-5)
@example(x=float("nan"), y=float("inf"), a=2**63 - 1, b=2**53 + 1)
def test_each_formula_is_pythons(export, formula, x, y, a, b):
    python, exported = formula_gives(export, formula, x, y, a, b)
    assert repr(python) == repr(exported)


def test_threads_that_wait_for_each_other(export):
    check(export(BlockSums), BlockSums(), array((320,)))


def test_a_plugin_whose_launches_need_numbers_is_exported_for_these_alone(export):
    exported = export(Region, **REGION)
    x = array((2, 16, 3, 5))
    (found,) = exported.run(Region(**REGION), x)
    np.testing.assert_allclose(found, Region(**REGION).compute(x), rtol=1e-6, atol=1e-7)
    with pytest.raises(FieldError, match=r"Region.classes: this library was exported for 3 alone"):
        exported.made(Region(**{**REGION, "classes": 4}))


def test_a_fixed_field_unrolls_a_loop(export):
    check(export(Repeat, times=3), Repeat(3), array((5, 2)))


def test_fields_have_pythons_names_types_defaults_and_bytes(export):
    entry = export(Scale).entry
    assert entry.key == tuple(Scale.plugin_key())
    assert entry.fields() == [
        ("factor", "float", Scale().factor),
        ("inverse", "bool", False),
        ("note", "tuple[int, ...]", (1, 2)),
        ("title", "str", 'größe "x"?'),
    ]
    assert entry.description == Scale.__doc__
    for plugin in (Scale(), Scale(7, True, (), "\n\0??/")):
        assert export(Scale).made(plugin).serialize() == plugin.serialize()
        assert export(Scale).made(Scale()).deserialize(plugin.serialize()).serialize() == plugin.serialize()


@pytest.mark.parametrize(
    ("cls", "fields"),
    [(Scale, {"factor": -1}), (Reorg, {"stride": 0}), (Reorg, {"stride": -(2**63)}), (Join, {"kind": "ä"})],
)
def test_fields_are_refused_with_pythons_message(export, cls, fields):
    with pytest.raises(FieldError) as python:
        cls(**fields)
    values = {spec.name: spec.default for spec in cls.field_specs()}
    with pytest.raises(FieldError) as cpp:
        export(cls).entry.make({**values, **fields})
    assert str(cpp.value) == str(python.value)


@pytest.mark.parametrize(
    ("plugin", "dims"),
    [
        (Reorg(2), [(1, 6, 4, 4)]), (Reorg(2), [(1, 8, 3, 4)]), (Reorg(2), [(1, 8, 4, 3)]), (Reorg(3, True), [(N, 8, 3, 3)]),
        (Join(), [(2, 3), (2, 4)]), (Join("sum", 2), [(2, 3), (2, 3)]), (BlockSums(), [(65,)]),
    ],
)  # fmt: skip
def test_dims_are_refused_with_pythons_message(export, plugin, dims):
    with pytest.raises(DimsError) as python:
        plugin.all_output_dims(dims)
    with pytest.raises(DimsError) as cpp:
        export(type(plugin)).made(plugin).output_dims(dims)
    assert str(cpp.value) == str(python.value)


@pytest.mark.parametrize("dims", [(1, 8, 4), (1, 8, 4, 4, 2), ()])
def test_numbers_of_axes_that_python_refuses_are_refused(export, dims):
    with pytest.raises(DimsError):
        Reorg(2).all_output_dims([dims])
    with pytest.raises(DimsError, match="Reorg does not accept inputs with these numbers of axes"):
        export(Reorg).made(Reorg(2)).output_dims([dims])


@pytest.mark.parametrize(
    ("plugin", "dims"),
    [
        (Reorg(2), [(N, 8, 4, SymbolicDim("W"))]), (Reorg(2, True), [(N, 8, SymbolicDim("H"), 4)]), (Scale(), [(N, 2, 3)]),
        (MeanAndRest(), [(N, 3, SymbolicDim("H"), 5)]), (BlockSums(), [(N,)]), (Join(), [(N, 3), (N, 3)]),
    ],
)  # fmt: skip
def test_symbolic_dims_give_pythons_expressions(export, plugin, dims):
    found = export(type(plugin)).made(plugin).output_dims(dims)
    assert [tuple(map(str, one)) for one in found] == [tuple(map(str, one)) for one in plugin.all_output_dims(dims)]


@pytest.mark.parametrize("plugin", [Reorg(2), Scale(), Join(), MeanAndRest()])
def test_types_and_layouts_are_those_of_python(export, plugin):
    made = export(type(plugin)).made(plugin)
    dims = [(2, 8, 4, 4)] * plugin.num_inputs
    outputs = plugin.all_output_dims(dims)
    count = len(dims) + len(outputs)
    for layout in ("linear", "nhwc"):
        for dtype in PLUGIN_DTYPES:
            for position in range(count):
                for other in (DType.FLOAT32, dtype):
                    descs = [
                        TensorDesc("", one, dtype if index == position else other, layout)
                        for index, one in enumerate([*dims, *outputs])
                    ]
                    expected = all(plugin.supports_format(index, descs) for index in range(position + 1))
                    assert made.supports_format(position, descs) == expected, (layout, dtype, position, other)
            assert made.output_types([str(dtype)] * len(dims)) == [
                str(one) for one in plugin.all_output_dtypes([dtype] * len(dims), len(outputs))
            ]


def test_numbers_that_a_kernels_parameter_cannot_hold_are_refused(export):
    with pytest.raises(DimsError, match=r"kernel parameter `int area`: 4294967296 does not fit"):
        export(MeanAndRest).run(MeanAndRest(), np.zeros((0, 1, 2**16, 2**16), np.float32))


def test_nothing_is_launched_for_no_threads(export):
    check(export(MeanAndRest), MeanAndRest(), np.zeros((0, 1, 2, 2), np.float32))


def test_a_workspace_may_be_larger_than_32_bits_say(export):
    made = export(MeanAndRest).made(MeanAndRest())
    dims = [(70000, 70000, 1, 1)]
    ins, outs = ([TensorDesc("", one) for one in side] for side in (dims, made.output_dims(dims)))
    assert made.workspace_size(ins, outs) == 16 + 4 * 70000**2
