"""Attributes and constant inputs of a replaced node become fields."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper, numpy_helper

import pytrtplugins as ptp
from pytrtplugins.errors import FieldError, UsageError
from tests.onnx_parts import parsed

SLOPE = np.array([0.5, 0.25, 2], np.float32).reshape(3, 1, 1)


class Base(ptp.Plugin):
    def output_dims(self, x):
        return x

    def compute(self, x):
        return x


@ptp.plugin(namespace="tests.nodefields")
class PRelu(Base):
    slope: npt.NDArray[np.float32]

    def compute(self, x):
        return np.where(x > 0, x, x * self.slope)


@ptp.plugin(namespace="tests.nodefields")
class Leaky(Base):
    alpha: float


@ptp.plugin(namespace="tests.nodefields")
class Odd(Base):
    weight: npt.NDArray[np.float32]
    sizes: tuple[int, ...]
    scale: float
    kind: str = "plain"


@ptp.plugin(namespace="tests.nodefields")
class Counted(Base):
    alpha: int


def graph(text, **constants):
    """A graph of nodes that read x and constants."""
    return ptp.load_onnx(parsed(f"(float[N,3,4,4] x) => (float[N,3,4,4] y) {{ {text} }}", **constants))


def plugin_of(network):
    return network.model.graph.node[-1]


def odd(more="", **constants):
    attributes = f'sizes = [1, 2], kind = "fine"{more}'
    return graph(f'["/odd"] y = odd.Odd <{attributes}> (x, "model.3.weight", scale)', **constants)


@pytest.mark.parametrize("name", ["slope", "model.act.slope", "onnx::PRelu_31"])
def test_a_constant_input_is_found_by_the_operators_name_the_tensors_or_its_last_part(name):
    network = graph(f'["/prelu"] y = PRelu (x, "{name}")', **{name: SLOPE})
    network.replace("/prelu", PRelu, fields="from node")
    (made,) = network.nodes
    assert made.type == "tests.nodefields::PRelu"
    assert made.inputs == ("x",)
    assert not network.model.graph.initializer
    with ptp.build(network.model, engine="reference").create_context() as context:
        x = np.random.default_rng(0).standard_normal((2, 3, 4, 4), np.float32)
        np.testing.assert_array_equal(context.run({"x": x})["y"], np.where(x > 0, x, x * SLOPE))


def test_a_constant_of_an_operator_of_any_number_of_inputs_is_found_by_its_own_name():
    network = graph('["/sum"] y = Sum (x, slope)', slope=SLOPE)
    network.replace("/sum", PRelu, fields="from node")
    assert network.nodes[0].inputs == ("x",)


def test_the_value_of_a_constant_node_counts_too():
    constant = "slope = Constant <value = float[3,1,1] {0.5, 0.25, 2}> ()"
    network = graph(f'{constant} ["/prelu"] y = PRelu (x, slope)')
    network.replace("/prelu", PRelu, fields="from node")
    (attribute,) = [item for item in plugin_of(network).attribute if item.name == "slope"]
    np.testing.assert_array_equal(numpy_helper.to_array(attribute.t), SLOPE)
    assert len(network.nodes) == 1


@pytest.mark.parametrize(("given", "alpha"), [("<alpha = 0.5>", 0.5), ("", np.float32(0.01))])
def test_an_attribute_that_is_left_out_has_the_operators_default(given, alpha):
    network = graph(f"[act] y = LeakyRelu {given} (x)")
    network.replace("act", Leaky, fields="from node")
    assert {item.name: item.f for item in plugin_of(network).attribute}["alpha"] == alpha


def test_arrays_of_one_number_and_lists_become_numbers_texts_and_tuples():
    network = odd(**{"model.3.weight": SLOPE.astype(np.float64), "scale": np.array([3], np.int64)})
    network.replace("/odd", Odd, fields="from node")
    found = {item.name: helper.get_attribute_value(item) for item in plugin_of(network).attribute}
    assert (found["sizes"], found["scale"], found["kind"]) == ([1, 2], 3.0, b"fine")
    assert found["weight"].data_type == onnx.TensorProto.FLOAT


def test_what_could_not_be_mapped_is_said_and_a_mapping_names_it():
    network = odd(", axis = 1", **{"model.3.weight": SLOPE, "scale": np.array(3, np.float32), "slope": SLOPE})
    with pytest.raises(FieldError) as caught:
        network.replace("/odd", PRelu, fields="from node")
    for part in (
        "node '/odd' (odd::Odd): field 'slope' (numpy.ndarray of float32) finds no value",
        "attribute 'axis' = 1 finds no field",
        "attribute 'sizes' = (1, 2) finds no field",
        "constant input 'model.3.weight' (float32[3, 1, 1]) finds no field",
        "fields={'slope': ...}",
    ):
        assert part in str(caught.value)
    assert network.nodes[0].type == "odd::Odd"
    with pytest.raises(FieldError, match="attribute 'axis' = 1 finds no field"):
        network.replace("/odd", Odd, fields="from node")
    network.replace("/odd", PRelu, fields={"slope": "weight"})
    assert network.nodes[0].type == "tests.nodefields::PRelu"


@pytest.mark.parametrize(
    ("plugin", "fields", "error", "message"),
    [
        (Counted, "from node", FieldError, r"Counted.alpha: expected int, found 0.5 \(float\), from attribute 'alpha' of node 'act'"),
        (Leaky, "from a node", UsageError, "expected 'from node', or a mapping"),
        (Leaky, {"beta": "alpha"}, UsageError, "'beta' is not a field of Leaky, which declares alpha: float"),
        (Leaky, {"alpha": "slope"}, UsageError, "has no 'slope'; the node has attribute 'alpha' = 0.5"),
        (Leaky(alpha=1), "from node", UsageError, "into a plugin class; found Leaky"),
        (Leaky, None, UsageError, "or fields='from node' beside the class Leaky"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(plugin, fields, error, message):
    network = graph("[act] y = LeakyRelu <alpha = 0.5> (x)")
    with pytest.raises(error, match=message):
        network.replace("act", plugin, fields=fields)
    assert network.nodes[0].type == "LeakyRelu"


def test_a_constant_that_stays_an_input_needs_no_field():
    @ptp.plugin(namespace="tests.nodefields")
    class Two(ptp.Plugin):
        def output_dims(self, x, slope):
            return x

        def compute(self, x, slope):
            return x * slope

    network = graph('["/prelu"] y = PRelu (x, slope)', slope=SLOPE)
    network.replace("/prelu", Two, fields="from node", inputs=["x", "slope"])
    assert network.nodes[0].inputs == ("x", "slope")
