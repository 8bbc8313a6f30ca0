"""ONNX models in Triton model repositories: what onnxruntime serves, with configs that Triton's own proto reads."""

import re

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import pytrtplugins as ptp
from pytrtplugins.cli import main
from pytrtplugins.errors import ModelError, RegistryError, UsageError
from pytrtplugins.export._triton_config import _TYPES, Word, config_text
from pytrtplugins.export.triton import export_triton
from pytrtplugins.layers import Reorg
from tests.engines.networks import Affine, Complete, conv_net
from tests.export.triton_server import model_config_proto, parse, serve
from tests.model.networks import Line, Shuffle, image, network, node, shuffle_net, weights
from tests.onnx_parts import parsed


def exit_code(*words):
    """How the command ends."""
    with pytest.raises(SystemExit) as end:
        main(["export-triton", *map(str, words)])
    return end.value.code


@pytest.fixture
def library(tmp_path):
    """A library of onnxruntime operators, by its look."""
    path = tmp_path / "ops.so"
    path.write_bytes(b"\x7fELF RegisterCustomOps")
    return path


TYPES = ["FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "STRING", "BOOL"]
TYPES += [f"{sign}INT{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]


def plugin_net(dims=("N", 4, 6, 6), plugin=None):
    """x → Relu → a plugin → y."""
    middle = (plugin or Reorg(2)).as_node(["a"], ["y"], "custom")
    return network([node("Relu", "x", "a", "relu"), middle], dims)


@pytest.mark.parametrize("batch", ["N", 2])
def test_what_is_served_computes_what_the_plugin_computes(tmp_path, batch):
    export_triton(plugin_net((batch, 4, 6, 6)), tmp_path, name="net")
    config, session = serve(tmp_path / "net")
    x = image(2)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(y, Reorg(2).compute(np.maximum(x, 0)))
    assert config.max_batch_size == (8 if batch == "N" else 0)
    assert config.HasField("dynamic_batching") == (batch == "N")
    assert list(config.input[0].dims) == ([4, 6, 6] if batch == "N" else [2, 4, 6, 6])
    assert list(config.output[0].dims) == ([16, 3, 3] if batch == "N" else [2, 16, 3, 3])


def test_the_choices_reach_the_config(tmp_path):
    graph = ptp.Graph(shuffle_net())
    graph.replace("join", Shuffle(2), inputs=["a"])
    written = export_triton(
        graph, tmp_path, name="net", version=3, max_batch=16, instances=2, kind="gpu", queue_delay=250
    )
    config, _ = serve(tmp_path / "net")
    assert config.max_batch_size == 16
    assert config.dynamic_batching.max_queue_delay_microseconds == 250
    (group,) = config.instance_group
    assert (group.count, model_config_proto().ModelInstanceGroup.Kind.Name(group.kind)) == (2, "KIND_GPU")
    assert written.files == (tmp_path / "net" / "config.pbtxt", tmp_path / "net" / "3" / "model.onnx")
    assert written.start == f"tritonserver --model-repository={tmp_path}"
    assert written.needs == ()


def test_a_batch_of_one_waits_for_nobody(tmp_path):
    export_triton(plugin_net(), tmp_path, name="net", max_batch=1)
    config, _ = serve(tmp_path / "net")
    assert config.max_batch_size == 1
    assert not config.HasField("dynamic_batching")


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_the_one_that_triton_knows(tmp_path, name):
    model = parsed("(float[N,3] x) => (float[N,3] y) { y = Identity (x) }")
    for item in (*model.graph.input, *model.graph.output):
        item.type.tensor_type.elem_type = getattr(TensorProto, name)
    export_triton(model, tmp_path, name="net")
    serve(tmp_path / "net")


def test_free_axes_stay_free_and_a_batch_of_numbers_is_reshaped(tmp_path):
    nodes = [node("ReduceMax", "x axes", "y", keepdims=0), node("Identity", "x", "same")]
    export_triton(network(nodes, ("N", "width"), "y same", axes=np.array([1])), tmp_path, name="net")
    config, _ = serve(tmp_path / "net")
    assert list(config.input[0].dims) == [-1]
    number, same = config.output
    assert (list(number.dims), number.HasField("reshape"), list(number.reshape.shape)) == ([1], True, [])
    assert not same.HasField("reshape")


def test_a_number_without_a_batch_is_not_reshaped(tmp_path):
    export_triton(network([node("ReduceMax", "x", "y", keepdims=0)], ("N", 3)), tmp_path, name="net")
    config, _ = serve(tmp_path / "net")
    assert (config.max_batch_size, list(config.input[0].dims), list(config.output[0].dims)) == (0, [-1, 3], [1])
    assert not config.output[0].HasField("reshape")


@pytest.mark.parametrize("batch", ["N", None])
def test_a_batch_that_an_exporter_called_otherwise_is_one(tmp_path, batch):
    """As PyTorch's calls it behind Resize."""
    resize = helper.make_node("Resize", ["x", "", "twice"], ["y"], mode="linear")
    model = network([resize], (batch, 3, 4, 4), twice=np.float32([1, 1, 2, 2]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["Resize1_dim_0", 3, 8, 8]))
    export_triton(model, tmp_path, name="net")
    config, session = serve(tmp_path / "net")
    assert (config.max_batch_size, list(config.output[0].dims)) == (8, [3, 8, 8])
    assert session.run(None, {"x": np.zeros((5, 3, 4, 4), np.float32)})[0].shape == (5, 3, 8, 8)
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "Resize1_dim_0"


def test_an_output_whose_first_axis_is_another_is_no_batch_unless_the_caller_says_so(tmp_path):
    model = network([node("NonZero", "x", "i"), node("Transpose", "i", "t"), node("Cast", "t", "y", to=1)], ("N", 3))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["found", 2]))
    export_triton(model, tmp_path, name="found")
    config, _ = serve(tmp_path / "found")
    assert (config.max_batch_size, list(config.output[0].dims)) == (0, [-1, 2])
    export_triton(model, tmp_path, name="batched", max_batch=4)
    assert serve(tmp_path / "batched")[0].max_batch_size == 4


