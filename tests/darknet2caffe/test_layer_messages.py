"""What is said of sections that cannot be converted, word for word: each number in it is one that the user can look up."""

import re

import pytest

from darknet2caffe import read_network
from darknet2caffe.cfg import parse_cfg
from pytrtplugins.errors import CfgError

NET = "[net]\nwidth=16\nheight=8\nchannels=3\n"

PJREDDIE = {  # the line that is named begins with >
    "[maxpool]\nsize=3\n>padding=5\n": "padding=5 is so large for size=3 that a window lies outside the map.",
    "[maxpool]\n>size=9\npadding=0\n": "size=9 is larger than the input: 8 values with 0 of padding.",
    "[upsample]\n>stride=-16\n": "stride=-16 sums blocks of 16 x 16, which do not tile the map of 16 x 8; darknet "
    "would read rows of another width.",
    "[crop]\n>crop_height=9\n": "a crop of 1 x 9 does not fit into 16 x 8 x 3.",
    ">[crop]\ncrop_width=17\n": "a crop of 17 x 1 does not fit into 16 x 8 x 3.",
    "[conv]\n>size=9\n": "size=9 is larger than the input: 8 values with 0 of padding.",
    "[deconv]\nsize=4\n>padding=6\n": "padding=6 leaves nothing of the output.",
    "[lrn]\n>size=0\n": "size=0: expected a number from 1 to 2,147,483,647.",
    "[lrn]\n>size=8\n": "size=8: half of it is more than the 3 channels, and darknet reads past them.",
    "[reorg]\nflatten=1\n>stride=3\n": "flatten=1 with stride=3: the output's shape has 270 values, the input 384.",
    "[reorg]\nflatten=1\n>stride=0\n": "stride=0: expected a number from 1 to 2,147,483,647.",
    "[reorg]\n>extra=-1\n": "extra=-1: expected a number from 0 to 2,147,483,647.",
    "[softmax]\n>temperature=-1\n": "temperature=-1.0 must be above 0.",
    "[conv]\n>groups=3\n": "groups=3 must divide the input's 3 channels and the 1 filters.",
    "[conv]\nfilters=2\n>groups=2\n": "groups=2 must divide the input's 3 channels and the 2 filters.",
    "[local]\nsize=2\n>pad=1\n": "size=2 stride=1 pad=1 on 16 x 8: darknet makes an output of 16 x 8 and fills it "
    "with windows of 17 x 9 places, so its values are mixed up.",
    "[local]\n>size=9\n": "size=9 is larger than the input: 8 values with 0 of padding.",
    "[conv]\n>filters=0\n": "filters=0: expected a number from 1 to 2,147,483,647.",
    "[conv]\n>size=0\n": "size=0: expected a number from 1 to 2,147,483,647.",
    "[conv]\n>stride=0\n": "stride=0: expected a number from 1 to 2,147,483,647.",
    "[conv]\n>filters=1000000000\nsize=3\n": "filters=1,000,000,000 of size 3 on 3 channels have 27,000,000,000 "
    "weights; darknet counts to 2,147,483,647.",
    ">[conv]\nfilters=100000000\n": "layer 0 has 12,800,000,000 outputs (16 x 8 x 100000000); darknet counts to "
    "2,147,483,647.",
    "[conv]\nfilters=4\n>groups=2\n": "groups=2 must divide the input's 3 channels and the 4 filters.",
    "[conv]\n>xnor=1\n": "xnor=1 is not supported.",
    "[maxpool]\nsize=3\nstride=1\n>padding=7\n": "padding=7 is so large for size=3 that a window lies outside the map.",
    "[maxpool]\n>size=0\n": "size=0: expected a number from 1 to 2,147,483,647.",
    "[conv]\n[maxpool]\nstride=2\n[route]\nlayers=0,1\n>[conv]\n": "layer 3 needs a map of channels, height and "
    "width, and darknet keeps none of layer 2 (route).",
    "[softmax]\n>[maxpool]\n": "layer 1 needs a map of channels, height and width, and darknet keeps none of layer 0 "
    "(softmax).",
    ">[dropout]\n": "a dropout cannot be the first layer: darknet shares its output with the layer before.",
    "[conv]\n[route]\n>layers=-1,\n": "layers=-1,: darknet counts the commas, and takes what stands behind the last "
    "number for 0.\nDo: remove the commas behind the last number.",
    "[conv]\n[route]\n>layers=-1 # the last, not the first\n": "layers=-1#thelast,notthefirst: darknet counts the "
    "commas, and takes what stands behind the last number for 0.\nDo: remove the commas behind the last number.",
    "[conv]\nsize=1\n>padding=1\nmosaic=1\n": "size=1 with stride=1 padding=1: pjreddie's CPU code reads the wrong "
    "values (it skips im2col), its cuDNN code the right ones, so there is no one answer.",
    "[cost]\n>[connected]\n": "layer 1 reads layer 0 (cost), which darknet leaves at zero when it predicts.",
    ">[cost]\n": "the network has no layer with an output.",
    "[conv]\n>[route]\n": "layers= is missing: a route names the layers that it reads.",
    "[conv]\n>[shortcut]\n": "from= must name one layer to add.",
    "[conv]\n[crop]\ncrop_width=3\ncrop_height=4\n[shortcut]\n>from=0\n": "width and height differ by different "
    "factors, on which darknet ends (layer 1: 3 x 4 x 1, layer 0: 16 x 8 x 1).",
    "[conv]\n[shortcut]\n>from=-1,-1\n": "from= must name one layer to add.",
    "[upsample]\n>stride=0\n": "stride=0 leaves nothing of the map.",
    "[upsample]\n>stride=-3\n": "stride=-3 sums blocks of 3 x 3, which do not tile the map of 16 x 8; darknet would "
    "read rows of another width.",
    ">[upsample]\nstride=60000\n": "layer 0 has 1,382,400,000,000 outputs (960000 x 480000 x 3); darknet counts to "
    "2,147,483,647.",
    ">[crop]\ncrop_width=70\n": "a crop of 70 x 1 does not fit into 16 x 8 x 3.",
    "[conv]\nsize=1\n>stride=2\n": "size=1 with stride=2 padding=0: pjreddie's CPU code reads the wrong values (it "
    "skips im2col), its cuDNN code the right ones, so there is no one answer.\nDo: convert with --dialect alexeyab, "
    "whose darknet convolves plainly.",
    "[conv]\n>flipped=1\ngroups=3\nfilters=3\n": "flipped=1 with groups: darknet transposes more weights than there "
    "are.",
    "[deconv]\nsize=1\n>padding=4\n": "padding=4 leaves nothing of the output.",
    "[local]\nsize=3\n>pad=2\n": "size=3 stride=1 pad=2 on 16 x 8: darknet makes an output of 16 x 8 and fills it "
    "with windows of 18 x 10 places, so its values are mixed up.",
    "[lrn]\n>size=10\n": "size=10: half of it is more than the 3 channels, and darknet reads past them.",
    "[detection]\n>side=2\n": "side=2 num=1 classes=1 coords=1 make 12 values, the layer before has 384.",
    "[softmax]\n>groups=5\n": "groups=5 must divide the input's values (16 x 8 x 3).",
    "[softmax]\n>temperature=0\n": "temperature=0.0 must be above 0.",
    "[softmax]\n>tree=a.tree\n": "tree=a.tree: there is no such file.\nDo: put it beside the .cfg, or write its "
    "whole path.",
    "[reorg]\nflatten=1\n>extra=4\n": "flatten=1 with extra: darknet copies more values than there are.",
    "[conv]\nfilters=8\n[region]\nclasses=3\n>anchors=1,2,3\n": "num=1 needs 2 anchor values, found 3.",
    "[conv]\nfilters=9\n[region]\nclasses=4\nsoftmax=1\n>background=11\n": "background=11: darknet would take its "
    "softmax over 4 + 11 values of a box that has 4 + 1 (src/region_layer.c, forward_region_layer).\nDo: set "
    "background to 0 or 1.",
    "[conv]\nfilters=8\n[yolo]\nclasses=3\n>mask=1\n": "mask=1: expected a number from 0 to 0.",
}

