import numpy as np
import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.passes.codes import quantize_weights
from pytrtplugins.passes.rounding import AdaptiveRounding, _round_weights, round_codes


def inputs(count, seed=0):
    """Rows of inputs that go together, as neighbouring pixels do."""
    random = np.random.default_rng(seed)
    return random.normal(size=(500, 4)) @ random.normal(size=(4, count)) + 0.1 * random.normal(size=(500, count))


@pytest.mark.parametrize("levels", [64, 127])
def test_results_change_less_than_by_rounding_to_nearest(levels):
    x, steps = inputs(100), np.random.default_rng(1).uniform(-levels, levels, size=(8, 100))
    codes = round_codes(steps, x.T @ x, levels)
    np.testing.assert_array_equal(codes, np.rint(codes))
    assert np.abs(codes).max() <= levels
    assert ((x @ (steps - codes).T) ** 2).sum() < 0.5 * ((x @ (steps - np.rint(steps)).T) ** 2).sum()


def test_inputs_that_have_nothing_in_common_are_rounded_to_nearest():
    steps = np.random.default_rng(1).uniform(-64, 64, size=(8, 70))
    np.testing.assert_array_equal(round_codes(steps, np.eye(70), 64), np.rint(steps))


def test_the_best_of_two_weights_by_trying_all():
    gram = np.array([[2.0, 1.9], [1.9, 2.0]])
    steps = np.array([[3.4, -2.6]])
    tried = [np.array([[a, b]]) for a in range(-8, 9) for b in range(-8, 9)]
    best = min(tried, key=lambda codes: float(((steps - codes) @ gram * (steps - codes)).sum()))
    np.testing.assert_array_equal(round_codes(steps, gram, 8), best)


def test_no_code_is_beyond_the_largest():
    """What is carried on to weights near the end of the range would take some of them over it."""
    x, steps = inputs(100), np.random.default_rng(1).uniform(3.3, 3.9, size=(8, 100))
    codes = round_codes(steps, x.T @ x, 4)
    assert np.abs(codes).max() == np.abs(round_codes(-steps, x.T @ x, 4)).max() == 4


@pytest.mark.parametrize("groups", [1, 6])
def test_quantize_finds_the_same_codes_and_scales_again(groups):
    weights = (
        np.random.default_rng(2).normal(size=(6, 12 // groups, 3, 3)).astype(np.float32)[:, : 1 if groups > 1 else 12]
    )
    size = weights[0].size
    x = inputs(size)
    gram = np.broadcast_to(x.T @ x, (groups, size, size))
    rounded = _round_weights(weights, gram, 64)
    codes, scales = quantize_weights(rounded, 0, 64)
    np.testing.assert_allclose(scales, quantize_weights(weights, 0, 64)[1], rtol=2e-7)
    np.testing.assert_allclose(codes * scales.reshape(-1, 1, 1, 1), rounded, rtol=3e-7)
    assert (rounded != weights).any()


def test_inputs_never_seen_are_rounded_to_nearest():
    steps = np.array([[1.4, -7.6, 8.0]])
    np.testing.assert_array_equal(round_codes(steps, np.zeros((3, 3)), 8), [[1, -8, 8]])


@pytest.mark.parametrize("gram", [np.eye(4), np.eye(2), np.ones((3, 2)), np.ones((3, 4))])
def test_a_gram_matrix_of_another_layer_is_refused(gram):
    with pytest.raises(UsageError, match="expected shape"):
        round_codes(np.ones((2, 3)), gram, 127)


def test_a_depthwise_convolutions_channels_have_matrices_of_their_own():
    weights = np.random.default_rng(3).normal(size=(2, 1, 2, 2)).astype(np.float32)
    grams = np.stack([x.T @ x for x in (inputs(4, 1), inputs(4, 2))])
    found = _round_weights(weights, grams, 64)
    assert (found.shape, found.dtype) == (weights.shape, np.float32)
    for channel in range(2):
        alone = _round_weights(weights[channel : channel + 1], grams[channel : channel + 1], 64)
        np.testing.assert_array_equal(found[channel], alone[0])


def test_a_layer_with_a_gram_matrix_is_changed_and_others_are_not():
    from pytrtplugins.passes import to_ir, to_proto

    from . import nets

    net = nets.Net()
    net.conv(net.conv("data", "a", leaky=False), "b", leaky=False)
    network = net.model("b")
    before = nets.constants(network)
    size = before["a_w"][0].size
    x = inputs(size)
    model = to_ir(network)
    assert AdaptiveRounding({"a": (x.T @ x)[None]}, 64)(model).modified
    after = nets.constants(to_proto(model))
    assert (after["a_w"] != before["a_w"]).any()
    np.testing.assert_array_equal(after["b_w"], before["b_w"])


def test_layers_without_a_gram_matrix_are_left_alone():
    from pytrtplugins.passes import to_ir

    from .nets import Net

    net = Net()
    model = to_ir(net.model(net.conv("data", "a", leaky=False)))
    assert not AdaptiveRounding({})(model).modified


def one_at_a_time(steps, gram, levels):
    """Optimal Brain Compression as its paper has it: the inverse is updated after every code, and no blocks are made."""
    rest, damped = steps.astype(np.float64), gram.astype(np.float64).copy()
    damped += np.eye(len(gram)) * (0.01 * np.trace(damped) / len(gram) if damped.any() else 1)
    inverse, codes = np.linalg.inv(damped), np.zeros_like(rest)
    for k in sorted(range(len(gram)), key=lambda k: -gram[k, k]):
        whole = np.clip(np.rint(rest[:, k]), -levels, levels)
        codes[:, k] = np.where(np.abs(steps[:, k]) == levels, steps[:, k], whole)
        rest -= np.outer((rest[:, k] - codes[:, k]) / inverse[k, k], inverse[k])
        inverse = inverse - np.outer(inverse[:, k], inverse[k]) / inverse[k, k]
    return codes


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 130])
@pytest.mark.parametrize("levels", [8, 127])
def test_codes_are_those_of_the_method_without_blocks(count, levels):
    x = inputs(count, seed=count) * np.random.default_rng(3).uniform(0.2, 3, count)
    steps = np.random.default_rng(4).uniform(-levels, levels, size=(5, count))
    steps[0, 0], steps[1, -1] = levels, -levels
    np.testing.assert_array_equal(round_codes(steps, x.T @ x, levels), one_at_a_time(steps, x.T @ x, levels))


