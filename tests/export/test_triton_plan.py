"""TensorRT plans in Triton model repositories. The plans here are bytes: no part of this reads them."""

import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.cli import main
from pytrtplugins.engines.base.engine_file import write_engine_file
from pytrtplugins.errors import EngineFileError, UsageError
from pytrtplugins.export import _triton_sources
from pytrtplugins.export.triton import export_triton
from pytrtplugins.layers import Reorg
from pytrtplugins.model.decompose import add_functions
from tests.engines.networks import Affine, conv_net
from tests.export.triton_server import model_config_proto, parse
from tests.model.networks import Shuffle, network, node
from tests.onnx_parts import parsed

REQUIREMENTS = {
    "tensorrt": "10.16.1.11",
    "version_compatible": False,
    "device": "NVIDIA H200",
    "compute_capability": "9.0",
    "plugins": [["test.engines", "Affine", "1"]],
}


def engine_file(path, model=None, settings=None, plan=b"a plan", forms=None, **requirements):
    """What `TensorrtEngine.save` writes; tests/engines/tensorrt holds the two together."""
    ways = {"settings": settings or {}, "plugins": forms or {}}
    metadata = {
        "engine": "tensorrt",
        "options": {"precision": "fp16", "threads": None, "device": None} | ways,
        "requirements": {**REQUIREMENTS, **requirements},
    }
    model = conv_net(Affine(), batch="N") if model is None else model
    write_engine_file(path, metadata, ptp.Graph(model).model.SerializeToString(), plan)
    return path


def test_a_plan_whose_plugin_runs_through_compute_is_refused(tmp_path, library):
    path = engine_file(tmp_path / "net.engine", forms={"test.engines::Affine": "compute"})
    with pytest.raises(UsageError, match="Affine is to run as 'compute', and Triton, which has no Python"):
        export_triton(path, tmp_path / "models", libraries=[library])
    broken = engine_file(tmp_path / "broken.engine", forms={"test.engines::Affine": "fast"})
    with pytest.raises(EngineFileError, match="it is damaged"):
        export_triton(broken, tmp_path / "models", libraries=[library])
    with pytest.raises(UsageError, match="is built already, and its plugins have their forms"):
        export_triton(path, tmp_path / "models", libraries=[library], plugins={"test.engines::Affine": "enqueue"})


@pytest.fixture
def library(tmp_path):
    """A library with plugins."""
    path = tmp_path / "libaffine.so"
    path.write_bytes(b"\x7fELF")
    return path


def test_the_plan_is_served_with_its_library(tmp_path, library):
    path = engine_file(tmp_path / "net.engine", settings={"batch": [1, 4, 32]})
    written = export_triton(path, tmp_path / "models", libraries=[library], served_at="/models", instances=2)
    folder = tmp_path / "models" / "net" / "1"
    assert sorted(item.name for item in folder.iterdir()) == ["libaffine.so", "model.plan"]
    assert (folder / "model.plan").read_bytes() == b"a plan"
    assert (folder / "libaffine.so").read_bytes() == library.read_bytes()
    config = parse(written.config)
    assert (config.name, config.backend, config.max_batch_size) == ("net", "tensorrt", 32)
    assert list(config.input[0].dims) == [3, 8, 8]
    (group,) = config.instance_group
    assert (group.count, model_config_proto().ModelInstanceGroup.Kind.Name(group.kind)) == (2, "KIND_GPU")
    assert not config.HasField("model_operations")
    assert written.start == (
        "tritonserver --model-repository=/models --backend-config=tensorrt,plugins=/models/net/1/libaffine.so"
    )
    assert written.needs == ("TensorRT 10.16.1.11", "a GPU of compute capability 9.0 (NVIDIA H200)")


def test_several_libraries_are_quoted_for_the_shell(tmp_path, library):
    other = tmp_path / "libother.so"
    other.write_bytes(b"\x7fELF")
    path = engine_file(tmp_path / "net.engine")
    written = export_triton(path, tmp_path / "models", libraries=[library, other], served_at="/m")
    assert written.start.endswith(" '--backend-config=tensorrt,plugins=/m/net/1/libaffine.so;/m/net/1/libother.so'")
    with pytest.raises(UsageError, match="expected different names"):
        export_triton(path, tmp_path / "models", version=2, libraries=[library, library])


def test_a_plan_for_other_versions_says_so_to_the_server(tmp_path):
    path = engine_file(tmp_path / "net.engine", conv_net(batch="N"), version_compatible=True, plugins=[])
    written = export_triton(path, tmp_path / "models", served_at="/models")
    assert written.start == "tritonserver --model-repository=/models --backend-config=tensorrt,version-compatible=true"
    assert written.needs[0] == "TensorRT 10.16.1.11 or a newer one of that major version"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, 8), ({"batch": [2, 2, 2]}, 2), ({"shapes": {"data": [[1, 3, 8, 8], [2, 3, 8, 8], [5, 3, 8, 8]]}}, 5)],
)
def test_batches_are_as_large_as_the_engine_was_built_for(tmp_path, library, settings, expected):
    path = engine_file(tmp_path / "net.engine", settings=settings)
    assert parse(export_triton(path, tmp_path / "a", libraries=[library]).config).max_batch_size == expected
    smaller = export_triton(path, tmp_path / "b", libraries=[library], max_batch=1)
    assert parse(smaller.config).max_batch_size == 1
    largest = export_triton(path, tmp_path / "d", libraries=[library], max_batch=expected)
    assert parse(largest.config).max_batch_size == expected
    with pytest.raises(UsageError, match=f"the engine was built for {expected} at most"):
        export_triton(path, tmp_path / "c", libraries=[library], max_batch=expected + 1)


