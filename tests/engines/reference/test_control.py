"""If, Loop and Scan on the reference engine, against onnxruntime; their graphs read tensors of the graphs around them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import BuildError, EngineError
from pytrtplugins.plugin.onnx_node import as_node
from tests.engines.networks import Affine
from tests.engines.operators import f, literal

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind=FLOAT, dims=None):
    return helper.make_tensor_value_info(name, kind, dims)


def graph(nodes, inputs, outputs, **constants):
    return helper.make_graph(
        nodes, "graph", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in constants.items()]
    )


def model(*given, opset=18, **constants):
    built = helper.make_model(graph(*given, **constants), opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    built.opset_import.append(helper.make_opsetid("test", 1))
    return built


def run(network, feeds):
    with ptp.build(network, engine="reference").create_context() as context:
        found = context.run(feeds)
        return [found[output.name] for output in network.graph.output]


def agree(network, feeds):
    found, wanted = run(network, feeds), literal(network, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-6)
    return found


def branch(op, *names, output="r", **constants):
    return graph([helper.make_node(op, list(names), [output])], [], [info(output)], **constants)


@pytest.mark.parametrize("which", [True, False])
def test_a_branch_reads_outer_tensors_to_the_last(which):
    """`h` is read by nobody but the branches, and `w` is an initializer."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("Add", "h", "w"), else_branch=branch("Sub", "h", "k", k=f(3))
        ),
    ]
    network = model(nodes, [info("x", dims=[2, 3]), info("c", BOOL, [])], [info("y")], w=f(3))
    agree(network, {"x": f(2, 3), "c": np.array(which)})


def test_branches_within_branches_read_what_is_around_all_of_them():
    inner = graph(
        [
            helper.make_node(
                "If",
                ["d"],
                ["r"],
                then_branch=branch("Add", "h", "x", output="a"),
                else_branch=branch("Neg", "h", output="b"),
            )
        ],
        [],
        [info("r")],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=branch("Identity", "x", output="s")),
    ]
    network = model(nodes, [info("x", dims=[3]), info("c", BOOL, []), info("d", BOOL, [])], [info("y")])
    for c in (True, False):
        for d in (True, False):
            agree(network, {"x": f(3), "c": np.array(c), "d": np.array(d)})


def loop(limit, keep_going="below"):
    """Adds `w` until the sum is over 10; gives the sum, and all sums in rows."""
    nodes = [
        helper.make_node("Add", ["s", "w"], ["t"]),
        helper.make_node("ReduceMax", ["t"], ["m"], keepdims=0),
        helper.make_node("Less", ["m", "ten"], ["below"]),
        helper.make_node("Identity", ["t"], ["row"]),
        helper.make_node("Cast", ["i"], ["n"], to=FLOAT),
    ]
    body = graph(
        nodes,
        [info("i", INT, []), info("going", BOOL, []), info("s", dims=[2, 3])],
        [info(keep_going, BOOL, []), info("t", dims=[2, 3]), info("row", dims=[2, 3]), info("n", dims=[])],
        ten=np.float32(10),
    )
    names = ["limit" if limit is not None else "", "", "x"]
    constants = {"w": np.abs(f(3)) + 1} | ({} if limit is None else {"limit": np.array(limit, np.int64)})
    node = helper.make_node("Loop", names, ["y", "rows", "counts"], body=body)
    return model([node], [info("x", dims=[2, 3])], [info("y"), info("rows"), info("counts")], **constants)


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
    nodes = [helper.make_node("Add", ["s", "v"], ["t"]), helper.make_node("Mul", ["t", "w"], ["o"])]
    body = graph(nodes, [info("s", dims=[3]), info("v", dims=[3])], [info("t", dims=[3]), info("o", dims=[3])])
    node = helper.make_node(
        "Scan", ["start", "x"], ["y", "all"], body=body, num_scan_inputs=1,
        scan_input_axes=[axes[0]], scan_input_directions=[directions[0]],
        scan_output_axes=[axes[1]], scan_output_directions=[directions[1]],
    )  # fmt: skip
    dims = (4, 3) if axes[0] == 0 else (3, 4)
    network = model([node], [info("x", dims=dims)], [info("y"), info("all")], start=f(3), w=f(3))
    agree(network, {"x": f(*dims)})


def test_inputs_of_a_scan_have_one_length():
    nodes = [helper.make_node("Add", ["v", "u"], ["o"])]
    body = graph(nodes, [info("v", dims=[3]), info("u", dims=[3])], [info("o", dims=[3])])
    node = helper.make_node("Scan", ["x", "z"], ["y"], "scan", body=body, num_scan_inputs=2)
    network = model([node], [info("x", dims=["N", 3]), info("z", dims=["M", 3])], [info("y")])
    with pytest.raises(
        EngineError, match=r"node 'scan': Scan cannot .*: its inputs have different lengths along their axes: \[4, 5\]"
    ):
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
    body = graph([helper.make_node("Neg", ["v"], ["o"])], [info("v")], [info("o")])
    node = helper.make_node("Scan", ["x"], ["y"], "scan", body=body, num_scan_inputs=1)
    node.attribute.extend(
        helper.make_attribute(*pair, attr_type=onnx.AttributeProto.INTS) for pair in attributes.items()
    )
    network = model([node], [info("x", dims=[2, 3])], [info("y")])
    with pytest.raises(
        EngineError, match=rf"node 'scan': Scan cannot be computed of float32\[2, 3\]: .*{what}"
    ) as caught:
        run(network, {"x": f(2, 3)})
    assert caught.value.facts["op_type"] == "Scan"


def test_an_exception_of_a_plugin_in_a_branch_is_the_plugins(monkeypatch):
    def fail(self, x):
        raise ZeroDivisionError("of the plugin")

    monkeypatch.setattr(Affine, "compute", fail)
    body = graph([as_node(Affine(3.0), ["x"], ["r"], "plugin")], [], [info("r")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=branch("Identity", "x", output="s"))
    network = model([node], [info("x", dims=[2]), info("c", BOOL, [])], [info("y")])
    with pytest.raises(ZeroDivisionError, match=r"^of the plugin$"):
        run(network, {"x": f(2), "c": np.bool_(True)})


def test_a_plugin_in_a_branch_is_computed_by_its_class():
    body = graph([as_node(Affine(3.0), ["x"], ["r"], "plugin")], [], [info("r")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=branch("Identity", "x", output="s"))
    network = model([node], [info("x", dims=[2]), info("c", BOOL, [])], [info("y")])
    x = f(2)
    for which in (True, False):
        (found,) = run(network, {"x": x, "c": np.array(which)})
        np.testing.assert_array_equal(found, Affine(3.0).compute(x) if which else x)


def test_what_a_branch_cannot_compute_is_refused_when_the_engine_is_built():
    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Celux", "x"), else_branch=branch("Identity", "x", output="s")
    )
    network = model([node], [info("x", dims=[2]), info("c", BOOL, [])], [info("y")])
    with pytest.raises(BuildError, match="node 'r': operator Celux is not known"):
        ptp.build(network, engine="reference")