ALEXEYAB = {
    "[conv]\nfilters=8\n[route]\nlayers=-1\n>groups=3\n": "groups=3 must divide the channels of each input, which "
    "must be maps of one size (layer 0: 16 x 8 x 8).",
    "[conv]\nfilters=8\n[route]\nlayers=-1\ngroups=2\n>group_id=2\n": "group_id=2 is not below groups=2.",
    "[conv]\nfilters=8\n[maxpool]\nstride=2\n[route]\nlayers=-1,0\n>groups=2\n": "groups=2 must divide the channels "
    "of each input, which must be maps of one size (layer 1: 8 x 4 x 8, layer 0: 16 x 8 x 8).",
    "[conv]\nfilters=8\n[maxpool]\nstride=2\n[shortcut]\n>from=0\n": "maps of different sizes cannot be added (layer "
    "1: 8 x 4 x 8, layer 0: 16 x 8 x 8).",
    "[conv]\nfilters=8\n[conv]\nfilters=7\n>[scale_channels]\nfrom=0\n": "the factors (layer 1) are 16 x 8 x 7, "
    "expected 1 x 1 x 8.",
    "[conv]\nfilters=8\n[avgpool]\n>[scale_channels]\nfrom=0\nscale_wh=1\n": "the factors (layer 1) are 1 x 1 x 8, "
    "expected 16 x 8 x 1.",
    "[conv]\nfilters=8\n[conv]\nfilters=7\n>[sam]\nfrom=0\n": "layer 1 is 16 x 8 x 7, layer 0 16 x 8 x 8: not one "
    "shape.",
    "[conv]\nfilters=8\n[sam]\n>from=0,0\n": "from= must name one layer.",
    "[conv]\nfilters=8\n>[sam]\n": "from= must name one layer.",
    "[conv]\nfilters=8\n[reorg3d]\n>stride=3\n": "stride=3 must divide the map of 16 x 8.",
    "[conv]\nfilters=8\n[reorg3d]\n>stride=16\n": "stride=16 must divide the map of 16 x 8.",
    "[conv]\nfilters=8\n[reorg3d]\n>reverse=1\n": "reverse=1 is not supported: the fork reads the input in the "
    "output's shape.",
    ">[deconv]\n": "[deconv] is not a layer of AlexeyAB's darknet.\nDo: convert with --dialect pjreddie.",
    ">[l2norm]\n": "[l2norm] is not a layer of AlexeyAB's darknet.\nDo: convert with --dialect pjreddie.",
    "[conv]\n[conv]\nfilters=2\n[crop]\ncrop_width=4\ncrop_height=4\n[shortcut]\n>from=0\n": ""
    "maps of different sizes cannot be added (layer 2: 4 x 4 x 2, layer 0: 16 x 8 x 1).",
    "[conv]\nfilters=3\n[conv]\nfilters=2\n[route]\nlayers=0\n[shortcut]\n>from=1\n": "the fork would read past the "
    "added map (layer 2: 16 x 8 x 3, layer 1: 16 x 8 x 2).",
    "[conv]\nfilters=4\n[route]\nlayers=-1\n>groups=3\n": "groups=3 must divide the channels of each input, which "
    "must be maps of one size (layer 0: 16 x 8 x 4).",
    "[conv]\nfilters=4\n[route]\nlayers=-1\ngroups=2\n>group_id=2\n": "group_id=2 is not below groups=2.",
    "[conv]\nfilters=4\n[softmax]\n[route]\nlayers=-1,-1\n>groups=2\n": "groups=2 must divide the channels of each "
    "input, which must be maps of one size (layer 1: 16 x 8 x 4, layer 1: 16 x 8 x 4).",
    "[conv]\nfilters=2\n[conv]\nfilters=2\n>[scale_channels]\nfrom=0\n": "the factors (layer 1) are 16 x 8 x 2, "
    "expected 1 x 1 x 2.",
    "[conv]\nfilters=2\n[conv]\nfilters=3\n>[sam]\nfrom=0\n": "layer 1 is 16 x 8 x 3, layer 0 16 x 8 x 2: not one "
    "shape.",
    "[conv]\n[conv]\n[sam]\nfrom=0\n>activation=mish\n": "activation=mish: the fork gives 0 for it in [sam] "
    "(activate in src/activations.c).",
    "[conv]\n[shortcut]\nfrom=0\n>activation=hard_mish\n": "activation=hard_mish: the fork gives 0 for it in "
    "[shortcut] (activate in src/activations.c).",
    "[conv]\n[shortcut]\nfrom=0\n>weights_type=per_feature\n": "weights_type=per_feature is not supported.",
    "[reorg3d]\n>stride=3\n": "stride=3 must divide the map of 16 x 8.",
    "[reorg3d]\nstride=2\n>reverse=1\n": "reverse=1 is not supported: the fork reads the input in the output's shape.",
    "[conv]\nfilters=8\n[region]\nclasses=3\n>softmax=0\n": "coords=4 softmax=0: the fork's region is converted with "
    "4 coords and softmax=1 or a tree only; it leaves classes raw otherwise (src/region_layer.c, "
    "forward_region_layer).",
}


