"""If, Loop and Scan on the reference engine, against onnxruntime; their graphs read tensors of the graphs around them."""

import numpy as np
import onnx
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import BuildError, EngineError
from tests.engines.model_parts import parsed
from tests.engines.networks import Affine
from tests.engines.networks import run as run_engine
from tests.engines.operators import f, literal


def model(text, **constants):
    return parsed(text, 18, 10, ["test.engines"], **constants)


def run(network, feeds):
    found = run_engine(ptp.build(network, engine="reference"), feeds)
    return [found[output.name] for output in network.graph.output]


def agree(network, feeds):
    found, wanted = run(network, feeds), literal(network, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return found


def branches(then, other="s = Identity (x)", condition="c"):
    """An If of two branches of one node each."""
    graphs = (f"b () => (float[] {text.partition(' =')[0]}) {{ {text} }}" for text in (then, other))
    return "If ({}) <then_branch = {}, else_branch = {}>".format(condition, *graphs)


@pytest.mark.parametrize("which", [True, False])
def test_a_branch_reads_outer_tensors_to_the_last(which):
    """`h` is read by nobody but the branches, and `w` is an initializer; `k` is one of a branch."""
    other = "b () => (float[] e) <float[3] k = {1.5, -2, 0.25}> { e = Sub (h, k) }"
    choice = f"If (c) <then_branch = a () => (float[] t) {{ t = Add (h, w) }}, else_branch = {other}>"
    network = model(f"(float[2,3] x, bool c) => (float[] y) {{ h = Mul (x, w) y = {choice} }}", w=f(3))
    agree(network, {"x": f(2, 3), "c": np.array(which)})


def test_branches_within_branches_read_what_is_around_all_of_them():
    choice = branches(f"r = {branches('a = Add (h, x)', 'b = Neg (h)', 'd')}")
    network = model(f"(float[3] x, bool c, bool d) => (float[] y) {{ h = Exp (x) y = {choice} }}")
    for c in (True, False):
        for d in (True, False):
            agree(network, {"x": f(3), "c": np.array(c), "d": np.array(d)})


def loop(limit):
    """Adds `w` until the sum is over 10; gives the sum, and all sums in rows."""
    names, constants = ("", {}) if limit is None else ("limit", {"limit": np.array(limit, np.int64)})
    text = f"""(float[2,3] x) => (float[] y, float[] rows, float[] counts) {{ y, rows, counts = Loop ({names}, , x) <body =
        b (int64 i, bool going, float[2,3] s) => (bool below, float[2,3] t, float[2,3] row, float n) <float ten = {{10}}> {{
        t = Add (s, w) m = ReduceMax <keepdims = 0> (t) below = Less (m, ten) row = Identity (t) n = Cast <to = 1> (i) }}> }}"""
    return model(text, w=np.abs(f(3)) + 1, **constants)


@pytest.mark.parametrize("limit", [1, 3, None])
def test_a_loop_stacks_what_each_turn_gives(limit):
    _, rows, counts = agree(loop(limit), {"x": f(2, 3)})
    assert rows.shape == (len(counts), 2, 3)  # a new axis, where numpy.vstack would join rows


def test_a_loop_without_turns_gives_its_inputs_and_no_rows():
    x = f(2, 3)
    y, rows, counts = agree(loop(0), {"x": x})
    np.testing.assert_array_equal(y, x)
    assert (rows.shape, counts.shape) == ((0, 2, 3), (0,))


@pytest.mark.parametrize("directions", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("axes", [(0, 0), (1, 0), (1, 1)])
def test_a_scan_runs_along_any_axis_in_either_direction(directions, axes):
    dims = (4, 3) if axes[0] == 0 else (3, 4)
    text = f"""(float{list(dims)} x) => (float[] y, float[] all) {{ y, all = Scan <num_scan_inputs = 1,
        scan_input_axes = [{axes[0]}], scan_input_directions = [{directions[0]}],
        scan_output_axes = [{axes[1]}], scan_output_directions = [{directions[1]}],
        body = b (float[3] s, float[3] v) => (float[3] t, float[3] o) {{ t = Add (s, v) o = Mul (t, w) }}> (start, x) }}"""
    agree(model(text, start=f(3), w=f(3)), {"x": f(*dims)})


def test_inputs_of_a_scan_have_one_length():
    network = model(
        "(float[N,3] x, float[M,3] z) => (float[] y) { y = Scan <num_scan_inputs = 2,"
        " body = b (float[3] v, float[3] u) => (float[3] o) { o = Add (v, u) }> (x, z) }"
    )
    words = r"node 'Scan_y': Scan cannot .*: its inputs have different lengths along their axes: \[4, 5\]"
    with pytest.raises(EngineError, match=words):
        run(network, {"x": f(4, 3), "z": f(5, 3)})


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"scan_input_axes": [0, 0]}, "scan_input_axes has 2 numbers, and there are 1 scanned inputs"),
        ({"scan_input_directions": []}, "scan_input_directions has 0 numbers, and there are 1 scanned inputs"),
        ({"scan_output_axes": [0, 1]}, "scan_output_axes has 2 numbers, and there are 1 scanned outputs"),
        ({"scan_output_directions": [0, 1]}, "scan_output_directions has 2 numbers, and there are 1 scanned outputs"),
        ({"scan_input_axes": [3]}, "axis 3 is out of bounds"),
        ({"scan_output_axes": [-4]}, "axis -4 is out of bounds"),
    ],
)
def test_what_a_scan_cannot_do_names_its_node(attributes, what):
    body = "b (float[] v) => (float[] o) { o = Neg (v) }"
    network = model(f"(float[2,3] x) => (float[] y) {{ y = Scan <num_scan_inputs = 1, body = {body}> (x) }}")
    network.graph.node[0].attribute.extend(
        onnx.helper.make_attribute(*pair, attr_type=onnx.AttributeProto.INTS) for pair in attributes.items()
    )
    words = rf"node 'Scan_y': Scan cannot be computed of float32\[2, 3\]: .*{what}"
    with pytest.raises(EngineError, match=words) as caught:
        run(network, {"x": f(2, 3)})
    assert caught.value.facts["op_type"] == "Scan"


PLUGIN = model(
    f"(float[2] x, bool c) => (float[] y) {{ y = {branches('r = test.engines.Affine <factor = 3.0> (x)')} }}"
)


def test_an_exception_of_a_plugin_in_a_branch_is_the_plugins(monkeypatch):
    def fail(self, x):
        raise ZeroDivisionError("of the plugin")

    monkeypatch.setattr(Affine, "compute", fail)
    with pytest.raises(ZeroDivisionError, match=r"^of the plugin$"):
        run(PLUGIN, {"x": f(2), "c": np.bool_(True)})


def test_a_plugin_in_a_branch_is_computed_by_its_class():
    x = f(2)
    for which in (True, False):
        (found,) = run(PLUGIN, {"x": x, "c": np.array(which)})
        np.testing.assert_array_equal(found, Affine(3.0).compute(x) if which else x)


def test_what_a_branch_cannot_compute_is_refused_when_the_engine_is_built():
    network = model(f"(float[2] x, bool c) => (float[] y) {{ y = {branches('r = Celux (x)')} }}")
    with pytest.raises(BuildError, match="node 'Celux_r': operator Celux is not known"):
        ptp.build(network, engine="reference")
