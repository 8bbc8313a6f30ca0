"""What the sections of a cfg mean: dims, fields and parameters worked out by hand from darknet's sources."""

import dataclasses

import pytest

from darknet2caffe import read_network
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError

NET = "[net]\nwidth=16\nheight=8\nchannels=3\n"
MAP = (3, 8, 16)  # dims of its input
EIGHT = "[conv]\nfilters=8\n"  # dims (8, 8, 16)
SMALL = "[net]\nwidth={}\nheight={}\nchannels={}\n"


def last(layers, net=NET, dialect="pjreddie"):
    return read_network(parse_cfg(net + layers), dialect=dialect).layers[-1]


def own_fields(layer):
    """Fields of this type of layer, those of every layer left out but for what has become of the map."""
    common = {"index", "line", "inputs", "input_dims", "dims", "plugin"}
    return {item.name: getattr(layer, item.name) for item in dataclasses.fields(layer) if item.name not in common}


CONV = {"filters": 1, "size": 1, "stride": 1, "padding": 0, "groups": 1, "activation": "logistic",
        "batch_normalize": False, "flipped": False}  # fmt: skip
DECONV = {key: value for key, value in CONV.items() if key not in ("groups", "flipped")}
LOCAL = {"filters": 1, "size": 1, "stride": 1, "padding": 0, "activation": "logistic"}
POOL = {"size": 1, "stride": 1, "padding": 0, "pads": (0, 0, 0, 0)}
LRN = {"size": 5, "alpha": 0.0001, "beta": 0.75, "kappa": 1.0}
UP = {"stride": 2, "reverse": False, "scale": 1.0}
ONE = "[conv]\nactivation=linear\n"  # dims (1, 8, 16)