@pytest.mark.parametrize(
    ("dialect", "layers", "message"),
    [
        *((dialect, *case) for dialect in ("pjreddie", "auto") for case in PJREDDIE.items()),
        *(("alexeyab", *case) for case in ALEXEYAB.items()),
    ],
)
def test_a_refused_section_is_told_with_its_line_and_numbers(dialect, layers, message):
    line = (NET + layers.partition(">")[0]).count("\n") + 1
    with pytest.raises(CfgError) as caught:
        read_network(parse_cfg(NET + layers.replace(">", "")), dialect=dialect)
    assert re.sub(r"^<cfg>:(\d+): \[\w+\]: ", r"\1 ", str(caught.value)) == f"{line} {message}"
    assert caught.value.line == line


DARKNETS = [
    "linear",
    "leaky",
    "relu",
    "logistic",
    "loggy",
    "elu",
    "selu",
    "relie",
    "ramp",
    "tanh",
    "plse",
    "stair",
    "hardtan",
    "lhtan",
]
FORKS = ["mish", "swish", "relu6", "hard_mish", "gelu"]
SPECIAL = {  # what the fork computes in a layer, of those that need more than the value itself
    "[conv]\n": {"mish", "swish", "hard_mish"},
    "[connected]\noutput=3\n": set(),
    "[shortcut]\nfrom=0\n": {"mish", "swish"},
    "[activation]\n": set(),
}


