import dataclasses
import logging

import pytest

from darknet2caffe.cfg import Option, parse_cfg, read_cfg
from pytrtplugins.errors import CfgError

NET = "[net]\nwidth=4\n"


def test_comments_and_blanks_are_dropped_and_line_numbers_kept():
    cfg = parse_cfg("# a\r\n[ne t]\n; b\n\n width = 4 1 6\t\n  #c\n[conv]\r\nfilters=2")
    assert [(section.type, section.line) for section in cfg.sections] == [("net", 2), ("conv", 7)]
    assert [(o.key, o.value, o.line) for o in cfg.net.options] == [("width", "416", 5)]
    assert cfg.layers[0].integer("filters", 1) == 2


def test_a_comment_after_a_number_is_dropped_as_atoi_does():
    net = parse_cfg("[net]\nwidth=32 # wide\nanchors = 1.5, .5,3 ; three\n").net
    assert net.integer("width", 0) == 32
    assert net.numbers("anchors") == (1.5, 0.5, 3.0)


def test_absent_keys_have_their_default():
    net = parse_cfg(NET).net
    assert net.integer("height", 7) == 7
    assert net.number("angle", 0.5) == 0.5
    assert net.text("policy", "constant") == "constant"
    assert net.integers("steps", minimum=0) is None
    assert net.numbers("scales") is None


@pytest.mark.parametrize("value", ["x", "3x", "", "1.5", "0x10", "1e3", "--1", "٣", "9" * 30, "-1", "2147483648"])
def test_a_whole_number_that_is_none_is_refused_with_its_line(value):
    with pytest.raises(CfgError, match=r"some\.cfg:2") as caught:
        parse_cfg(f"[net]\nwidth={value}\n", "some.cfg").net.integer("width", 0)
    assert (caught.value.path, caught.value.line) == ("some.cfg", 2)


@pytest.mark.parametrize("value", ["x", "nan", "inf", "1e999", "1,,2", "1;2,x,#"])
def test_numbers_that_are_none_are_refused_with_their_line(value):
    section = parse_cfg(f"[net]\n\nanchors={value}\n").net
    if value == "1;2,x,#":  # darknet stops reading at the comment, so does this
        assert section.numbers("anchors") == (1.0,)
        return
    with pytest.raises(CfgError) as caught:
        section.numbers("anchors")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "no sections"),
        ("# only\n", 1, "no sections"),
        ("[convolutional]\n", 1, r"expected \[net\]"),
        ("width=3\n[net]\n", 1, "before the first section"),
        ("[net]\nwidth\n", 2, "key=value"),
        ("[net]\nwidth=\n", 2, "key=value"),
        ("[net]\n=3\n", 2, "key=value"),
        ("[net]\n[conv\n", 2, "expected a section"),
        ("[net]\n[]\n", 2, "expected a section"),
    ],
)
def test_text_that_is_no_cfg_is_refused_with_its_line(text, line, words):
    with pytest.raises(CfgError, match=words) as caught:
        parse_cfg(text)
    assert caught.value.line == line


def test_a_repeated_key_with_another_value_is_refused_when_it_is_read(caplog):
    with caplog.at_level(logging.WARNING):
        net = parse_cfg("[net]\nwidth=4\nwidth=5\nbatch=1\nbatch=64\n").net
    assert [record.args[1] for record in caplog.records] == [3, 5]
    with pytest.raises(CfgError, match="repeats") as caught:
        net.integer("width", 0)
    assert caught.value.line == 3
    assert "Do: " in str(caught.value)


def test_a_repeated_key_with_the_same_value_is_taken():
    assert parse_cfg("[net]\nwidth=4\nwidth=4\n").net.integer("width", 0) == 4


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(CfgError, match="No such file"):
        read_cfg(tmp_path / "absent.cfg")
    (tmp_path / "a.cfg").write_bytes(b"\0\1\2")
    with pytest.raises(CfgError, match="not a text file") as caught:
        read_cfg(tmp_path / "a.cfg")
    assert caught.value.path == str(tmp_path / "a.cfg")