def test_an_engine_of_a_cpu_is_served_by_the_model_inside_it(tmp_path):
    ptp.build(conv_net(Shuffle(2), batch="N"), engine="reference").save(tmp_path / "net.engine")
    export_triton(tmp_path / "net.engine", tmp_path / "models")
    config, session = serve(tmp_path / "models" / "net")
    assert config.input[0].name == session.get_inputs()[0].name == "data"


@pytest.mark.parametrize("form", ["decomposition", "compute", "enqueue"])
def test_the_forms_of_an_engine_of_a_cpu_are_those_that_triton_runs_or_refused(tmp_path, form):
    asked = {"test.engines::Complete": form}
    ptp.build(conv_net(Complete(), batch="N"), engine="cpu", plugins=asked).save(tmp_path / "net.engine")
    if form == "decomposition":
        export_triton(tmp_path / "net.engine", tmp_path / "models")
        assert serve(tmp_path / "models" / "net")
        return
    with pytest.raises(
        UsageError, match=rf"test.engines::Complete is to run as '{form}', and Triton, .*\nDo: "
    ) as caught:
        export_triton(tmp_path / "net.engine", tmp_path / "models")
    assert (caught.value.plugin, caught.value.form) == ("test.engines::Complete", form)
    assert not (tmp_path / "models").exists()


def test_a_form_that_is_asked_for_is_written_into_the_model(tmp_path, library):
    model, name = conv_net(Complete(), batch="N"), "test.engines::Complete"
    export_triton(model, tmp_path / "models", name="net", plugins={name: "decomposition"})
    assert serve(tmp_path / "models" / "net")
    export_triton(model, tmp_path / "models", name="kept", libraries=[library], plugins={name: "enqueue"})
    kept = onnx.load(tmp_path / "models" / "kept" / "1" / "model.onnx")
    assert [node.op_type for node in kept.graph.node if node.domain == "test.engines"] == ["Complete"]
    for options, message in (
        ({"plugins": {name: "enqueue"}}, "runs decomposition here"),
        ({"plugins": {name: "compute"}, "libraries": [library]}, "runs decomposition or enqueue here"),
        ({"plugins": {"a::B": "decomposition"}}, "no plugin 'a::B'"),
        ({"plugins": {name: "fast"}}, "form 'fast' is unknown"),
        ({"plugins": {name: "decomposition"}, "plan": library}, r"ops.so is built already"),
    ):
        with pytest.raises(UsageError, match=message):
            export_triton(model, tmp_path / "models", name="other", **options)
    assert not (tmp_path / "models" / "other").exists()


