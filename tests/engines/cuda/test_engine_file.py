"""Engine files of the whole engine but its contexts, on NumPy arrays: built, saved, loaded, damaged."""

import json
import shutil
import zipfile
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pytrtplugins as ptp
from pytrtplugins.calibration import MinMaxCalibrator
from pytrtplugins.engines.base.engine_file import read_engine_file, write_engine_file
from pytrtplugins.engines.base.fusion import fusion_of
from pytrtplugins.engines.cuda import engine as module
from pytrtplugins.engines.cuda.conv.cache import TacticCache
from pytrtplugins.engines.cuda.device import source
from pytrtplugins.engines.cuda.device.device import HostDevice
from pytrtplugins.errors import EngineFileError, UnavailableError
from tests.damage import damaged
from tests.passes.nets import Net

SETTINGS = {"disable": ["handwritten-kernels", "cudnn-kernels", "tactics"], "batch": [1, 2]}


class Modules:
    """NumPy, with the little of CuPy that the engine asks for itself."""

    __version__ = "14.2"
    cuda = SimpleNamespace(Device=lambda number: nullcontext())

    def __getattr__(self, name):
        return getattr(np, name)


class Device(HostDevice):
    """One of two GPUs that are none, of different models."""

    xp = Modules()
    models = ("NVIDIA Test", "NVIDIA Other")
    capability, driver, multiprocessors, cache = 90, 13000, 132, 1 << 20

    def __init__(self, number=0):
        self.number, self.model = number, self.models[number]

    def explaining_memory(self, size=None):
        return nullcontext()


