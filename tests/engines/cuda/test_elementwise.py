"""Rows of elementwise operators: both forms of each give what onnxruntime gives, and no operator with the trait is left out."""

import numpy as np
import pytest

from pytrtplugins.engines.cuda.elementwise import ELEMENTWISE
from pytrtplugins.model.operator_traits import Trait, operators
from pytrtplugins.passes import prepare
from tests.engines.cuda.host import run_on_host
from tests.engines.operators import literal, model_of

NEWER = {"BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Mish", "Gelu"}
OTHERS = {"And", "Identity", "Or", "Xor", "Not", "Where", "GeluTanh", "IsNaN", "QuickGelu", "Swish"} | {
    op for op in ELEMENTWISE if "Bitwise" in op
}
"""What passes remove, and what reads no fractions or onnxruntime lacks: test_operator_forms.py and test_pointwise.py have these."""


def test_operators_with_the_trait_have_a_row_or_rules_of_their_own():
    rules = {"BitShift", "Cast", "Clip", "IsInf", "Mean", "Mod"}
    assert (
        operators(Trait.UNARY) | operators(Trait.BROADCASTS)
        == (ELEMENTWISE.keys() - {"GeluTanh", "PRelu", "QuickGelu"}) | rules
    )


@pytest.mark.parametrize("op", sorted(ELEMENTWISE.keys() - OTHERS))
def test_a_generated_kernel_and_functions_of_arrays_give_the_same(op):
    x = np.linspace(1.1, 3, 12, dtype=np.float32) if op == "Acosh" else np.linspace(-0.9, 0.9, 12, dtype=np.float32)
    x = abs(x) + 0.1 if op in ("Log", "Pow", "Sqrt") else x
    count = 2 if op in operators(Trait.BROADCASTS) | {"PRelu"} else 1
    model = model_of(op, [x, x[::-1].copy()][:count], {}, 1, 20 if op in NEWER else 17)
    (wanted,) = literal(model, {"x0": x})
    for disable, kind in (((), "pointwise"), (("pointwise",), "generic")):
        found, execution = run_on_host(prepare(model), {"x0": x}, disable=disable)
        assert [step.kind for step in execution.plan.steps] == [kind]
        np.testing.assert_allclose(found["y0"], wanted, rtol=2e-6, atol=1e-7)
