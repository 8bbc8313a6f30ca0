"""Rules of dims, compared with ONNX's own tests of operators, and with what onnx.reference makes of them with one size changed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.node_tests import load_cases
from pytrtplugins.engines.cuda.lower.dim_rules import RULES
from pytrtplugins.engines.cuda.lower.operand_dims import MisfitError, Operands, UnknownDimsError
from pytrtplugins.engines.cuda.lower.rewrite import DOMAIN
from pytrtplugins.passes import to_ir


def cases_by_operator():
    found = defaultdict(list)
    for case in load_cases():
        (node, *more), opset = case.model.graph.node, case.model.opset_import[0]
        arrays = [*case.data[0][0], *case.data[0][1]] if case.data else []
        plain = all(isinstance(each, np.ndarray) for each in arrays) and not case.model.graph.initializer
        if not more and arrays and plain and (opset.domain, node.op_type) in RULES:
            found[node.op_type].append(case)
    return dict(found)


CASES = cases_by_operator()


def described(model, arrays):
    """The model with these inputs, and outputs of any dims."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for info, array in zip(result.graph.input, arrays, strict=True):
        info.type.tensor_type.ClearField("shape")
        for size in array.shape:
            info.type.tensor_type.shape.dim.add(dim_value=size)
    for info in result.graph.output:
        info.type.tensor_type.ClearField("shape")
    return result


def ruled(model, arrays):
    """Dims of the outputs, of which None is unknown; a text where the rule refuses the inputs."""
    form = to_ir(described(model, arrays), checked=False)
    (node,) = form.graph
    for value, array in zip(form.graph.inputs, arrays, strict=True):
        if array.dtype.kind in "iu" and array.ndim <= 1:
            value.const_value = onnx_ir.tensor(array)
    try:
        return [
            None if dims is None else tuple(dims)
            for dims in RULES["", node.op_type](Operands(node, form.opset_imports[""]))
        ]
    except MisfitError as error:
        return str(error)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # as `find_misfit` takes them
        return repr(error)
    except UnknownDimsError:
        return []


@pytest.mark.parametrize("operator", sorted(CASES))
def test_a_rule_gives_the_dims_of_onnxs_tests(operator):
    for case in CASES[operator]:
        for given, wanted in case.data:
            found = ruled(case.model, given)
            assert not isinstance(found, str), (case.name, found)
            for dims, array in zip(found, wanted, strict=False):
                assert dims is None or tuple(dims) == array.shape, case.name


LENIENT = {
    "Cast", "CastLike", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "GRU",
    "Gather", "GatherElements", "GatherND", "InstanceNormalization", "LRN", "LSTM", "LayerNormalization",
    "MatMulInteger", "MeanVarianceNormalization", "PRelu", "QLinearConv", "QLinearMatMul", "RMSNormalization", "RNN",
    "Reshape", "ReverseSequence", "ScatterElements", "ScatterND", "Split", "Squeeze", "Tile",
    "TopK", "Unsqueeze",
}  # fmt: skip
"""Operators of which onnx.reference also computes what ONNX's text does not allow, or refuses values."""


@pytest.mark.parametrize("operator", sorted(CASES))
def test_with_one_size_more_or_less_a_rule_says_what_onnxs_reference_does(operator):
    for case in CASES[operator][:: -(-len(CASES[operator]) // 4)]:
        given = case.data[0][0]
        if computed(case.model, given) is None:  # not an operator of onnx.reference's in these types
            continue
        for index, axis, step in ((i, a, step) for i, x in enumerate(given) for a in range(x.ndim) for step in (1, -1)):
            size = given[index].shape[axis]
            if size and size + step >= 0:
                inputs = list(given)
                inputs[index] = np.take(given[index], np.arange(size + step) % size, axis)
                found, wanted = ruled(case.model, inputs), computed(case.model, inputs)
                where = f"{case.name}: input {index} of the dims {inputs[index].shape}: {found}, expected {wanted}"
                refuses = isinstance(found, str)
                assert operator in LENIENT or found == [] or refuses is (wanted is None), where
                if not refuses and wanted is not None:
                    assert all(dims in (None, each) for dims, each in zip(found, wanted, strict=False)), where


def computed(model, arrays):
    """Dims of what onnx.reference gives; None where it does not."""
    names = [info.name for info in model.graph.input]
    try:
        outputs = ReferenceEvaluator(described(model, arrays)).run(None, dict(zip(names, arrays, strict=True)))
    except Exception:
        return None
    return [output.shape for output in outputs]


def test_rules_are_of_operators_that_onnx_or_this_engine_has():
    assert [name for domain, name in RULES if domain != DOMAIN and not onnx.defs.has(name, domain)] == []
    assert {"Concat", "Conv", "Gemm", "MatMul", "Reshape", "ScatterND", "Split", "Transpose"} <= {
        name for _, name in RULES
    }