@pytest.fixture(scope="module")
def machine():
    """A machine with that GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CudaDevice", Device)
        patch.setattr(module, "check_cudnn", lambda: "1.16.0")
        patch.setattr(module, "cudnn_versions", lambda: {"cudnn-frontend": "1.16.0", "cudnn": "91900"})
        yield patch


def build(model, settings=SETTINGS, **options):
    return ptp.build(model, engine="cuda", settings=settings, progress=False, **options)


def one_layer():
    net = Net()
    return net.model(net.conv("data", "a", channels=24))


@pytest.fixture(scope="module")
def built(machine, tmp_path_factory):
    net = Net()
    y = net.conv(net.add("MaxPool", [net.conv("data", "a", channels=24)], "p", kernel_shape=[2, 2]), "b", channels=40)
    engine = build(net.model(y), precision="fp16")
    path = tmp_path_factory.mktemp("engine") / "net.engine"
    engine.save(path)
    return engine, path


def run(engine, batch):
    x = np.random.default_rng(batch).random((batch, 3, 8, 8), dtype=np.float32)
    execution = engine.execution({"N": batch})
    execution.input("data")[...] = x
    execution.queue(None)
    return {name: execution.output(name).copy() for name in execution.plan.outputs}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


def float_problems(engine):
    """Keys of the convolutions of floats for which kernels were chosen."""
    return [key for key in engine.selector.choices if "int8" not in key.partition(" y ")[0]]


@pytest.mark.parametrize(
    ("precision", "settings", "kind", "strict"),
    [
        ("fp32", {}, "float32", True),  # nothing may be rounded to TF32
        ("tf32", {}, "float32", False),
        ("fp16", {}, "float16", False),
        ("int8", {}, "float16", False),
        ("int8", {"float": "float32"}, "float32", True),
    ],
)
def test_the_precision_decides_in_which_type_floats_are_computed(machine, precision, settings, kind, strict):
    net = Net(channels=16)
    model = net.model(net.conv(net.conv(net.conv("data", "a", 16), "b", 16), "c", 16))
    x = {"data": np.random.default_rng(0).random((1, 16, 8, 8), dtype=np.float32)}
    scales = {"calibration": MinMaxCalibrator([x])} if precision == "int8" else {}
    engine = build(model, precision=precision, settings={**SETTINGS, **settings}, **scales)
    execution = engine.execution({"N": 1})
    kinds = {name: str(placed.format.dtype) for name, placed in execution.plan.tensors.items()}
    inner = [kinds[name] for name in ("a_leaky", "b_leaky") if name in kinds and kinds[name] != "int8"]
    assert set(inner) == {kind}, kinds
    assert {" strict" in key for key in float_problems(engine)} == {strict}


def test_kernels_are_chosen_for_each_batch_that_was_asked_for(machine, monkeypatch):
    asked, execution = [], module.CudaEngine.execution

    def noting(self, sizes, progress=False):
        asked.append(dict(sizes))
        return execution(self, sizes, progress)

    monkeypatch.setattr(module.CudaEngine, "execution", noting)
    for chosen, wanted in ((SETTINGS, [1, 2]), ({**SETTINGS, "batch": 4}, [4])):
        asked.clear()
        build(one_layer(), settings=chosen)
        assert asked == [{"N": batch} for batch in wanted]


def test_optimizations_that_are_left_out_are_left_out_of_the_plan(machine):
    net = Net()
    model = net.model(net.conv(net.conv(net.conv("data", "a", 24), "b", 24), "c", 24))
    sizes = []
    for more in ([], ["reuse"]):
        settings = {**SETTINGS, "disable": [*SETTINGS["disable"], *more]}
        engine = build(model, settings=settings)
        sizes.append(engine.execution({"N": 1}).plan.memory.bytes)
    assert sizes[0] < sizes[1]


def test_choices_among_fewer_kernels_are_kept_apart(machine):
    paths = []
    for left_out in ([], ["handwritten-kernels"], ["cudnn-kernels"]):
        engine = build(one_layer())
        engine.disabled = frozenset(left_out)
        paths.append(engine._cache().path)
    assert len(set(paths)) == 3


def test_a_loaded_engine_gives_the_same_bits_without_reading_the_model(built, machine):
    engine, path = built
    loaded, again = ptp.load_engine(path), ptp.load_engine(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(loaded._file), "model", lambda self: pytest.fail("the model was read"))
        for batch in (1, 2):
            wanted = run(engine, batch)
            assert all(same(run(each, batch), wanted) for each in (loaded, again, loaded))
        assert (loaded.inputs, loaded.outputs, loaded.options) == (engine.inputs, engine.outputs, engine.options)
        assert loaded.tactics() == engine.tactics()
        without, whole = (
            [node.op_type for node in model.graph.node] for model in (loaded.model_without_weights, engine.model)
        )
        assert without == whole


def test_an_engine_is_loaded_on_the_gpu_that_the_caller_names_if_it_is_of_the_same_model(built, machine):
    with pytest.raises(EngineFileError, match="gpu: built for 'NVIDIA Test', here is 'NVIDIA Other'"):
        ptp.load_engine(built[1], device="cuda:1")
    with pytest.raises(UnavailableError, match=r"device 'gpu1' is unknown; it has cuda, cuda:0"):
        ptp.load_engine(built[1], device="gpu1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Device, "models", ("NVIDIA Test", "NVIDIA Test"))
        loaded = ptp.load_engine(built[1], device="cuda:1")
        assert (loaded.device.number, loaded.options.device) == (1, "cuda:1")
        assert same(run(loaded, 1), run(built[0], 1))


def test_an_engine_tells_what_it_fuses_and_a_loaded_one_the_same(built):
    engine, path = built
    found = fusion_of(engine.model, engine.parts(), engine.model)
    operators = [tuple(found.operators[place] for place in kernel.nodes) for kernel in found.computing]
    assert operators == [("Conv", "LeakyRelu"), ("MaxPool",), ("Conv", "LeakyRelu")]
    assert ptp.load_engine(path).parts() == engine.parts()


def test_what_a_loaded_engine_reads_is_the_model_that_was_built(built):
    engine, path = built
    loaded = ptp.load_engine(path)
    assert loaded.model == engine.model
    assert loaded.model_digest == engine.model_digest
    assert loaded.lowered == engine.lowered


def test_a_file_that_was_changed_behind_the_engines_back_is_not_taken_for_its_model(built, tmp_path):
    path = tmp_path / "net.engine"
    path.write_bytes(built[1].read_bytes())
    loaded = ptp.load_engine(path)
    other = ptp.build(Net().model("data"), engine="null")
    other.save(path)
    with pytest.raises(EngineFileError, match="another file has taken its place"):
        _ = loaded.model
    assert same(run(loaded, 1), run(built[0], 1))


def write_with(path, file, payload):
    """A file of other contents and the right digests."""
    facts = {name: value for name, value in file.metadata.items() if name != "format" and "sha256" not in name}
    write_engine_file(path, facts, file.model().SerializeToString(deterministic=True), payload)


def test_a_form_that_the_file_lacks_is_packed_from_the_model(built, tmp_path):
    engine, path = built
    file = read_engine_file(path)
    plan = module.SavedPlan.from_bytes(file.payload())
    write_with(tmp_path / "net.engine", file, module.SavedPlan(plan.model, plan.graph, plan.choices, {}).to_bytes({}))
    assert same(run(ptp.load_engine(tmp_path / "net.engine"), 2), run(engine, 2))


def test_a_file_of_the_second_gpu_is_held_against_that_one(machine, tmp_path):
    engine, path = build(one_layer(), device="cuda:1"), tmp_path / "second.engine"
    engine.save(path)
    loaded = ptp.load_engine(path)
    assert (loaded.device.number, loaded.device.model) == (1, "NVIDIA Other")
    assert same(run(loaded, 1), run(engine, 1))


def test_a_loaded_engine_is_saved_as_it_was(built, tmp_path):
    ptp.load_engine(built[1]).save(tmp_path / "again.engine")
    assert (tmp_path / "again.engine").read_bytes() == built[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("gpu", "NVIDIA L4", "gpu: built for 'NVIDIA L4', here is 'NVIDIA Test'"),
        ("driver", 12, "driver: built for 12, here is 13"),
        ("format", 2, "format: built for 2, here is 9"),
        ("kernels", "0", "kernels: built for '0'"),
    ],
)
def test_a_file_of_another_machine_or_version_is_refused_with_the_command_that_rebuilds(
    built, tmp_path, name, value, message
):
    path = tmp_path / "other.engine"
    with zipfile.ZipFile(built[1]) as old, zipfile.ZipFile(path, "w") as new:
        for entry in old.namelist():
            data = old.read(entry)
            if entry == "metadata.json":
                facts = json.loads(data)
                facts["requirements"][name] = value
                data = json.dumps(facts).encode()
            new.writestr(entry, data)
    with pytest.raises(EngineFileError) as caught:
        ptp.load_engine(path)
    assert message in str(caught.value)
    assert f"Do: pytrt build MODEL.onnx --engine cuda --precision fp16 -o {path}" in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file_is_refused_or_gives_the_same_bits(built, tmp_path, data):
    engine, path = built
    broken = tmp_path / "damaged.engine"
    broken.write_bytes(damaged(data, path.read_bytes()))
    try:
        found = run(ptp.load_engine(broken), 1)
    except EngineFileError as error:
        assert "Do: pytrt build" in str(error)  # noqa: PT017
    else:  # a byte of the model, which nobody has read, or one that zip does not care about
        assert same(found, run(engine, 1))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_forged_plan_of_the_right_digest_is_refused_or_runs(built, tmp_path, data):
    _, path = built
    file = read_engine_file(path)
    payload = file.payload()
    header = 8 + int.from_bytes(payload[:8], "little")
    position = data.draw(st.integers(0, header - 1))
    changed = payload[:position] + bytes([data.draw(st.integers(0, 255))]) + payload[position + 1 :]
    forged = tmp_path / "forged.engine"
    write_with(forged, file, changed)
    try:
        run(ptp.load_engine(forged), 1)
    except EngineFileError as error:
        assert "Do: pytrt build" in str(error)  # noqa: PT017


@pytest.mark.parametrize("file", ["engine/nhwc.cu", "engine/common.cu", "reorg.cu", "prelude.h"])
def test_choices_and_engine_files_are_valid_with_the_kernels_that_they_were_made_for_only(
    machine, tmp_path, monkeypatch, file
):
    folder = shutil.copytree(source.KERNELS.parent, tmp_path / "kernels")
    monkeypatch.setattr(source, "KERNELS", folder / "engine")
    found = []
    for text in ("", "// another version"):
        with (folder / file).open("a") as kernel:
            kernel.write(text)
        source.kernels_digest.cache_clear()
        found.append((TacticCache(module._facts(Device()), tmp_path).path, module._requirements(Device())["kernels"]))
    source.kernels_digest.cache_clear()
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_weights_on_the_device_are_those_of_the_file(built):
    engine, path = built
    packed = module.SavedPlan.from_bytes(read_engine_file(path).payload()).packed
    wanted = sum(array.nbytes for forms in packed.values() for array in forms.values())
    assert engine.weight_bytes() == wanted > 0
    assert ptp.load_engine(path).weight_bytes() == wanted