@pytest.mark.parametrize(
    ("layers", "dims", "fields"),
    [
        ("[conv]\n", (1, 8, 16), CONV),
        ("[conv]\nfilters=6\nsize=3\nstride=2\npad=1\ngroups=3\nactivation=elu\nbatch_normalize=1\n", (6, 4, 8),
         CONV | {"filters": 6, "size": 3, "stride": 2, "padding": 1, "groups": 3, "activation": "elu", "batch_normalize": True}),
        ("[conv]\nsize=5\npadding=2\n", (1, 8, 16), CONV | {"size": 5, "padding": 2}),
        ("[conv]\nsize=4\npad=1\npadding=7\n", (1, 9, 17), CONV | {"size": 4, "padding": 2}),
        ("[conv]\nsize=8\n", (1, 1, 9), CONV | {"size": 8}),
        ("[conv]\nflipped=1\n", (1, 8, 16), CONV | {"flipped": True}),
        ("[deconv]\n", (1, 8, 16), DECONV),
        ("[deconv]\nfilters=4\nsize=4\nstride=2\npadding=1\nbatch_normalize=1\n", (4, 16, 32),
         DECONV | {"filters": 4, "size": 4, "stride": 2, "padding": 1, "batch_normalize": True}),
        ("[deconv]\nsize=3\npadding=4\n", (1, 2, 10), DECONV | {"size": 3, "padding": 4}),
        ("[local]\n", (1, 8, 16), LOCAL),
        ("[local]\nfilters=2\nsize=3\nstride=2\n", (2, 3, 7), LOCAL | {"filters": 2, "size": 3, "stride": 2}),
        ("[local]\nsize=3\npad=1\n", (1, 8, 16), LOCAL | {"size": 3, "padding": 1}),
        ("[connected]\n", (1, 1, 1), {"output": 1, "activation": "logistic", "batch_normalize": False}),
        ("[connected]\noutput=7\nactivation=relu\nbatch_normalize=1\n", (7, 1, 1),
         {"output": 7, "activation": "relu", "batch_normalize": True}),
        ("[maxpool]\n", MAP, POOL),
        ("[maxpool]\nstride=2\n", (3, 4, 8), POOL | {"size": 2, "stride": 2, "padding": 1}),
        ("[maxpool]\nsize=2\n", MAP, POOL | {"size": 2, "padding": 1, "pads": (0, 0, 1, 1)}),
        ("[maxpool]\nsize=3\nstride=2\n", (3, 4, 8), POOL | {"size": 3, "stride": 2, "padding": 2, "pads": (1, 1, 0, 0)}),
        ("[maxpool]\nsize=5\n", MAP, POOL | {"size": 5, "padding": 4, "pads": (2, 2, 2, 2)}),
        ("[maxpool]\nsize=3\nstride=3\npadding=0\n", (3, 2, 5), POOL | {"size": 3, "stride": 3}),
        ("[maxpool]\nsize=3\npadding=4\n", (3, 10, 18), POOL | {"size": 3, "padding": 4, "pads": (2, 2, 2, 2)}),
        ("[avgpool]\n", (3, 1, 1), {}),
        ("[upsample]\n", (3, 16, 32), UP),
        ("[upsample]\nstride=3\nscale=0.5\n", (3, 24, 48), UP | {"stride": 3, "scale": 0.5}),
        ("[upsample]\nstride=1\n", MAP, UP | {"stride": 1}),
        ("[upsample]\nstride=-1\n", MAP, UP | {"stride": 1, "reverse": True}),
        ("[upsample]\nstride=-4\n", (3, 2, 4), UP | {"stride": 4, "reverse": True}),
        ("[crop]\n", (3, 1, 1), {"top": 3, "left": 7, "noadjust": False}),
        ("[crop]\ncrop_height=4\ncrop_width=7\nnoadjust=1\n", (3, 4, 7), {"top": 2, "left": 4, "noadjust": True}),
        ("[crop]\ncrop_height=8\ncrop_width=16\n", MAP, {"top": 0, "left": 0, "noadjust": False}),
        (EIGHT + "[dropout]\n", (8, 8, 16), {"is_map": True}),
        ("[connected]\noutput=5\n[softmax]\n[dropout]\n", (5, 1, 1), {"is_map": False}),
        ("[reorg]\n", MAP, {}),
        (EIGHT + "[reorg]\nstride=2\n", (32, 4, 8), {}),
        ("[conv]\nfilters=8\n[reorg]\nstride=2\nreverse=1\n", (2, 16, 32), {}),
        ("[reorg]\nflatten=1\nstride=2\n", (12, 4, 8), {"reverse": False}),
        (EIGHT + "[reorg]\nflatten=1\nstride=2\nreverse=1\n", (2, 16, 32), {"reverse": True}),
        ("[reorg]\nflatten=1\n", MAP, {"reverse": False}),
        ("[reorg]\nextra=1\n", (385, 1, 1), {"extra": 1, "is_map": False}),
        ("[lrn]\n", MAP, LRN),
        ("[normalization]\nsize=7\nalpha=2\nbeta=3\nkappa=4\n", MAP, {"size": 7, "alpha": 2, "beta": 3, "kappa": 4}),
        ("[batchnorm]\n", MAP, {"has_biases": False}),
        ("[l2norm]\n", MAP, {}),
        ("[activation]\n", MAP, {"activation": "linear", "is_map": True}),
        ("[logistic]\n", MAP, {"activation": "logistic", "is_map": True}),
        ("[softmax]\n", MAP, {"groups": 1, "temperature": 1.0, "tree": (), "is_map": False}),
        ("[softmax]\ngroups=3\ntemperature=0.1\n", MAP, {"groups": 3, "temperature": 0.1, "tree": (), "is_map": False}),
        ("[connected]\noutput=147\n[detection]\n", (147, 1, 1),
         {"classes": 1, "coords": 1, "num": 1, "side": 7, "softmax": False, "sqrt": False, "is_map": False}),
        ("[connected]\noutput=52\n[detection]\nside=2\nclasses=3\ncoords=4\nnum=2\nsoftmax=1\nsqrt=1\n", (52, 1, 1),
         {"classes": 3, "coords": 4, "num": 2, "side": 2, "softmax": True, "sqrt": True, "is_map": False}),
        (EIGHT + "[route]\nlayers=-1\n", (8, 8, 16), {"groups": 1, "group_id": 0, "is_map": True}),
        (EIGHT + ONE + "[route]\nlayers=-1,0\n", (9, 8, 16), {"groups": 1, "group_id": 0, "is_map": True}),
        (EIGHT + "[maxpool]\nstride=2\n[route]\nlayers=-1,0\n", (1280, 1, 1), {"groups": 1, "group_id": 0, "is_map": False}),
        (EIGHT + "[conv]\nfilters=8\n[shortcut]\nfrom=0\n", (8, 8, 16), {"activation": "linear", "alpha": 1.0, "beta": 1.0}),
        (EIGHT + ONE + "[shortcut]\nfrom=0\nalpha=2\nbeta=3\nactivation=relu\n", (1, 8, 16),
         {"activation": "relu", "alpha": 2.0, "beta": 3.0}),
    ],
)  # fmt: skip
def test_a_section_has_these_dims_and_fields(layers, dims, fields):
    layer = last(layers)
    assert layer.dims == dims
    assert own_fields(layer) == {"is_map": True} | fields


