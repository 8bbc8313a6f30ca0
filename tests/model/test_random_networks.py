"""Any network with any edits is what it would be by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import pytrtplugins as ptp
from tests.model.networks import Join, Line, network, node, run


@st.composite
def edited_networks(draw):
    """Nodes of a random network, and edits of it: tensor, factor, offset."""
    nodes, made = [], ["x"]
    for index in range(draw(st.integers(1, 6))):
        op_type, arity = draw(st.sampled_from([("Neg", 1), ("Relu", 1), ("Add", 2), ("Max", 2)]))
        inputs = [draw(st.sampled_from(made)) for _ in range(arity)]
        nodes.append((op_type, inputs, f"t{index}"))
        made.append(f"t{index}")
    outputs = draw(st.lists(st.sampled_from(made[1:]), min_size=1, max_size=3, unique=True))
    edits = st.tuples(st.sampled_from(made), st.sampled_from([-1, 2, 3]), st.sampled_from([0, 1, -2]))
    return nodes, outputs, draw(st.lists(edits, max_size=5))


def expected(nodes, outputs, edits, x):
    """The network computed by hand, where each tensor is seen through the lines put behind it."""
    compute = {"Neg": np.negative, "Relu": lambda a: np.maximum(a, 0), "Add": np.add, "Max": np.maximum}

    def seen(tensor, value):
        lines = [edit[1:] for edit in edits if edit[0] == tensor]
        for factor, offset in lines if tensor in outputs else reversed(lines):  # the last is nearest to an inner tensor
            value = factor * value + offset
        return value

    values = {"x": seen("x", x)}
    for op_type, inputs, name in nodes:
        values[name] = seen(name, compute[op_type](*(values[item] for item in inputs)))
    return {name: values[name] for name in outputs}


@given(edited_networks())
def test_any_network_with_lines_behind_its_tensors_is_what_it_would_be_by_hand(case):
    nodes, outputs, edits = case
    graph = ptp.load_onnx(network([node(o, " ".join(i), n) for o, i, n in nodes], ("N", 3), " ".join(outputs)))
    for tensor, factor, offset in edits:
        graph.insert_after(tensor, Line(factor, offset))
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    found = run(graph, x)
    assert list(found) == outputs
    assert all(dims is not None for dims in graph.tensors.values())
    for name, value in expected(nodes, outputs, edits, x).items():
        np.testing.assert_array_equal(found[name], value)


@given(edited_networks(), st.data())
def test_any_node_replaced_by_a_plugin_that_computes_the_same_changes_nothing(case, data):
    nodes, outputs, _ = case
    model = network([node(o, " ".join(i), n) for o, i, n in nodes], ("N", 3), " ".join(outputs))
    graph = ptp.load_onnx(model)
    twins = {"Neg": Line(-1), "Add": Join()}
    for op_type, _, name in nodes:
        if op_type in twins and data.draw(st.booleans()):
            graph.replace(name, twins[op_type], outputs=[name, f"{name}_rest"][: 2 if op_type == "Add" else 1])
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    for name, value in run(model, x).items():
        np.testing.assert_array_equal(run(graph, x)[name], value)
