"""An attribute of onnxruntime's operators that is left out has the value that onnxruntime's own schema gives it."""

import itertools

import onnx
import pytest

from benchmarks.forms.contrib import qualified_name
from benchmarks.forms.families import BUILDERS
from benchmarks.forms.form import draw_forms, schemas
from pytrtplugins.errors import PytrtpluginsError
from pytrtplugins.passes.prepare import of_onnx
from pytrtplugins.validation.dataflow import walk
from pytrtplugins.validation.operators import standard_opset

FORMS = 8
SCHEMAS = {qualified_name(schema): schema for schema in schemas() if schema.domain == "com.microsoft"}
DRAWN = sorted(SCHEMAS.keys() & BUILDERS.keys())


def defaults(schema):
    """Name → attribute, of those that have a default."""
    held = {name: item.default_value for name, item in schema.attributes.items()}
    return {name: value for name, value in held.items() if value.name}


def written(model):
    """The model with ONNX's operators, without attributes that say what holds anyway."""
    try:
        standard = of_onnx(model)
    except PytrtpluginsError as error:
        return str(error)
    opset = standard_opset(standard)
    for node in walk(standard.graph.node):
        name = f"{node.domain}.{node.op_type}"
        schema = SCHEMAS[name] if name in SCHEMAS else onnx.defs.get_schema(node.op_type, opset, node.domain)
        usual = {value.name: onnx.helper.get_attribute_value(value) for value in defaults(schema).values()}
        kept = [item for item in node.attribute if onnx.helper.get_attribute_value(item) != usual.get(item.name)]
        del node.attribute[:]
        node.attribute.extend(kept)
    return standard.SerializeToString(deterministic=True)


@pytest.mark.parametrize("operator", DRAWN)
def test_a_default_that_is_written_changes_nothing(operator):
    for form in itertools.islice(draw_forms(0, [operator]), FORMS):
        model = form.model
        node = next(node for node in model.graph.node if node.name == "the_node")
        before, given = written(model), {attribute.name for attribute in node.attribute}
        for name, value in defaults(SCHEMAS[operator]).items():
            if name not in given:
                changed = onnx.ModelProto()
                changed.CopyFrom(model)
                next(node for node in changed.graph.node if node.name == "the_node").attribute.append(value)
                assert written(changed) == before, (form.name, name)