def test_the_batch_is_that_of_the_input_that_takes_the_fewest():
    model = parsed("(float[N,3] a, float[N,3] b) => (float[N,3] a_y, float[N,3] b_y) { a_y = Relu (a) b_y = Relu (b) }")
    ranges = {"a": [[1, 3], [2, 3], [9, 3]], "b": [[1, 3], [2, 3], [4, 3]]}
    assert _triton_sources._max_batch(model, {"shapes": ranges}) == 4
    assert _triton_sources._max_batch(model, {"batch": [1, 2, 6]}) == 6


def test_a_fixed_batch_stays_in_the_dims(tmp_path):
    path = engine_file(tmp_path / "net.engine", conv_net(batch=4), plugins=[])
    config = parse(export_triton(path, tmp_path / "models").config)
    assert (config.max_batch_size, list(config.input[0].dims)) == (0, [4, 3, 8, 8])


def test_a_plan_with_plugins_wants_a_library_and_the_command_that_makes_it(tmp_path):
    path = engine_file(tmp_path / "net.engine")
    with pytest.raises(
        UsageError, match=r"test.engines::Affine.*no Python.*\nDo: pytrt export-plugin .*networks:Affine -o "
    ):
        export_triton(path, tmp_path / "models")
    unknown = engine_file(tmp_path / "other.engine", plugins=[["acme", "Odd", "1"]])
    with pytest.raises(UsageError, match=r"\nDo: pytrt export-plugin MODULE:Odd -o libodd.so"):
        export_triton(unknown, tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_plan_cannot_run_on_a_cpu(tmp_path, library):
    with pytest.raises(UsageError, match="a GPU for a plan; found 'cpu'"):
        export_triton(engine_file(tmp_path / "net.engine"), tmp_path / "models", libraries=[library], kind="cpu")


@pytest.mark.parametrize(
    "damage", [{"plan": b""}, {"plugins": 3}, {"plugins": [["a"]]}, {"tensorrt": None, "plugins": None}]
)
def test_an_engine_file_with_damaged_metadata_is_refused(tmp_path, damage):
    with pytest.raises(EngineFileError, match=r"net.engine: it is damaged.*\nDo: pytrt build"):
        export_triton(engine_file(tmp_path / "net.engine", **damage), tmp_path / "models")


# -- plans of other tools --------------------------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "made.plan"
    path.write_bytes(b"by trtexec")
    return path


def test_a_plan_of_trtexec_takes_names_and_dims_from_its_model(tmp_path, plan):
    onnx.save(conv_net(batch="N"), tmp_path / "net.onnx")
    options = {"plan": plan, "name": "served"}
    with pytest.raises(UsageError, match=r"does not say for how many it was built.\nDo: --max-batch N"):
        export_triton(tmp_path / "net.onnx", tmp_path / "models", **options)
    written = export_triton(tmp_path / "net.onnx", tmp_path / "models", max_batch=64, **options)
    config = parse(written.config)
    assert (config.backend, config.max_batch_size, config.input[0].name) == ("tensorrt", 64, "data")
    assert (tmp_path / "models" / "served" / "1" / "model.plan").read_bytes() == b"by trtexec"
    assert written.needs == ("the TensorRT version and the GPU that the plan was made with",)


def test_its_plugins_need_a_library_though_nobody_registered_them(tmp_path, library, plan):
    stranger = node("Stranger", "x", "y", domain="unheard", plugin_namespace="unheard", plugin_version="1")
    model = network([stranger])
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, ["N", 9]))
    options = {"plan": plan, "name": "net", "max_batch": 4}
    with pytest.raises(UsageError, match="unheard::Stranger"):
        export_triton(model, tmp_path / "models", **options)
    written = export_triton(model, tmp_path / "models", libraries=[library], **options)
    assert list(parse(written.config).output[0].dims) == [9]


def test_plugins_with_a_local_function_may_do_without_one(tmp_path, plan):
    model = network([Reorg(2).as_node(["x"], ["y"], "reorg")])
    options = {"plan": plan, "name": "net", "max_batch": 4}
    with pytest.raises(UsageError, match=r"export-plugin pytrtplugins.layers.reorg:Reorg -o libreorg.so"):
        export_triton(model, tmp_path / "models", **options)
    config = parse(export_triton(add_functions(model), tmp_path / "models", **options).config)
    assert list(config.output[0].dims) == [16, 3, 3]


def test_a_plan_belongs_to_a_model(tmp_path, library):
    path = engine_file(tmp_path / "net.engine")
    with pytest.raises(UsageError, match="is an engine file; a plan belongs to an ONNX model"):
        export_triton(path, tmp_path / "models", plan=library)
    with pytest.raises(UsageError, match=r"plan 'none.plan': no such file"):
        export_triton(conv_net(Shuffle()), tmp_path / "models", name="net", plan="none.plan")


def test_the_command_prints_what_the_server_needs(tmp_path, library, capsys):
    path = engine_file(tmp_path / "net.engine")
    arguments = ["export-triton", str(path), "-o", str(tmp_path / "models"), "--library", str(library)]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--served-at", "/models"])
    assert end.value.code == 0
    *files, version, gpu, start = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0].rsplit("/", 1)[1] for line in files] == ["config.pbtxt", "libaffine.so", "model.plan"]
    assert (version, gpu) == ("needs TensorRT 10.16.1.11", "needs a GPU of compute capability 9.0 (NVIDIA H200)")
    assert start.startswith(
        "Do: tritonserver --model-repository=/models --backend-config=tensorrt,plugins=/models/net/1/"
    )
