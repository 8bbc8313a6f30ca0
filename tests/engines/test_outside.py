"""Engines of other packages: by the class, or by the name of an entry point, in the same places as this package's own."""

import importlib
import json
import sys
import tomllib
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins import doctor
from pytrtplugins.engines import registry
from pytrtplugins.engines.contract import CHECKS
from pytrtplugins.engines.reference.engine import ReferenceContext, ReferenceEngine
from pytrtplugins.errors import (
    BuildError,
    EngineError,
    EngineFileError,
    ExecutionError,
    PrecisionError,
    UnavailableError,
    UsageError,
)
from pytrtplugins.serving.model.defaults import Tensors, _most_images
from pytrtplugins.testing import engine_contract
from tests.engines.networks import Affine, conv_net, image

SAMPLE = Path(__file__).parents[2] / "samples" / "onnx_reference_engine"


def install(folder, monkeypatch, entry_points):
    """Write what an installer writes of a package: its name and its entry points; the sample's module is on the path, too."""
    info = folder / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[pytrtplugins.engines]", *lines, ""]))
    monkeypatch.syspath_prepend(SAMPLE)
    monkeypatch.syspath_prepend(folder)
    registry._outside.cache_clear()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    entry_points = tomllib.loads((SAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    install(tmp_path, monkeypatch, entry_points["pytrtplugins.engines"])
    yield
    registry._outside.cache_clear()
    sys.modules.pop("onnx_reference_engine", None)


def outputs(engine):
    with engine.create_context() as context:
        return context.run({"data": image()})["y"]


def test_its_name_builds_saves_and_loads(installed, tmp_path):
    model = conv_net(Affine(3.0))
    engine = ptp.build(model, engine="onnx_reference")
    np.testing.assert_allclose(outputs(engine), outputs(ptp.build(model, engine="reference")), rtol=1e-5, atol=1e-6)
    engine.save(tmp_path / "net.engine")
    loaded = ptp.load_engine(tmp_path / "net.engine")
    assert loaded.name == "onnx_reference"
    np.testing.assert_array_equal(outputs(loaded), outputs(engine))


def test_it_is_listed_behind_the_others_and_never_chosen_by_itself(installed):
    assert [each.name for each in ptp.engines.availability()] == [*ptp.engines.names(), "onnx_reference"]
    assert ptp.engines.auto_engine() != "onnx_reference"
    with pytest.raises(UsageError, match=r"there are auto, cuda, .*null, onnx_reference"):
        ptp.build(conv_net(), engine="other")


def test_its_class_builds_without_an_installation(monkeypatch):
    monkeypatch.syspath_prepend(SAMPLE)
    cls = importlib.import_module("onnx_reference_engine").OnnxReferenceEngine
    engine = ptp.build(conv_net(), engine=cls)
    np.testing.assert_allclose(
        outputs(engine), outputs(ptp.build(conv_net(), engine="reference")), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(PrecisionError, match="engine 'onnx_reference' has no precision 'int8'; it has fp32"):
        ptp.build(conv_net(), engine=cls, precision="int8")
    sys.modules.pop("onnx_reference_engine")


@pytest.mark.parametrize(
    ("entry_point", "problem"),
    [
        (
            {"other": "onnx_reference_engine:OnnxReferenceEngine"},
            "'other': its class OnnxReferenceEngine has the name 'onnx_reference'",
        ),
        (
            {"other": "onnx_reference_engine:Any"},
            r"'other': expected a class that inherits pytrtplugins\.engines\.Engine",
        ),
    ],
)
def test_what_is_registered_must_be_an_engine_of_that_name(tmp_path, monkeypatch, entry_point, problem):
    install(tmp_path, monkeypatch, entry_point)
    with pytest.raises(UsageError, match=problem):
        ptp.build(conv_net(), engine="other")
    registry._outside.cache_clear()
    sys.modules.pop("onnx_reference_engine", None)


@pytest.mark.parametrize("target", ["no_such_module:Engine", "onnx_reference_engine:Missing"])
def test_a_package_that_cannot_be_imported_leaves_the_other_engines(tmp_path, monkeypatch, target):
    install(tmp_path, monkeypatch, {"other": target})
    reason = "engine 'other': the package that registers it cannot be imported: "
    assert ptp.engines.availability()[-1].reason.startswith(reason)
    with pytest.raises(UnavailableError, match="engine 'other'"):
        ptp.build(conv_net(), engine="other")
    registry._outside.cache_clear()
    sys.modules.pop("onnx_reference_engine", None)


def test_an_own_name_cannot_be_taken(tmp_path, monkeypatch):
    install(tmp_path, monkeypatch, {"cpu": "onnx_reference_engine:OnnxReferenceEngine"})
    assert registry.engine_class("cpu").__module__ == "pytrtplugins.engines.openvino.engine"
    assert registry.names_outside() == ()
    registry._outside.cache_clear()


@pytest.fixture(params=["onnx_reference", "cpu", "onnxruntime", "reference"])
def contract(request, installed):
    return engine_contract(request.param)


@pytest.mark.parametrize("check", CHECKS)
def test_the_sample_and_this_packages_engines_keep_the_contract(contract, check):
    contract(check)


class Faulty(ReferenceEngine):
    """Right, but for what a test takes away."""

    name = "faulty"


def faulty(monkeypatch, change):
    """A class whose context computes with ``change(outputs, inputs)``."""
    run = ReferenceContext._run
    monkeypatch.setattr(ReferenceContext, "_run", lambda self, inputs: change(run(self, inputs), inputs))
    return Faulty


KEPT: dict[str, np.ndarray] = {}


def keep(outputs, inputs):
    """All runs share one output."""
    if "y" in KEPT and KEPT["y"].shape == outputs["y"].shape:
        KEPT["y"][...] = outputs["y"]
    else:
        KEPT["y"] = outputs["y"]
    return dict(KEPT)


def spoil(outputs, inputs):
    """The run changes its input."""
    inputs["x"][...] = 0
    return outputs


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("numbers", lambda outputs, inputs: {"y": outputs["y"] * np.float32(1.001)}),
        ("numbers", lambda outputs, inputs: {"y": outputs["y"] - np.float32(1e-3)}),
        ("memory", keep),
        ("memory", spoil),
        ("threads", lambda outputs, inputs: {"y": np.repeat(outputs["y"][:1], len(outputs["y"]), 0)}),
        ("files", lambda outputs, inputs: outputs),
    ],
)
def test_an_engine_that_does_not_keep_it_fails(monkeypatch, check, change):
    KEPT.clear()
    with pytest.raises((AssertionError, EngineError, EngineFileError)):
        engine_contract(faulty(monkeypatch, change))(check)


def test_an_engine_that_leaves_out_an_output_names_it(monkeypatch):
    engine = ptp.build(conv_net(), engine=faulty(monkeypatch, lambda outputs, inputs: {"z": outputs["y"]}))
    message = r"engine 'faulty': the run gave no output 'y'; it gave \['z'\]\.\nDo: "
    with engine.create_context() as context, pytest.raises(ExecutionError, match=message) as caught:
        context.run({"data": image()})
    assert caught.value.facts == {"expected": ["y"], "found": ["z"]}


@pytest.mark.parametrize("error", [NotImplementedError, BuildError])
def test_an_engine_that_lacks_an_operator_names_the_node_and_says_what_to_do(error):
    class Small(ReferenceEngine):
        name = "small"

        def __init__(self, model, options):
            super().__init__(model, options)
            for node in model.graph.node:
                if node.op_type not in ("MatMul", "Add", "Relu"):
                    raise error(f"engine 'small' does not have the operator {node.op_type}.")

    engine_contract(Small)("numbers")
    engine_contract(Small)("unknown operators")
    with pytest.raises(BuildError, match=r"(?s)does not have the operator Conv \(node '\w+': .*\nDo: ") as caught:
        ptp.build(conv_net(), engine=Small)
    assert caught.value.facts["op"] == "Conv"


def test_the_contract_asks_for_the_operator_in_the_error(monkeypatch):
    class Silent(ReferenceEngine):
        name = "silent"

        def __init__(self, model, options):
            super().__init__(model, options)
            if {node.op_type for node in model.graph.node} - {"MatMul", "Add", "Relu"}:
                raise NotImplementedError

    with pytest.raises(AssertionError, match=r"names the operator Mish .*\nDo: raise BuildError"):
        engine_contract(Silent)("unknown operators")


TRAITS = """
from pytrtplugins.engines.base.types import ChosenKernel
from pytrtplugins.engines.null import NullEngine
from pytrtplugins.engines.reference.engine import ReferenceEngine

class Zeros(NullEngine):
    name = "zeros"

class Queueing(ReferenceEngine):
    name, queues_runs, batches = "queueing", True, (1, 4)
    def chosen_kernels(self):
        return (ChosenKernel(("a", "b"), "3x3, 8 to 16", "fast_3x3", 1.25, 7),)
"""


@pytest.fixture
def with_traits(tmp_path, monkeypatch):
    (tmp_path / "traits_engines.py").write_text(TRAITS)
    install(tmp_path, monkeypatch, {"zeros": "traits_engines:Zeros", "queueing": "traits_engines:Queueing"})
    yield
    registry._outside.cache_clear()
    sys.modules.pop("traits_engines", None)


def test_an_engine_that_computes_nothing_is_not_tried(with_traits, monkeypatch):
    tried = list[str]()
    monkeypatch.setattr(doctor, "try_engine_alone", lambda report: tried.append(report.name) or report)
    listed = [each.name for each in doctor.examine().engines]
    assert {"reference", "queueing"} <= set(tried) <= set(listed) - {"null", "zeros"}
    assert {"null", "zeros"} <= set(listed)


def test_an_engine_that_queues_runs_is_served_without_threads_in_its_own_batches(with_traits):
    engine = ptp.build(conv_net(), engine="queueing")
    served = Tensors(engine)
    found = served.predict({"data": image()})
    assert isinstance(found, Future)
    np.testing.assert_array_equal(found.result()["y"], outputs(engine))
    served.close()
    free = ptp.build(conv_net(batch="N"), engine="queueing")
    assert [_most_images(free, most) for most in (None, 4, 5)] == [None, None, 5]
    assert _most_images(ptp.build(conv_net(batch="N"), engine="reference"), None) == 8


def test_the_kernels_that_an_engine_chose_are_shown(with_traits, pytrt, tmp_path):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    words = ("build", tmp_path / "net.onnx", "--engine", "queueing", "-o", tmp_path / "net.engine")
    code, out, _ = pytrt(*words)
    assert code == 0
    assert [word in out for word in ("a, b", "3x3, 8 to 16", "fast_3x3", "1.25", "7")] == [True] * 5
    kernels = json.loads(pytrt(*words, "--json")[1])["result"]["kernels"]
    assert kernels == [
        {"layers": ["a", "b"], "problem": "3x3, 8 to 16", "kernel": "fast_3x3", "microseconds": 1.25, "rivals": 7}
    ]
