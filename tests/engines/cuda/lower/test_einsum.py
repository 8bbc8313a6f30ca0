"""Einsum as products, sums and moves: the numbers of onnxruntime in each form, and that all of it is part of a CUDA graph."""

import numpy as np
import pytest
from onnx import helper

from pytrtplugins.engines.cuda.lower.pipeline import lower
from pytrtplugins.passes import prepare
from pytrtplugins.tensor import DType
from tests.engines.cuda.host import run_on_host
from tests.engines.model_parts import F, info, model, node
from tests.engines.operators import literal

SIZES = dict(zip("abcdefhijklnoqwA", (2, 2, 3, 6, 5, 4, 3, 4, 5, 7, 2, 2, 3, 3, 4, 1), strict=True))
EQUATIONS = (
    *("bhid,bhjd->bhij", "bhij,bhjd->bhid", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "hbij,bhjd->bihd", "bhid,bhjd->bhji"),
    *("ij,jk", "ij,jk->ki", "ij,kj->ik", "ji,jk->ik", "bid,bjd->bij", "bchw,cd->bdhw", "oc,bchw->bohw", "ijk,jl->ikl"),
    *("bijc,bijd->bcd", "bhid,dhj->bij", "bhid,hdj->bihj", "bhi,bdj->bhidj", "bqk,kho->bqho", "abij,acij->abc"),
    *("ij->ji", "ij->i", "ij->", "ij", "ji", "ij,ij->", "i,i->", "i,j->ij", "ab,ab->ab", "bij,bij->b", "b,bij->bij"),
    *("bhd,bhd->bh", "bi,i->b", "i,bi->b", "ijk,il->l", "Aij,bjk->Abik", "bAj,bjk->bAk", "Ai,Ai->i", "biA,bAj->bij"),
    *("ii->i", "ii->", "ii", "bii->bi", "iijj->ij", "iii->i", "bii,bi->b", "iji->j"),
    *("ij,jk,kl->il", "bi,bj,bk->bijk", "ijk,ijk,i->k", "bi,ij,j->b", "ij,ij,ij,ij->i"),
)
ELLIPSES = {
    "...ij,...jk->...ik": [(2, 3), (2, 3)],
    "...ij,jk->...ik": [(2, 3), ()],
    "...ij,...jk": [(2, 1), (1, 3)],
    "i...,i...": [(2, 3), (2, 3)],
    "...i->...": [(2,)],
    "b...d,dk->b...k": [(2, 3), ()],
    "i...j->j...i": [(2, 3)],
    " b ... d , d k -> b ... k ": [(3,), ()],
    "...ii->...i": [(2,)],
}


def network(equation, ellipses=(), symbolic=False, constants=(), sizes=SIZES):
    """A model of one Einsum, and its inputs; letters are free dims where ``symbolic``."""
    rng, arrays, infos = np.random.default_rng(0), {}, []
    for place, term in enumerate(equation.replace(" ", "").split("->")[0].split(",")):
        before, dots, behind = term.partition("...")
        inner = ellipses[place] if dots else ()
        dims = [*(sizes[letter] for letter in before), *inner, *(sizes[letter] for letter in behind)]
        arrays[f"x{place}"] = rng.standard_normal(dims).astype(np.float32)
        infos.append(info(f"x{place}", F, [*before, *inner, *behind] if symbolic else dims))
    held = {f"x{place}": arrays.pop(f"x{place}") for place in constants}
    infos = [each for each in infos if each.name in arrays]
    result = helper.make_empty_tensor_value_info("y")
    return model(
        [node("Einsum", ["x0", "x1", "x2", "x3"][: len(arrays) + len(held)], ["y"], equation=equation)],
        infos,
        [result],
        held,
    ), arrays


def check(equation, ellipses=(), symbolic=False, constants=(), float_type=DType.FLOAT32, sizes=()):
    """That the numbers are onnxruntime's, and all steps are captured; the steps' kinds and operators."""
    made, inputs = network(equation, ellipses, symbolic, constants, SIZES | dict(sizes))
    wanted = literal(made, inputs)[0]
    found, execution = run_on_host(prepare(made), inputs, float_type)
    assert found["y"].shape == wanted.shape
    room = 1e-4 if float_type is DType.FLOAT32 else 2e-2
    np.testing.assert_allclose(found["y"], wanted, rtol=room, atol=room / 10)
    assert all(step.capturable for step in execution.plan.steps)
    assert "Einsum" not in {step.op for step in execution.plan.steps}
    return [step.op for step in execution.plan.steps]


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "free"])
@pytest.mark.parametrize("equation", EQUATIONS)
def test_every_equation_is_written_with_kernels_of_this_engine(equation, symbolic):
    check(equation, symbolic=symbolic)


