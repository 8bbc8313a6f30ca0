"""The two forms of a library of plugins, and what they say when they cannot be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins.engines.tensorrt.creators import register, unregister
from pytrtplugins.errors import RegistryError
from pytrtplugins.layers import Reorg

from .conftest import ROOT, runtime_library
from .driver import Driver, Refused
from .user_plugins import Scale

SCRIPT = """
import ctypes, sys
from pathlib import Path
import numpy as np
from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.layers import Reorg
from tests.driver.driver import Driver
api = _api.load("tensorrt")
driver = Driver(Path(sys.argv[1]), api, Path(sys.argv[2]))
assert not driver.creator(Reorg)
for _ in range(int(sys.argv[3])):
    ctypes.CDLL(str(driver.folder / "libpytrtplugins.so"))
x = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
(found,) = driver.run(Reorg(stride=2), driver.build(Reorg(stride=2), [x]), [x])
np.testing.assert_array_equal(found, Reorg(stride=2).compute(x))
assert {(c.name, c.plugin_namespace) for c in api.trt.get_plugin_registry().all_creators} >= {
    ("Reorg", "darknet"), ("Region", "darknet")}
"""


def start(script, *arguments, **environment):
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("times", [1, 2])
def test_the_plain_form_registers_itself_when_it_is_loaded(api, built, times):
    start(SCRIPT, built, runtime_library(api), times)


def test_the_plain_form_loads_tensorrt_where_it_comes_first(api, built):
    script = f"import ctypes, sys; ctypes.CDLL(sys.argv[1]); import {api.name} as trt; print(" \
             "trt.get_plugin_registry().get_creator('Reorg', '1', 'darknet').name, file=sys.stderr)"  # fmt: skip
    folder = runtime_library(api).parent
    assert start(script, built / "libpytrtplugins.so", LD_LIBRARY_PATH=str(folder)) == "Reorg\n"


def test_the_plain_form_says_when_there_is_no_tensorrt(built):
    stderr = start("import ctypes, sys; ctypes.CDLL(sys.argv[1])", built / "libpytrtplugins.so")
    assert "is in this process, so its plugins cannot be registered" in stderr
    assert "Do: load libnvinfer.so." in stderr


def test_the_plain_form_leaves_a_creator_that_is_there_and_says_so(api, built):
    script = f"""
import ctypes, sys
import pytrtplugins.tensorrt as ours
from pytrtplugins.layers import Reorg
made = ours.register(Reorg)
ctypes.CDLL(sys.argv[1])
import {api.name} as trt
registry = trt.get_plugin_registry()
assert registry.get_creator("Reorg", "1", "darknet") is made
assert registry.get_creator("Region", "1", "darknet") is not None
"""
    stderr = start(script, built / "libpytrtplugins.so")
    assert "darknet::Reorg version 1: TensorRT's registry has a creator of this key already, which stays" in stderr


def test_the_loadable_form_comes_and_goes(driver):
    unregister(Reorg)
    for _ in range(2):
        with driver.library("pytrtplugins_loadable"):
            assert driver.creator(Reorg)
            with pytest.raises(RegistryError, match="another library registered"):
                register(Reorg)
        assert not driver.creator(Reorg)


def test_a_class_without_a_kernel_for_a_gpu_is_refused_where_the_tensors_lie_there(driver):
    with driver.offered(Scale, "c++"):
        key = (text.encode() for text in ("OnlyCpu", "1", "test.driver"))
        creator = driver.call("creator", driver.registry, *key)
        with pytest.raises(Refused, match=r"no kernel of it for a GPU[\s\S]*Do: compile it with nvcc"):
            driver.made("create", creator, None, 0, 0)


def test_each_form_has_its_entry_points_and_no_others(built):
    exported = {}
    for name in ("pytrtplugins", "pytrtplugins_loadable"):
        listed = subprocess.run(["nm", "-D", "--defined-only", built / f"lib{name}.so"], capture_output=True, text=True)
        exported[name] = {line.split()[-1] for line in listed.stdout.splitlines()} & {"getCreators", "setLoggerFinder"}
    assert exported == {"pytrtplugins": set(), "pytrtplugins_loadable": {"getCreators", "setLoggerFinder"}}


def test_the_driver_refuses_a_tensorrt_of_another_version(api, built, tmp_path):
    other = tmp_path / "libother.so"
    source = tmp_path / "other.c"
    source.write_text(
        "int getInferLibMajorVersion() { return 9; } void *getPluginRegistry() { return &getPluginRegistry; }"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-w", source, "-o", other], check=True)
    with pytest.raises(AssertionError, match="headers' major version"):
        Driver(Path(built), api, other)