def test_large_weights_lie_beside_the_model(tmp_path, monkeypatch):
    monkeypatch.setattr("pytrtplugins.model.files._MAX_BYTES", 1000)
    written = export_triton(network([node("Conv", "x k", "y")], k=weights(32, 4, 3, 3)), tmp_path, name="net")
    config, model, data = (path.name for path in written.files)
    assert (config, model) == ("config.pbtxt", "model.onnx")
    assert data.startswith("model.onnx.")
    assert data.endswith(".data")
    serve(tmp_path / "net")


# -- refused -------------------------------------------------------------------------------------------------------------


def test_a_plugin_that_cannot_be_written_out_is_refused_with_the_way_over_a_plan(tmp_path):
    with pytest.raises(
        ModelError, match=r"'custom' \(test.engines::Affine\): Affine.* has no decompose.*no Python.*\nDo: "
    ):
        export_triton(plugin_net(plugin=Affine(2.0)), tmp_path, name="net")
    assert list(tmp_path.iterdir()) == []


def test_a_plugin_that_must_know_its_dims_first_is_refused_for_that_reason(tmp_path):
    with pytest.raises(ModelError, match=r"Shuffle.* cannot be written out before all its dims are known"):
        export_triton(plugin_net(("N", 4, "h", "w"), Shuffle(2)), tmp_path, name="net")