@pytest.mark.parametrize("symbolic", [False, True], ids=["known", "free"])
@pytest.mark.parametrize(("equation", "inner"), list(ELLIPSES.items()))
def test_an_ellipsis_stands_for_the_axes_of_each_operand(equation, inner, symbolic):
    check(equation, inner, symbolic)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("equation", [equation for equation in EQUATIONS if "," in equation])
def test_an_operand_may_be_a_constant(equation, place):
    check(equation, constants=[place])


@pytest.mark.parametrize("equation", ["bhid,bhjd->bhij", "ij,jk,kl->il", "bhd,bhd->bh", "bqk,kho->bqho"])
def test_products_in_half(equation):
    check(equation, float_type=DType.FLOAT16)
    check(equation, float_type=DType.FLOAT16, constants=[1])


def test_factors_are_read_as_they_lie():
    assert check("bqhd,bkhd->bhqk") == ["MatMul"]
    assert check("ij,kj->ki") == ["MatMul"]
    assert check("bchw,cd->bhwd") == ["MatMul"]
    assert check("bqhd,bkhd->bhqk", sizes={"b": 5, "h": 5}) == ["Move", "Move", "MatMul"]  # not in five calls


def test_factors_are_converted_once_and_read_as_they_lie():
    steps = check("bhid,bhjd->bhij", float_type=DType.FLOAT16)
    assert steps == ["Reformat", "Reformat", "MatMul", "Reformat"]


def test_weights_become_the_convolution_of_rows():
    assert check("bid,dj->bij", constants=[1])[-1] == "Conv"
    assert check("jd,bid->bij", constants=[0])[-1] == "Conv"
    assert check("bid,hdj->bihj", constants=[1])[-1] == "Conv"


def attention(first, second, dims, bias=None):
    """Softmax of a product of q and k, and its product with v."""
    names = ["scores", "biased"] if bias is not None else ["scores"]
    nodes = [
        node("Einsum", ["q", "k"], ["scores"], equation=first),
        node("Softmax", names[-1:], ["weights"], axis=-1),
        node("Einsum", ["weights", "v"], ["y"], equation=second),
    ]
    if bias is not None:
        nodes.insert(1, node("Add", ["scores", "bias"], ["biased"]))
    rng = np.random.default_rng(1)
    inputs = {name: rng.standard_normal(dims).astype(np.float32) for name in "qkv"}
    infos = [info(name, F, ["N", *dims[1:]]) for name in "qkv"]
    results = [helper.make_empty_tensor_value_info("y")]
    constants = {} if bias is None else {"bias": rng.standard_normal(bias).astype(np.float32)}
    return model(nodes, infos, results, constants), inputs


@pytest.mark.parametrize("bias", [None, (3, 5, 5), (1, 1, 5, 5)])
@pytest.mark.parametrize(
    ("first", "second", "dims"),
    [
        ("bhid,bhjd->bhij", "bhij,bhjd->bhid", (2, 3, 5, 8)),
        ("bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", (2, 5, 3, 8)),
        ("bhid,bhjd->bhij", "bhij,bhjd->bihd", (2, 3, 5, 8)),
        ("bghid,bghjd->bghij", "bghij,bghjd->bghid", (2, 4, 3, 5, 8)),
        ("bgihd,bgjhd->bghij", "bghij,bgjhd->bgihd", (2, 4, 5, 3, 8)),
        ("...qhd,...khd->...hqk", "...hqk,...khd->...qhd", (2, 5, 3, 8)),
    ],
)
def test_attention_written_with_einsum_is_one_step(first, second, dims, bias):
    made, inputs = attention(first, second, dims, bias)
    wanted = literal(made, inputs)[0]
    found, execution = run_on_host(prepare(made), inputs)
    np.testing.assert_allclose(found["y"], wanted, rtol=1e-5, atol=1e-6)
    assert [step.kind for step in execution.plan.steps] == ["attention"]


@pytest.mark.parametrize("bias", [(2, 1, 3, 5, 5), (1, 4, 3, 5, 5), (4, 1, 5, 5)])
def test_what_is_added_to_windows_repeats_for_each_image(bias):
    made, inputs = attention("bghid,bghjd->bghij", "bghij,bghjd->bghid", (2, 4, 3, 5, 8), bias)
    found, execution = run_on_host(prepare(made), inputs)
    np.testing.assert_allclose(found["y"], literal(made, inputs)[0], rtol=1e-5, atol=1e-6)
    assert ("attention" in {step.kind for step in execution.plan.steps}) == (bias[0] != 2)
    assert all(step.capturable for step in execution.plan.steps)


def test_other_types_stay():
    made, _ = network("ij,jk->ik")
    for value in made.graph.input:
        value.type.tensor_type.elem_type = 11
    assert [each.op_type for each in lower(prepare(made)).graph] == ["Einsum"]
