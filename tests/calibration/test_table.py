import re
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.calibration.table import ALGORITHMS, trt_version
from pytrtplugins.errors import CalibrationTableError, PytrtpluginsError

# As published in the manual of TensorRT's own sampleINT8 (MNIST).
SAMPLE_INT8 = b"""TRT-5100-EntropyCalibration2
data: 3c000889
conv1: 3c8954be
pool1: 3c8954be
conv2: 3dd33169
pool2: 3dd33169
ip1: 3daeff07
ip2: 3e7d50ec
prob: 3c010a14
"""

names = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=20)
scales = st.floats(0, width=32, allow_nan=False, allow_infinity=False)
tables = st.builds(
    CalibrationTable,
    st.dictionaries(names, scales, max_size=8),
    st.sampled_from(ALGORITHMS),
    version=st.sampled_from(["5.1.0", "8.6.1", "10.2.0", "10.16.1"]),
)


@given(table=tables)
def test_nothing_is_lost_on_write_and_read(table):
    again = CalibrationTable.from_bytes(table.to_bytes())
    assert again == table
    assert list(again) == list(table)
    assert again.to_bytes() == table.to_bytes()


def test_a_cache_of_tensorrt_is_written_back_byte_for_byte():
    table = CalibrationTable.from_bytes(SAMPLE_INT8)
    assert table.to_bytes() == SAMPLE_INT8
    assert len(table) == 8
    assert table.amax("prob") == pytest.approx(2048.5 / 2048, rel=1e-6)


def test_the_scale_is_the_float32_of_the_file():
    table = CalibrationTable.from_bytes(SAMPLE_INT8)
    assert isinstance(table["prob"], np.float32)
    assert struct.pack(">f", table["prob"]) == bytes.fromhex("3c010a14")


@pytest.mark.parametrize(
    ("version", "number"),
    [("5.1.0", 5100), ("7.2.3.4", 7203), ("8.6.1", 8601), ("10.2.0", 100200), ("10.16.1", 101601)],
)
def test_the_header_holds_the_version_in_tensorrts_number(version, number):
    assert trt_version(version) == number
    assert CalibrationTable({}, version=version).header == f"TRT-{number}-EntropyCalibration2"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_of_tensorrt_is_read(algorithm):
    assert CalibrationTable.from_bytes(f"TRT-8601-{algorithm}\nx: 3c010204\n".encode()).algorithm == algorithm


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"TRT-8601-EntropyCalibration2\r\na: 3c010204\r\nb: 3c010204\r\n", ["a", "b"]),
        (b"TRT-8601-EntropyCalibration2\na: 3c010204", ["a"]),
        (b"TRT-8601-EntropyCalibration2", []),
        (b"TRT-8601-EntropyCalibration2\n\na: 3c010204\n\n", ["a"]),
        (b"TRT-8601-EntropyCalibration2\na:3c010204\n", ["a"]),
        (b"\xef\xbb\xbfTRT-8601-EntropyCalibration2\na: 3c010204\n", ["a"]),
        (b"TRT-8401-EntropyCalibration2\n(Unnamed Layer* 64) [Shuffle]_output: 3c010204\n", ["(Unnamed Layer* 64) [Shuffle]_output"]),
        (b"TRT-8601-EntropyCalibration2\nmodel/conv:0: 3c010204\n", ["model/conv:0"]),
        (b"TRT-8601-EntropyCalibration2\na: b: 3c010204\n", ["a: b"]),
        (b"TRT-8601-EntropyCalibration2\n: 3c010204\n", [""]),
    ],
)  # fmt: skip
def test_caches_found_in_the_wild_are_read(text, expected):
    table = CalibrationTable.from_bytes(text)
    assert list(table) == expected
    assert all(table.amax(name) == 1.0 for name in expected)


def test_a_scale_of_zero_without_leading_zeros_is_kept():
    text = b"TRT-8401-EntropyCalibration2\n366: 0\n395: 3cbe52af\n"
    table = CalibrationTable.from_bytes(text)
    assert table["366"] == 0
    assert table.to_bytes() == text


def test_names_that_are_not_utf8_survive():
    text = b"TRT-8601-EntropyCalibration2\nconv\xff: 3c010204\n"
    assert CalibrationTable.from_bytes(text).to_bytes() == text


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"", 1),
        (b"data: 3c010204\n", 1),
        (b"TRT-8601-Something\na: 3c010204\n", 1),
        (b"TRT-8601-EntropyCalibration2\na: 3c010204\nb 3c010204\n", 3),
        (b"TRT-8601-EntropyCalibration2\na: 3c01020g\n", 2),
        (b"TRT-8601-EntropyCalibration2\na: 3c0102040\n", 2),
        (b"TRT-8601-EntropyCalibration2\na: \n", 2),
        (b"TRT-8601-EntropyCalibration2\na: 7fc00000\n", 2),
        (b"TRT-8601-EntropyCalibration2\na: 7f800000\n", 2),
        (b"TRT-8601-EntropyCalibration2\na: bc010204\n", 2),
        (b"TRT-8601-EntropyCalibration2\na: 3c010204\na: 3c010205\n", 3),
        (b"\x00\x01\xfe\xff" * 100, 1),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(text, line):
    with pytest.raises(CalibrationTableError, match=f"voc.cache, line {line}:") as error:
        CalibrationTable.from_bytes(text, path="voc.cache")
    assert (error.value.path, error.value.line) == ("voc.cache", line)


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"TRT-8601-EntropyCalibration2\n" + tail))
def test_hostile_bytes_raise_our_error_or_nothing(data):
    try:
        CalibrationTable.from_bytes(data)
    except PytrtpluginsError as error:
        assert isinstance(error, CalibrationTableError)  # noqa: PT017  # both outcomes are allowed


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf"), 1e300])
def test_scales_that_int8_cannot_use_are_refused(scale):
    with pytest.raises(CalibrationTableError, match="finite"):
        CalibrationTable({"x": scale})


