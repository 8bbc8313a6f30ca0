"""Plugins written in Python and exported as C++, through their whole life in TensorRT's registry."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

from pytrtplugins.engines.tensorrt.creators import unregister
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.layers import Region, Reorg
from pytrtplugins.tensor import DType

from ..export.layers import BlockSums, Join, MeanAndRest, Mix, PRelu, Scale
from .conftest import ROOT, runtime_library
from .driver import DTYPES, HWC, RUNTIME, Refused
from .user_plugins import Bias

REGION = Region(classes=3, num=2, softmax=True, anchors=(1, 2, 3, 4))
CASES = [
    (Reorg(stride=2), [(2, 8, 4, 6)]),
    (Reorg(stride=2, reverse=True), [(2, 8, 4, 6)]),
    (REGION, [(2, 16, 3, 5)]),
    (Scale(factor=0.5, inverse=True, note=(), title="größe"), [(2, 3, 4)]),
    (MeanAndRest(), [(3, 4, 5, 2)]),
    (Join("table"), [(3, 6), (3, 6)]),
    (Join("product"), [(2, 3, 7), (2, 3, 7)]),
    (BlockSums(), [(128,)]),
    (PRelu(slope=[0.5, -1, 3]), [(2, 3, 4)]),
    (PRelu(slope=np.linspace(-1, 1, 40)), [(1, 40, 2, 2)]),
    (Mix(matrix=[[1, 2, 3], [0.5, -1, 0.1]], offsets=[0.1, -3], shifts=[5]), [(2, 3, 5)]),
]


def arrays(dims, dtype=np.float32):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(one).astype(dtype) for one in dims]


@pytest.fixture(scope="session")
def library(headers, tmp_path_factory):
    """Export a class against TensorRT's headers, once for each form."""
    made = {}

    def export(plugin, loadable=True):
        if (plugin, loadable) not in made:
            path = tmp_path_factory.mktemp("exported") / f"lib{plugin.__name__.lower()}.so"
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("CXXFLAGS", "-O0 -Werror")
                fixed = REGION.fields() if plugin is Region else {}
                written = export_plugin(
                    plugin, path, fixed=fixed, loadable=loadable, tensorrt_include=headers, host=True
                )
            assert written.form == ("loadable" if loadable else "registering")
            made[plugin, loadable] = path
        return made[plugin, loadable]

    return export


@pytest.fixture
def offered(driver, library):
    """The exported class's creator in TensorRT's registry."""

    @contextlib.contextmanager
    def offer(plugin):
        unregister(plugin)
        handle = driver.call("load_library", driver.registry, str(library(plugin)).encode())
        assert handle
        try:
            yield
        finally:
            driver.call("unload_library", driver.registry, handle)

    return offer


