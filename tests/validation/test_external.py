"""Every place in which a model can hold a tensor is looked at, and has its name in messages."""

import onnx
from onnx import TensorProto

from pytrtplugins.validation.external import _tensors
from tests.onnx_parts import body, branches, function, model, node


def tensor(name):
    return TensorProto(name=name)


def sparse(name):
    return onnx.SparseTensorProto(values=tensor(f"{name} values"), indices=tensor(f"{name} indices"))


def constant(prefix):
    """A node with tensors in each kind of attribute."""
    constant_node = node("Constant", "", f"{prefix}_c")
    constant_node.attribute.add(name="value").t.CopyFrom(tensor(f"{prefix} t"))
    constant_node.attribute.add(name="values").tensors.extend([tensor(f"{prefix} t0"), tensor(f"{prefix} t1")])
    constant_node.attribute.add(name="sparse").sparse_tensor.CopyFrom(sparse(f"{prefix} s"))
    constant_node.attribute.add(name="sparses").sparse_tensors.extend([sparse(f"{prefix} s0"), sparse(f"{prefix} s1")])
    return constant_node


def expected(prefix, where):
    owner = f"{where}node '{prefix}_c' (Constant): attribute "
    yield f"{prefix} t", f"{owner}'value'"
    yield from ((f"{prefix} t{number}", f"{owner}'values'") for number in (0, 1))
    for name, attribute in (("s", "sparse"), ("s0", "sparses"), ("s1", "sparses")):
        yield from ((f"{prefix} {name} {part}", f"{owner}'{attribute}', its {part}") for part in ("values", "indices"))


def test_tensors_are_found_in_graphs_attributes_bodies_and_functions_with_their_places():
    network = branches(body(constant("body"), weights=[tensor("in body")]))
    network.graph.initializer.append(tensor("weight"))
    network.graph.sparse_initializer.append(sparse("sparse"))
    network.graph.node.append(constant("main"))
    network.functions.append(function("F", constant("function")))
    found = [(item.name, where) for item, where in _tensors(network)]
    inside = "in node 'y' (If): "
    assert found == [
        ("weight", "initializer 'weight'"),
        *((f"sparse {part}", f"sparse initializer 'sparse values', its {part}") for part in ("values", "indices")),
        ("v", f"{inside}node 'c' (Constant): attribute 'value'"),
        ("in body", f"{inside}initializer 'in body'"),
        *expected("body", inside),
        *expected("main", ""),
        *expected("function", "in the local function 'F': "),
    ]
    assert list(_tensors(model())) == []