def test_each_filter_of_a_depthwise_convolution_has_its_own_gram_matrix():
    random = np.random.default_rng(5)
    weights = random.normal(size=(3, 1, 3, 3)).astype(np.float32)
    gram = np.stack([x.T @ x for x in (inputs(9, seed) for seed in range(3))])
    scales = np.abs(weights).max(axis=(1, 2, 3)) / np.float32(20)
    for k in range(3):
        steps = weights[k].reshape(1, 9) / scales[k]
        expected = one_at_a_time(np.where(np.abs(steps) > 20 - 1e-3, np.sign(steps) * 20, steps), gram[k], 20)
        np.testing.assert_allclose(_round_weights(weights, gram, 20)[k].ravel() / scales[k], expected[0], atol=1e-4)


def test_only_convolutions_with_a_gram_matrix_and_constant_weights_change():
    from pytrtplugins.passes import to_ir, to_proto

    from .nets import Net, constants

    net = Net(channels=4)
    a = net.conv("data", "a", leaky=False)
    b = net.conv(a, "b", leaky=False)
    net.channels["b_w"] = 4
    net.add("Neg", ["b_w"], "computed")
    net.add("Conv", [b, "computed"], "c", pads=[1] * 4)
    net.conv("c", "d", leaky=False)
    model = net.model("d")
    x = inputs(36)
    grams = dict.fromkeys("acd", (x.T @ x)[None])
    ir_model = to_ir(model)
    assert AdaptiveRounding(grams, levels=10)(ir_model).modified
    before, after = constants(model), constants(to_proto(ir_model))
    assert {name for name in before if (before[name] != after[name]).any()} == {"a_w", "d_w"}
    assert after["a_w"].dtype == np.float32
    np.testing.assert_array_equal(after["a_w"], _round_weights(before["a_w"], grams["a"], 10))
    assert not AdaptiveRounding({"c": grams["c"]})(to_ir(model)).modified


def test_each_filter_of_a_dense_convolution_is_rounded_by_the_one_gram_matrix():
    weights = np.random.default_rng(6).normal(size=(3, 2, 2, 2)).astype(np.float32)
    x = inputs(8)
    gram = x.T @ x
    scales = np.abs(weights).max(axis=(1, 2, 3)) / np.float32(20)
    steps = weights.reshape(3, 8) / scales[:, None]
    expected = one_at_a_time(np.where(np.abs(steps) > 20 - 1e-3, np.sign(steps) * 20, steps), gram, 20)
    np.testing.assert_allclose(
        _round_weights(weights, gram[None], 20).reshape(3, 8) / scales[:, None], expected, atol=1e-4
    )


def test_codes_go_up_to_127_unless_it_is_told_otherwise():
    from pytrtplugins.passes import to_ir, to_proto

    from .nets import Net, constants

    net = Net()
    model = net.model(net.conv("data", "a", leaky=False))
    x = inputs(27)
    ir_model = to_ir(model)
    AdaptiveRounding({"a": (x.T @ x)[None]})(ir_model)
    found, before = constants(to_proto(ir_model))["a_w"], constants(model)["a_w"]
    np.testing.assert_array_equal(found, _round_weights(before, (x.T @ x)[None], 127))