def test_functions_of_the_model_itself_are_known(tmp_path):
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "own": 1]>
        g (float[N, 4] x) => (float[N, 4] y) { y = own.Twice (x) }
        <domain: "own", opset_import: ["": 17]> Twice (a) => (b) { b = Add (a, a) }""")
    export_triton(model, tmp_path, name="net")
    assert (tmp_path / "net" / "1" / "model.onnx").is_file()


def test_operators_that_nobody_knows_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"'odd' \(vendor::Odd\): it is neither an ONNX operator nor a plugin"):
        export_triton(network([node("Odd", "x", "y", "odd", domain="vendor")]), tmp_path, name="net")
    stranger = node("Stranger", "x", "y", domain="unheard", plugin_namespace="unheard", plugin_version="1")
    with pytest.raises(RegistryError, match="unheard::Stranger"):
        export_triton(network([stranger]), tmp_path, name="net")


def test_outputs_without_dims_are_refused(tmp_path, library):
    library.write_bytes(b"RegisterCustomOps")
    with pytest.raises(ModelError, match="output 'y' has no known dims"):
        export_triton(network([node("Odd", "x", "y", domain="vendor")]), tmp_path, name="net", libraries=[library])


def test_operators_of_a_library_are_left_to_it(tmp_path, library):
    model = network([node("Odd", "x", "y", domain="vendor")])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, ["N", 7]))
    written = export_triton(model, tmp_path / "models", name="net", libraries=[library], served_at="/models")
    config = parse(written.config)
    assert list(config.model_operations.op_library_filename) == ["/models/net/1/ops.so"]
    assert (tmp_path / "models" / "net" / "1" / "ops.so").read_bytes() == library.read_bytes()
    assert written.start == "tritonserver --model-repository=/models"
    library.write_bytes(b"\x7fELF a plugin of TensorRT")
    with pytest.raises(UsageError, match="not a library of onnxruntime operators"):
        export_triton(model, tmp_path / "others", name="net", libraries=[library])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch": 4}, r"max_batch 4: 'x' has no free first axis: \(1, 4, 6, 6\)"),
        ({"max_batch": 0}, "max_batch: expected a whole number"),
        ({"version": 0}, r"version: expected a whole number from 1 to 9,223,372,036,854,775,807, found 0"),
        ({"version": 1 << 63}, "version: expected a whole number"),
        ({"queue_delay": -1}, "queue_delay: expected a whole number from 0 to 3,600,000,000, found -1"),
        ({"queue_delay": 10**10}, "queue_delay: expected a whole number"),
        ({"max_batch": 1 << 31}, "max_batch: expected a whole number from 1 to 2,147,483,647, found 2147483648"),
        ({"instances": 0}, "instances: expected a whole number from 1 to 1,024, found 0"),
        ({"instances": 99_999}, "instances: expected a whole number from 1 to 1,024, found 99999"),
        ({"instances": 1.5}, "instances: expected a whole number from 1 to 1,024, found 1.5"),
        ({"kind": "tpu"}, "kind: expected auto or cpu or gpu"),
        ({"name": "a/b"}, "name 'a/b': expected letters"),
        ({"libraries": ["none.so"]}, "library 'none.so': no such file"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        export_triton(plugin_net((1, 4, 6, 6)), tmp_path / "models", **{"name": "net", **options})
    assert not (tmp_path / "models").exists()


def test_a_version_is_never_overwritten_and_a_second_stands_beside_it(tmp_path):
    export_triton(plugin_net(), tmp_path, name="net")
    with pytest.raises(UsageError, match=r"net/1 is there already.\nDo: --version 2"):
        export_triton(plugin_net(), tmp_path, name="net")
    export_triton(plugin_net(), tmp_path, name="net", version=2)
    assert sorted(path.name for path in (tmp_path / "net").iterdir()) == ["1", "2", "config.pbtxt"]
    with pytest.raises(UsageError, match=r"config.pbtxt is there already.*\n(.*\n)+Do: --name"):
        export_triton(plugin_net(), tmp_path, name="net", version=3, instances=2)
    assert not (tmp_path / "net" / "3").exists()


def test_a_failed_export_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("pytrtplugins.export._triton_sources.write_onnx", fail)
    with pytest.raises(OSError, match="disk full"):
        export_triton(plugin_net(), tmp_path, name="net")
    assert list(tmp_path.iterdir()) == []


# -- the text ------------------------------------------------------------------------------------------------------------


def test_names_of_any_kind_reach_triton():
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.lists(st.integers(-1, 2**40), max_size=4))
    def check(name, dims):
        block = {"name": name, "data_type": Word("TYPE_FP32"), "dims": dims}
        config = parse(config_text({"name": name, "max_batch_size": 4, "input": [block, block]}))
        assert [config.name, *(item.name for item in config.input)] == [name] * 3
        assert list(config.input[1].dims) == dims

    check()


def test_the_command_writes_a_darknet_network_with_a_free_batch(tmp_path, capsys):
    from pathlib import Path

    cfg = Path(__file__).parents[2] / "samples" / "models" / "yolov2-animals.cfg"
    assert exit_code(cfg, "-o", tmp_path, "--name", "yolov2", "--served-at", "/models") == 0
    printed = capsys.readouterr().out
    assert re.search(r"yolov2/1/model.onnx: [\d,]+ bytes\nDo: tritonserver --model-repository=/models\n$", printed)
    config, _ = serve(tmp_path / "yolov2")
    assert (config.max_batch_size, list(config.input[0].dims)) == (8, [3, 416, 416])


def test_the_command_takes_forms(tmp_path, capsys):
    onnx.save(conv_net(Complete()), tmp_path / "net.onnx")
    words = [tmp_path / "net.onnx", "-o", tmp_path / "models", "--plugin-form"]
    assert exit_code(*words, "test.engines::Complete=compute") == 2
    assert "is to run as 'compute'" in capsys.readouterr().err
    assert exit_code(*words, "test.engines::Complete=decomposition") == 0


def test_the_command_registers_plugins_first(tmp_path, capsys):
    onnx.save(plugin_net(plugin=Line(2.0)), tmp_path / "net.onnx")
    assert exit_code(tmp_path / "net.onnx", "-o", tmp_path / "models", "--plugins", "tests.nothing") == 2
    assert "module 'tests.nothing': cannot be imported" in capsys.readouterr().err


def test_every_type_of_onnx_has_tritons_name():
    renamed = {"FLOAT": "FP32", "DOUBLE": "FP64", "FLOAT16": "FP16", "BFLOAT16": "BF16"}
    names = {number: TensorProto.DataType.Name(number) for number in _TYPES}
    assert {number: renamed.get(name, name) for number, name in names.items()} == _TYPES
    assert len(names) == 14


def test_texts_of_a_configuration_are_quoted():
    assert config_text({"name": 'a"b\\c\nd', "kind": Word("KIND_GPU")}).split("\n") == [
        'name: "a\\"b\\\\c\\nd"',
        "kind: KIND_GPU",
        "",
    ]
