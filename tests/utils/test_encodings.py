"""Texts that are not UTF-8 are refused with the encoding that they seem to have."""

import pytest

from pytrtplugins.utils.encodings import EncodingError, decode_utf8, seems_to_hold

CHINESE = "train\n安全帽\n人员, 车辆。\n"


@pytest.mark.parametrize("text", ["", "cat", "\ufeffcat", CHINESE, "café", "🐈"])
def test_utf_8_is_taken_with_or_without_its_mark(text):
    assert decode_utf8(text.encode()) == text.removeprefix("\ufeff")
    assert decode_utf8(text.encode("utf-8-sig")) == text if not text.startswith("\ufeff") else True


@pytest.mark.parametrize(
    ("text", "encoding", "name", "line"),
    [
        (CHINESE, "gb2312", "GB2312", 2),
        ("镕基\n", "gbk", "GBK", 1),
        (CHINESE, "utf-16", "UTF-16", 1),
        (CHINESE, "utf-32", "UTF-32", 1),
        ("cat\ndog\n", "utf-16", "UTF-16", 1),
        ("cat\ndog\n", "utf-16-le", "UTF-16LE", 1),
        ("cat\ndog\n", "utf-16-be", "UTF-16BE", 1),
        ("a\ncafé\n", "cp1252", "WINDOWS-1252", 2),
        ("naïve Müßiggang", "cp1252", "WINDOWS-1252", 1),
        ("éèê", "cp1252", "WINDOWS-1252", 1),
        (CHINESE * 20_000, "gb2312", "GB2312", 2),
        ((2**16 - 1) * "\xb0" + "\xb0", "latin-1", "GB2312", 1),
        ("a" + (2**16 - 1) * "\xb0", "latin-1", "WINDOWS-1252", 1),  # half a character at the end
    ],
)
def test_another_encoding_is_named(text, encoding, name, line):
    with pytest.raises(EncodingError) as raised:
        decode_utf8(text.encode(encoding))
    assert (raised.value.encoding, raised.value.line) == (name, line)
    assert f"not UTF-8 in line {line}; it seems to be {name}: iconv -f {name} -t UTF-8 converts it" in str(raised.value)


@pytest.mark.parametrize("text", ["some names\0 and more of them\n", "a\0\0\0\0b", "\0\0a\0", "\0\0\0a"])
def test_a_few_zeros_are_left_to_the_reader(text):
    assert decode_utf8(text.encode()) == text


@pytest.mark.parametrize("encoding", ["utf-8", "gb2312", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_word_is_seen_in_every_encoding(encoding):
    data = '{"images": "安"}'.encode(encoding)
    assert seems_to_hold(data, b'"images"')
    assert not seems_to_hold(data, b'"image"')