def test_a_file_may_have_a_mebibyte_and_a_text_10_000_layers(tmp_path):
    path = tmp_path / "a.cfg"
    path.write_text(NET + "#" * (1024**2 - len(NET)))
    assert read_cfg(path).net.integer("width", 0) == 4
    path.write_text(NET + "#" * (1024**2 + 1 - len(NET)))
    with pytest.raises(CfgError, match="not a text file"):
        read_cfg(path)
    assert len(parse_cfg("[net]\n" + "[conv]\n" * 10_000).layers) == 10_000
    with pytest.raises(CfgError, match="more than 10,000 sections") as caught:
        parse_cfg("[net]\n" + "[conv]\n" * 10_001)
    assert caught.value.line == 10_002


def test_numbers_at_their_limits_are_taken():
    net = parse_cfg("[net]\na=2147483647\nb=-3,7\nc=3.4028234e38\nd=-3.4028234e38\ne=3.4028236e38\nf=0\n").net
    assert net.integer("a", 0) == 2**31 - 1
    assert net.integer("f", 5) == 0
    assert net.integers("b", minimum=-3, maximum=7) == (-3, 7)
    assert (net.number("c", 0), net.number("d", 0)) == (3.4028234e38, -3.4028234e38)
    with pytest.raises(CfgError, match=r"b=7: expected a number from -3 to 6"):
        net.integers("b", minimum=-3, maximum=6)
    with pytest.raises(CfgError, match=r"b=-3: expected a number from -2 to 2,147,483,647"):
        net.integers("b", minimum=-2)
    with pytest.raises(CfgError, match=r"e=3\.4028236e38: expected a float32 number, found '3\.4028236e38'"):
        net.number("e", 0)


def test_a_long_problem_is_told_without_its_middle():
    net = parse_cfg(NET).net
    with pytest.raises(CfgError) as caught:
        net.fail("a" * 500 + "b" * 500)
    assert str(caught.value) == f"<cfg>:1: [net]: {'a' * 500}{'b' * 500}."
    with pytest.raises(CfgError) as caught:
        net.fail("a" * 500 + "-" + "b" * 500, 7, "something")
    assert str(caught.value) == f"<cfg>:7: [net]: {'a' * 500} ... {'b' * 500}.\nDo: something."
    assert caught.value.line == 7


@pytest.mark.parametrize("value", ["1,2,", "1,2#,3", "1,2 ; a,b"])
def test_commas_that_darknet_counts_are_refused(value):
    with pytest.raises(CfgError, match="darknet counts the commas") as caught:
        parse_cfg(f"[net]\nsteps={value}\n").net.integers("steps", minimum=0)
    assert caught.value.line == 2
    assert parse_cfg("[net]\nsteps=1,2 # three\n").net.integers("steps", minimum=0) == (1, 2)


def test_what_was_read_cannot_be_changed():
    cfg = parse_cfg("[net]\nwidth=4\nwidth=4\nheight=2\n")
    assert cfg.net.first_options == (Option("width", "4", 2), Option("height", "2", 4))
    assert (cfg.net.line_of("height"), cfg.net.line_of("depth")) == (4, 1)
    for record, name in ((cfg, "path"), (cfg.net, "type"), (cfg.net.option("width"), "value")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, "x")


def test_text_written_and_read_again_is_the_same():
    cfg = parse_cfg("[net]\nwidth=4\nbatch=1\nbatch=2\n[conv]\nfilters=2\n")
    again = parse_cfg(cfg.to_text())
    pairs = [[(o.key, o.value) for o in section.options] for section in cfg.sections]
    assert [[(o.key, o.value) for o in section.options] for section in again.sections] == pairs


def test_net_values_can_be_replaced():
    assert parse_cfg(NET).with_net(width=8, height=6).to_text() == "[net]\nwidth=8\nheight=6\n"