@pytest.mark.parametrize("layer", SPECIAL)
@pytest.mark.parametrize("dialect", ["pjreddie", "alexeyab"])
def test_each_activation_is_taken_where_darknet_computes_it(layer, dialect):
    known = DARKNETS + (FORKS if dialect == "alexeyab" else [])
    for activation in [*DARKNETS, *FORKS, "odd"]:
        cfg = parse_cfg(f"{NET}[conv]\nfilters=3\n{layer}activation={activation}\n")
        if activation in known and (activation not in ("mish", "swish", "hard_mish") or activation in SPECIAL[layer]):
            assert read_network(cfg, dialect=dialect).layers[1].activation == activation
        else:
            with pytest.raises(CfgError) as caught:
                read_network(cfg, dialect=dialect)
            if activation not in known:
                of = (
                    "of AlexeyAB's darknet; pjreddie's takes it as relu"
                    if activation in FORKS
                    else "unknown or not supported"
                )
                expected = f"activation={activation} is {of} (supported in dialect {dialect}: {', '.join(known)})."
                assert expected in str(caught.value)
            else:
                assert f"activation={activation}: the fork gives 0 for it in" in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "dialect"),
    [
        ("[conv]\nflipped=1\n", "pjreddie"),
        ("[conv]\nfilters=3\ngroups=3\n", "pjreddie"),
        ("[conv]\nsize=8\n", "pjreddie"),
        ("[crop]\ncrop_width=16\ncrop_height=8\n", "pjreddie"),
        ("[lrn]\nsize=7\n", "pjreddie"),
        ("[upsample]\nstride=-8\n", "pjreddie"),
        ("[maxpool]\nsize=8\npadding=0\n", "pjreddie"),
        ("[conv]\nfilters=8\n[route]\nlayers=-1\ngroups=2\ngroup_id=1\n", "alexeyab"),
        ("[conv]\nfilters=8\n[region]\nclasses=3\nanchors=1,2\n", "pjreddie"),
        ("[conv]\nfilters=8\n[yolo]\nclasses=3\nmask=0\n", "pjreddie"),
        ("[conv]\n[shortcut]\nfrom=0\nactivation=swish\n", "alexeyab"),
    ],
)
def test_numbers_at_their_limits_are_taken(layers, dialect):
    assert read_network(parse_cfg(NET + layers), dialect=dialect).layers


@pytest.mark.parametrize(("side", "num", "classes", "coords"), [(8, 1, 4, 1), (4, 2, 20, 1), (8, 2, 0, 2)])
def test_a_detection_has_as_many_values_as_the_layer_before_and_is_no_map(side, num, classes, coords):
    layers = f"[detection]\nside={side}\nnum={num}\nclasses={classes}\ncoords={coords}\n"
    head = read_network(parse_cfg(NET + layers)).layers[0]
    assert (head.side, head.num, head.classes, head.coords, head.is_map) == (side, num, classes, coords, False)