@pytest.mark.parametrize(("plugin", "dims"), CASES, ids=[repr(plugin) for plugin, _ in CASES])
def test_a_life_gives_what_compute_gives(driver, offered, plugin, dims):
    given = arrays(dims)
    with offered(type(plugin)):
        found = driver.run(plugin, driver.build(plugin, given), given)
    for ours, expected in zip(found, plugin.all_outputs(given), strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_other_types_run_their_own_kernels(driver, offered, dtype):
    x = (arrays([(2, 8, 4, 4)])[0] * 30).astype(dtype)
    with offered(Reorg):
        (found,) = driver.run(Reorg(stride=2), driver.build(Reorg(stride=2), [x]), [x])
    np.testing.assert_array_equal(found, Reorg(stride=2).compute(x))


def test_fields_are_declared_and_saved_as_python_does(driver, offered):
    plugin = Scale(factor=0.5, inverse=True, note=(3, 4, 5), title="t")
    with offered(Scale):
        assert dict(driver.declared(Scale)).items() >= {
            "factor": "FLOAT32", "inverse": "INT32", "note": "INT32", "title": "CHAR"}.items()  # fmt: skip
        made = driver.create(Scale, driver.items(plugin))
        saved = [(name, kind, values.tolist()) for name, kind, values in driver.save(made)]
        assert saved == [(name, kind, values.tolist()) for name, kind, values in driver.items(plugin)]
        driver.destroy(made)


def test_arrays_are_declared_saved_and_read_as_python_does(driver, offered):
    with offered(PRelu):
        assert dict(driver.declared(PRelu))["slope"] == "FLOAT32"
        given = [(driver.items(PRelu(slope=slope)), slope) for slope in ([0.5, -1, 3], [7])]
        for kind in ("INT8", "INT16", "INT32", "INT64", "FLOAT64"):  # a parser passes on a list of ints as INT32
            given.append(([("slope", kind, np.array([1, -2], DTYPES[kind]))], [1, -2]))
        for items, slope in given:
            made = driver.create(PRelu, items)
            (saved,) = [item for item in driver.save(made) if item[0] == "slope"]
            assert (saved[1], saved[2].tolist()) == ("FLOAT32", slope)
            driver.destroy(made)


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([("slope", "CHAR", np.int8([65]))], r"PRelu\.slope: expected numbers, found CHAR with 1 entry"),
        ([("slope", "FLOAT64", np.float64([1e300]))], r"PRelu\.slope: expected an array of float32, found 1e\+300, which does not fit"),
        ([("slope", "FLOAT32", np.zeros(0, np.float32))], r"PRelu\.slope: expected an array of float32 with at least one element"),
        ([], r"PRelu\.slope: expected an array of float32 with at least one element, found none"),
        ([("pytrtplugins_serialized", "CHAR", np.int8([65] * 40))], r"the data is no serialized plugin"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_refused_with_the_reason(driver, offered, items, reason):
    with offered(PRelu), pytest.raises(Refused, match=reason):
        driver.create(PRelu, items)


def test_a_length_that_does_not_fit_the_input_is_refused(driver, offered):
    with offered(PRelu):
        made = driver.create(PRelu, driver.items(PRelu(slope=[1, 2])))
        with pytest.raises(Refused, match=r"PRelu: expected 2 channels, found dims \(4, 3, 8\)"):
            driver.output_dims(made, [driver.tensor((4, 3, 8), DType.FLOAT32)])
        driver.destroy(made)


def test_free_dims_become_expressions_of_the_inputs_dims(driver, offered):
    with offered(Reorg):
        made = driver.create(Reorg, driver.items(Reorg(stride=2)))
        x = driver.tensor((5, 8, 6, 4), DType.FLOAT32, free=(0, 2))
        assert driver.output_dims(made, [x]) == [((-1, 32, -1, 2), (5, 32, 3, 2))]
        odd = driver.tensor((5, 8, 3, 4), DType.FLOAT32, free=(0,))
        with pytest.raises(Refused, match=r"Reorg\(stride=2, reverse=False\): height must be a multiple of 2, found 3"):
            driver.output_dims(made, [odd])
        assert driver.accepts(made, driver.tensors(*([driver.tensor((1, 8, 4, 4), DType.INT8, layout=HWC)],) * 2))
        assert not driver.accepts(made, driver.tensors(*([driver.tensor((1, 8, 4, 4), DType.INT32)],) * 2))
        driver.destroy(made)


def test_the_workspace_is_that_of_the_largest_dims(driver, offered):
    (x,) = arrays([(3, 4, 5, 2)])
    with offered(MeanAndRest):
        assert driver.build(MeanAndRest(), [x], factor=7).workspace == 16 + 4 * 7 * 3 * 4


def test_wrong_fields_are_refused_with_pythons_message(driver, offered):
    with offered(Scale), pytest.raises(Refused, match=r"Scale\.factor: expected more than 0, found -1"):
        driver.create(Scale, [("factor", "FLOAT32", np.float32([-1]))])
    with offered(Region), pytest.raises(Refused, match=r"Region\.classes: this library was exported for 3 alone"):
        driver.create(Region, [("classes", "INT32", np.int32([4]))], RUNTIME)


@pytest.mark.parametrize(("plugin", "dims"), [(Reorg(stride=2), (2, 8, 4, 6)), (Bias(by=0.25), (3, 5))], ids=repr)
def test_an_exported_plugin_runs_the_engine_that_python_built(driver, headers, tmp_path, plugin, dims):
    path = tmp_path / "libexported.so"
    export_plugin(type(plugin), path, loadable=True, tensorrt_include=headers, host=True)
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    with driver.offered(type(plugin), "python"):
        built = driver.build(plugin, [x])
    unregister(type(plugin))
    with driver.library(path):
        (found,) = driver.run(plugin, built, [x])
        again = driver.build(plugin, [x])
    np.testing.assert_array_equal(found, plugin.compute(x))
    assert [item[:2] for item in again.fields] == [item[:2] for item in built.fields]
    assert again.workspace == built.workspace


SCRIPT = """
import ctypes, sys
from pathlib import Path
import numpy as np
from pytrtplugins.engines.tensorrt import _api
from tests.driver.driver import Driver
from tests.export.layers import Scale
driver = Driver(Path(sys.argv[1]), _api.load("tensorrt"), Path(sys.argv[2]))
assert not driver.creator(Scale)
ctypes.CDLL(sys.argv[3])
x = np.arange(12, dtype=np.float32).reshape(3, 4)
(found,) = driver.run(Scale(3), driver.build(Scale(3), [x]), [x])
np.testing.assert_array_equal(found, 3 * x)
"""


def test_the_plain_form_registers_itself_when_it_is_loaded(api, built, library):
    arguments = [built, runtime_library(api), library(Scale, loadable=False)]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