@pytest.mark.parametrize(
    "arguments", [({"a\nb": 1.0},), ({}, "Entropy"), ({3: 1.0},)], ids=["newline", "algorithm", "name"]
)
def test_what_the_file_cannot_hold_is_refused(arguments):
    with pytest.raises(CalibrationTableError):
        CalibrationTable(*arguments)


@pytest.mark.parametrize("version", ["8", "8.6", "8.600.1", "x.y.z", ""])
def test_a_version_that_is_none_is_refused(version):
    with pytest.raises(CalibrationTableError, match="version"):
        CalibrationTable({}, version=version)


def test_a_table_is_frozen_and_hashable():
    table = CalibrationTable({"x": 0.5})
    with pytest.raises(AttributeError, match="frozen"):
        table.algorithm = "MinMaxCalibration"
    with pytest.raises(TypeError):
        table["x"] = 1  # type: ignore[index]
    assert {table: 1}[CalibrationTable({"x": 0.5})] == 1
    assert table != CalibrationTable({"x": 0.5}, version="8.6.1")


def test_tables_differ_in_names_scales_or_headers():
    table = CalibrationTable({"x": 0.5, "y": 1})
    assert table == CalibrationTable({"y": 1, "x": 0.5})
    assert table != CalibrationTable({"x": 0.5, "y": 2})
    assert table != CalibrationTable({"x": 0.5})
    assert table != CalibrationTable({"x": 0.5, "z": 1})
    assert table != CalibrationTable(table, "MinMaxCalibration")
    assert table != {"x": 0.5, "y": 1}
    assert repr(table) == "CalibrationTable(2 tensors, TRT-101601-EntropyCalibration2)"


def test_a_version_may_be_the_headers_number_and_minus_zero_is_zero():
    table = CalibrationTable({"x": -0.0}, version=8503)
    assert table.to_bytes() == b"TRT-8503-EntropyCalibration2\nx: 0\n"
    assert trt_version("9.3.0") == 9300
    assert trt_version("10.0.1") == 100001


def test_a_cache_file_may_have_4_mebibytes(tmp_path):
    text = b"TRT-8601-EntropyCalibration2\nx: 3c010204\n"
    path = tmp_path / "large.cache"
    path.write_bytes(text + b"x" * (4 * 1024**2 - len(text) - 3) + b": 0")
    assert CalibrationTable.read(path).amax("x") == 1
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(CalibrationTableError, match="expected at most 4,194,304 bytes, found 4,194,305") as caught:
        CalibrationTable.read(path)
    assert caught.value.path == path


def test_another_version_keeps_the_scales():
    table = CalibrationTable({"x": 0.1}).with_version("8.6.1")
    assert (table.header, table["x"]) == ("TRT-8601-EntropyCalibration2", np.float32(0.1))


def test_a_written_file_is_read_back(tmp_path):
    table = CalibrationTable({"x": 0.1, "y": 3})
    table.write(tmp_path / "a.cache")
    assert CalibrationTable.read(tmp_path / "a.cache") == table
    assert [path.name for path in tmp_path.iterdir()] == ["a.cache"]


def test_a_table_of_another_network_is_refused_with_the_names():
    table = CalibrationTable({"data": 1, "a": 1, "b": 1, "c": 1, "d": 1, "e": 1})
    with pytest.raises(CalibrationTableError, match="another network") as error:
        table.check_fits(["data", "a", "x"], path="voc.cache", digests=("9f2c41d0ffff", "51ab77e2ffff"))
    assert error.value.only_in_table == ("b", "c", "d", "e")
    assert error.value.only_in_network == ("x",)
    message = str(error.value)
    assert "table: model 9f2c41d0; this network: model 51ab77e2" in message
    assert "'b', 'c', 'd' (and 1 more)" in message
    assert message.splitlines()[-1].startswith("Do: pytrt calibrate")


def test_equal_names_of_a_network_with_other_weights_are_refused():
    with pytest.raises(CalibrationTableError, match="other weights"):
        CalibrationTable({"data": 1}).check_fits(["data"], digests=("a" * 64, "b" * 64))


def test_more_names_than_the_network_has_are_accepted():
    CalibrationTable({"data": 1, "(Unnamed Layer* 1) [Scale]_output": 1}).check_fits(["data"])
    CalibrationTable({"data": 1}).check_fits(["data", "unused"], required=["data"])


def test_names_of_another_network_are_shown_up_to_three():
    with pytest.raises(CalibrationTableError) as caught:
        CalibrationTable({"a": 1, "b": 1, "c": 1}).check_fits(["d"], path="net.cache")
    assert str(caught.value).splitlines()[:2] == [
        "net.cache was made for another network.",
        "Only in the table: 'a', 'b', 'c'. Only in the network: 'd'.",
    ]
    with pytest.raises(CalibrationTableError, match=r"Only in the table: none\. Only in the network: 'd'\.") as caught:
        CalibrationTable({"a": 1}).check_fits(["a", "d"], digests=("1" * 64, "1" * 64))
    assert "model 1" not in str(caught.value)
    with pytest.raises(CalibrationTableError, match=r"All 1 tensor names agree\."):
        CalibrationTable({"a": 1}).check_fits(["a"], digests=("1" * 64, "2" * 64))


def test_a_notebook_shows_each_scale_and_the_largest_value_that_it_holds():
    text = re.sub(r"<[^>]*>", " ", CalibrationTable({"conv": 0.5})._repr_html_())
    assert text.split()[-6:] == ["tensor", "scale", "amax", "conv", "0.5", "63.5"]