@pytest.mark.parametrize(
    ("layers", "dims", "fields"),
    [
        (EIGHT + "[route]\nlayers=-1\ngroups=4\ngroup_id=3\n", (2, 8, 16), {"groups": 4, "group_id": 3, "is_map": True}),
        (EIGHT + ONE + "[conv]\nfilters=8\n[shortcut]\nfrom=0,1\n", (8, 8, 16), {"activation": "linear", "alpha": 1.0, "beta": 1.0}),
        (EIGHT + "[avgpool]\n[scale_channels]\nfrom=0\n", (8, 8, 16), {"scale_wh": False, "activation": "linear"}),
        (EIGHT + ONE + "[scale_channels]\nfrom=0\nscale_wh=1\n", (8, 8, 16), {"scale_wh": True, "activation": "linear"}),
        (EIGHT + EIGHT + "[sam]\nfrom=0\n", (8, 8, 16), {"activation": "linear"}),
        ("[reorg3d]\nstride=2\n", (12, 4, 8), {"stride": 2}),
        ("[reorg3d]\n", MAP, {"stride": 1}),
        ("[batchnorm]\n", MAP, {"has_biases": True}),
        ("[conv]\nstride=2\n", (1, 4, 8), CONV | {"stride": 2}),
    ],
)  # fmt: skip
def test_a_section_of_the_fork_has_these_dims_and_fields(layers, dims, fields):
    layer = last(layers, dialect="alexeyab")
    assert layer.dims == dims
    assert own_fields(layer) == {"is_map": True} | fields


STATISTICS = {"scales": (6,), "rolling_mean": (6,), "rolling_variance": (6,)}


@pytest.mark.parametrize(
    ("layers", "parameters", "fan_in", "bflops"),
    [
        ("[conv]\nfilters=6\nsize=3\npad=1\ngroups=3\n", {"biases": (6,), "weights": (6, 1, 3, 3)}, 9, 2 * 6 * 9 * 128 / 1e9),
        ("[conv]\nfilters=6\nbatch_normalize=1\n", {"biases": (6,), **STATISTICS, "weights": (6, 3, 1, 1)}, 3, 2 * 6 * 3 * 128 / 1e9),
        ("[deconv]\nfilters=6\nsize=4\nstride=2\nbatch_normalize=1\n", {"biases": (6,), **STATISTICS, "weights": (3, 6, 4, 4)}, 12, 0),
        ("[deconv]\nsize=2\nstride=4\n", {"biases": (1,), "weights": (3, 1, 2, 2)}, 3, 0),
        ("[local]\nfilters=2\nsize=3\nstride=2\n", {"biases": (2, 3, 7), "weights": (21, 2, 27)}, 27, 0),
        ("[connected]\noutput=6\nbatch_normalize=1\n", {"biases": (6,), "weights": (6, 384), **STATISTICS}, 384, 0),
        ("[batchnorm]\n", dict.fromkeys(STATISTICS, (3,)), 0, 0),
        ("[maxpool]\n", {}, 0, 0),
    ],
)  # fmt: skip
def test_a_section_has_these_parameters_in_this_order(layers, parameters, fan_in, bflops):
    layer = last(layers)
    assert list(layer.parameters) == list(parameters.items())
    assert (layer.fan_in, layer.bflops) == (fan_in, pytest.approx(bflops))


