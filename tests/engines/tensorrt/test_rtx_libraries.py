"""Libraries that `pytrt export-plugin` writes, in TensorRT for RTX: in its registry, its parser and its builder."""

from __future__ import annotations

import ctypes
import shutil
from typing import NamedTuple

import pytest

from benchmarks.node_tests import PASSED, Outcome, run_cases
from benchmarks.tensorrt_builds.build import recorded
from pytrtplugins.engines.tensorrt import _api
from pytrtplugins.engines.tensorrt.creators import register
from pytrtplugins.engines.tensorrt.graph import ParserForm, written_out
from pytrtplugins.engines.tensorrt.logger import make, the_logger
from pytrtplugins.errors import RegistryError
from pytrtplugins.export.plugin import export_plugin
from pytrtplugins.layers import Reorg
from pytrtplugins.passes import prepare, run_passes
from tests.driver.conftest import find_headers
from tests.pages import ROOT

from .plugin_cases import CASES, network
from .rtx_builds import needs_rtx

LOADED, LINKED, EMBEDDED = "load_library", "loaded by the linker", "plugins_to_serialize"
HEADERS, NO_HEADERS = find_headers(11)  # whose interface is that of TensorRT for RTX
pytestmark = [
    needs_rtx,
    pytest.mark.skipif(HEADERS is None, reason=NO_HEADERS or "headers"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler. Do: apt-get install g++"),
]


class Build(NamedTuple):
    """What came of a build with a library.

    Attributes:
        creators: Name and namespace of the creators that the library adds to the registry.
        plan_bytes: Size of the serialized engine.
        plugins: Of each plugin's layer: node, types and layouts of inputs and outputs.
        warnings: What TensorRT logged at the level WARNING or higher.
        error: What `register` says of the Python class of the same key.
    """

    creators: list[tuple[str, str]]
    plan_bytes: int
    plugins: list[tuple[str, list[tuple[str, str]]]]
    warnings: list[str]
    error: str


def build_with_library(item):
    """Build a network with Reorg in a child process, which gets the creator from a library."""
    path, way = item
    api = _api.load(_api.RTX)
    the_logger(api)
    registry = api.trt.get_plugin_registry()
    before = {creator.name for creator in registry.all_creators}
    if way == LINKED:
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    else:
        registry.load_library(str(path))
    creators = [(one.name, one.plugin_namespace) for one in registry.all_creators if one.name not in before]
    with recorded() as log:
        builder = make(api, "Builder")
        definition = builder.create_network(api.network_flags(typed=True))
        parser = make(api, "OnnxParser", definition)
        model = run_passes(written_out(prepare(network(CASES["Reorg"], around=True))), ParserForm())
        assert parser.parse(model.SerializeToString()), [parser.get_error(i).desc() for i in range(parser.num_errors)]
        config = builder.create_builder_config()
        config.profiling_verbosity = api.trt.ProfilingVerbosity.DETAILED
        if way == EMBEDDED:
            config.plugins_to_serialize = [str(path)]
        plan = bytes(builder.build_serialized_network(definition, config))
    plugins = [
        (layer.nodes[0], [(tensor.dtype, tensor.layout) for tensor in (*layer.inputs, *layer.outputs)])
        for layer in log.layers
        if layer.kind == "custom_layer"
    ]
    try:
        register(Reorg, package=_api.RTX)
        error = ""
    except RegistryError as caught:
        error = str(caught)
    return Outcome(PASSED, values=Build(creators, len(plan), plugins, log.warnings, error))


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """The library for `load_library`, and the one that registers itself."""
    folder = tmp_path_factory.mktemp("exported")
    paths = {}
    for loadable in (True, False):
        paths[loadable] = folder / f"libreorg-{loadable}.so"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXXFLAGS", "-O0")
            patch.chdir(ROOT)
            export_plugin(Reorg, paths[loadable], loadable=loadable, tensorrt_include=HEADERS, host=True)
    return paths


@pytest.fixture(scope="module")
def builds(libraries):
    items = [(libraries[way != LINKED], way) for way in (LOADED, LINKED, EMBEDDED)]
    found = {}
    for (_, way), outcome in run_cases(items, build_with_library, processes=1, start="forkserver"):
        found[way] = outcome
    return found


@pytest.mark.parametrize("way", [LOADED, LINKED, EMBEDDED])
def test_the_parser_and_the_builder_take_an_exported_plugin(builds, way):
    outcome = builds[way]
    assert outcome.kind == PASSED, outcome.reason
    assert outcome.values.plugins == [("plugin", [("Float", "Linear")] * 2)]
    assert outcome.values.warnings == []


def test_a_library_for_load_library_registers_its_creator_when_it_is_loaded(builds):
    assert builds[LOADED].values.creators == [("Reorg", "darknet")]


def test_a_plan_carries_the_library(builds, libraries):
    embedded, plain = builds[EMBEDDED].values.plan_bytes, builds[LOADED].values.plan_bytes
    assert embedded - plain >= libraries[True].stat().st_size


def test_the_python_class_does_not_take_the_librarys_place(builds):
    assert "another library registered" in builds[LOADED].values.error
