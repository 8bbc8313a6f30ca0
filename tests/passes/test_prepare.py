"""What `prepare` gives as a whole, which calibration tables, digests and limits depend on: names, numbers, and what it refuses."""

import gc

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from pytrtplugins.engines.calibrate import network_digest
from pytrtplugins.errors import ModelError
from pytrtplugins.passes import Eliminate, prepare, run_passes
from pytrtplugins.validation import limits

CALLS = """<ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    net (float[N,4] x, float[4] unused) => (float[N,4] y) <float[4] k = {1, -2, 3, 0.5}>
    {
        a = mine.Twice (x)
        t = mine.Twice (a)
        i = Identity (t)
        y = Add (i, k)
    }
    <domain: "mine", opset_import: ["" : OPSET]> Twice (v) => (w) { t = Relu (v)  w = Add (t, v) }"""


def called(opset=17):
    """Two calls of a function whose tensor has the name of one of the graph's."""
    return parser.parse_model(CALLS.replace("OPSET", str(opset)))


@pytest.mark.parametrize("opset", [17, 13])
def test_tensors_of_functions_get_the_same_names_in_each_release(opset):
    """Calibration tables speak of them."""
    prepared = prepare(called(opset))
    assert [(node.op_type, *node.input, *node.output) for node in prepared.graph.node] == [
        ("Relu", "x", "t__1"),
        ("Add", "t__1", "x", "a"),
        ("Relu", "a", "t__2"),
        ("Add", "t__2", "a", "t"),
        ("Add", "t", "k", "y"),
    ]
    assert network_digest(prepared) == "a79de85dbe3f9d9c0f674e5dc128a02e5ec62b777f083f3a7030e6318b0e0664"


@pytest.mark.parametrize("opset", [17, 13])
def test_what_it_gives_computes_the_same(opset):
    x = {"x": np.float32([[-1, 2, 0, 3]]), "unused": np.zeros(4, np.float32)}
    found, wanted = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, x)
        for each in (prepare(called(opset)), called(opset))
    )
    np.testing.assert_array_equal(found, wanted)


def test_dims_of_inputs_have_names_and_all_tensors_dims():
    prepared = prepare(called())
    shapes = {
        info.name: [dim.dim_param or dim.dim_value for dim in info.type.tensor_type.shape.dim]
        for info in (*prepared.graph.input, *prepared.graph.output, *prepared.graph.value_info)
    }
    assert shapes == {"unused": [4], **{name: ["N", 4] for name in ("x", "t__1", "a", "t__2", "t", "y")}}


def test_the_given_model_and_a_prepared_one_stay_as_they_are():
    original = called()
    before = original.SerializeToString(deterministic=True)
    prepared = prepare(original)
    assert original.SerializeToString(deterministic=True) == before
    assert prepare(prepared).SerializeToString(deterministic=True) == prepared.SerializeToString(deterministic=True)


def growing(factor):
    """4 KiB of weights, of which a function makes ``factor`` times as many."""
    text = f"""<ir_version: 8, opset_import: ["" : 17, "mine" : 1]> net (float[1] x) => (float[N] y)
        <int64[1] times = {{{factor}}}> {{ t = mine.Grow (w, times)  y = Add (x, t) }}
        <domain: "mine", opset_import: ["" : 17]> Grow (v, n) => (t) {{ t = Tile (v, n) }}"""
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones(1024, np.float32), "w"))
    return model


@pytest.mark.parametrize("over", [0, 1])
def test_what_functions_make_of_constants_counts_with_the_weights_it_is_made_of(monkeypatch, over):
    """The limit is a fixed amount and ``MAX_GROWTH`` times the weights, also of those that are kept apart while dims are inferred."""
    held = 4 * 1024 + 8
    fits = limits.MAX_GROWTH * held // 4096
    monkeypatch.setattr("pytrtplugins.validation.sizes.MAX_COMPUTED_BYTES", 4096 - limits.MAX_GROWTH * 8 % 4096)
    if not over:
        assert "t" in {info.name for info in prepare(growing(fits + 1)).graph.value_info}
        return
    with pytest.raises(ModelError, match="computed from constants alone"):
        prepare(growing(fits + 2))


def test_dims_that_contradict_what_a_function_gives_are_refused():
    original = called()
    original.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    with pytest.raises(ModelError, match="'y'"):
        prepare(original)


def test_passes_run_without_the_garbage_collector_and_leave_it_as_it_was(monkeypatch):
    seen = []

    class Looks(Eliminate):
        def call(self, model):
            seen.append(gc.isenabled())
            return super().call(model)

    for on in (True, False):
        (gc.enable if on else gc.disable)()
        try:
            run_passes(prepare(called()), Looks())
            assert (seen.pop(), gc.isenabled()) == (False, on)
        finally:
            gc.enable()