@pytest.mark.parametrize(
    ("layers", "head", "is_map", "identity", "has_output"),
    [
        ("[conv]\n", False, True, False, True),
        ("[activation]\n", False, True, True, True),
        ("[activation]\nactivation=relu\n", False, True, False, True),
        ("[softmax]\n", True, False, False, True),
        ("[conv]\n[cost]\n", False, False, True, False),
        ("[connected]\noutput=147\n[detection]\n", True, False, True, True),
        ("[connected]\noutput=147\n[detection]\nsoftmax=1\n", True, False, False, True),
        ("[connected]\noutput=98\n[detection]\nsoftmax=1\nclasses=0\n", True, False, True, True),
        ("[reorg]\nextra=3\n", False, False, False, True),
        ("[dropout]\n", False, True, True, True),
        ("[conv]\n[route]\nlayers=-1\n", False, True, True, True),
        ("[conv]\n[conv]\n[route]\nlayers=-1,-2\n", False, True, False, True),
        ("[conv]\nfilters=25\n[region]\n", True, True, False, True),
        ("[conv]\nfilters=25\n[yolo]\n", True, True, False, True),
        ("[reorg]\nflatten=1\n", False, True, False, True),
        ("[maxpool]\nstride=2\n[route]\nlayers=-1,0\n", False, False, False, True),
        ("[softmax]\n[route]\nlayers=-1\n", False, False, True, True),
        ("[softmax]\n[activation]\n", False, False, True, True),
        ("[softmax]\n[dropout]\n", False, False, True, True),
    ],
)
def test_what_a_layer_is_for_the_layers_around_it(layers, head, is_map, identity, has_output):
    layer = last("[conv]\nfilters=3\n" + layers)
    assert (layer.is_head, layer.is_map, layer.is_identity, layer.has_output) == (head, is_map, identity, has_output)
    assert getattr(layer, "is_flat", False) == (layer.type == "route" and not is_map and not identity)


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (1, [[0, 0, 0, 0], [-1, 1, 0, 0], [-1, 0, 1, 0], [-1, 0, 0, 1]]),
        (2, [[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 1, 1], [0, -1, 0, 1]]),
        (3, [[1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1], [0, -1, 1, 1]]),
        (5, [[1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1], [0, 1, 0, 1]]),
    ],
)
def test_the_window_of_a_normalization_is_darknets(size, rows):
    """src/normalization_layer.c: channels below ``size / 2``, then minus ``k - (size - 1) / 2 - 1``, plus ``k + size / 2``."""
    assert last(f"[lrn]\nsize={size}\n", SMALL.format(1, 1, 4)).window().tolist() == rows


@pytest.mark.parametrize(
    ("layers", "net", "accepted"),
    [
        ("[connected]\noutput={}\n", SMALL.format(1, 1, 1), 2**31 - 1),
        ("[conv]\nfilters={}\n", SMALL.format(1, 1, 1), 2**31 - 1),
        ("[local]\nfilters={}\nsize=3\n", NET, (2**31 - 1) // (3 * 9 * 6 * 14)),
    ],
)
def test_darknet_counts_to_the_largest_c_int(layers, net, accepted):
    assert last(layers.format(accepted), net).dims[0] == accepted
    with pytest.raises(CfgError):
        last(layers.format(accepted + 1), net)


def test_steps_of_a_shortcut_between_maps_of_different_sizes():
    text = "[conv]\n[maxpool]\nstride=2\n[shortcut]\nfrom={}\n"
    smaller = last(text.format(0))
    assert smaller.steps(smaller.input_dims[1]) == (2, 1)
    larger = last("[conv]\n[maxpool]\nstride=2\n[upsample]\nstride=2\n[shortcut]\nfrom=1\n")
    assert larger.steps(larger.input_dims[1]) == (1, 2)


@pytest.mark.parametrize(
    ("section", "key"), [("route", "layers"), ("shortcut", "from"), ("sam", "from"), ("scale_channels", "from")]
)
def test_numbers_of_layers_are_c_ints(section, key):
    for number, words in (
        (-(2**31), "means layer -2147483647, which is not before"),
        (-(2**31) - 1, "from -2,147,483,648"),
    ):
        with pytest.raises(CfgError, match=words):
            last(EIGHT + f"[{section}]\n{key}={number}\n", dialect="alexeyab")
