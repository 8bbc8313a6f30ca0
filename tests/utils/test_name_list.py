"""Lists of names: a blank line before a class's name would change its number."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.utils.name_list import check_class_names, read_class_names, read_name_list, split_lines
from tests.oracles.libdarknet import DEFAULT_LIBRARY


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat\ndog", ("cat", "dog")),
        ("cat\r\ndog\r\n\r\n", ("cat", "dog")),
        ("\ufeffcat\rdog\n \n", ("cat", "dog")),
        (" cat \n\tdog\n", ("cat", "dog")),
        ("traffic light\nsea\u2028lion\x0b\n", ("traffic light", "sea\u2028lion")),
        ("", ()),
        ("\n\n", ()),
    ],
)
def test_names_keep_their_numbers(tmp_path, text, names):
    (tmp_path / "a.names").write_bytes(text.encode())
    assert read_class_names(tmp_path / "a.names") == names
    assert read_name_list(tmp_path / "a.names") == names


@pytest.mark.parametrize(("text", "line"), [("cat\n\ndog\n", 2), ("\ncat\n", 1), ("cat\ndog\n \t\n\ncow", 3)])
def test_a_blank_line_before_a_name_is_refused_with_its_line(tmp_path, text, line):
    (tmp_path / "a.names").write_text(text)
    with pytest.raises(
        UsageError, match=rf"a\.names': line {line} is blank, which darknet counts as a class"
    ) as raised:
        read_class_names(tmp_path / "a.names")
    assert "Do: remove the line" in str(raised.value)
    with pytest.raises(UsageError, match=f"line {line} is blank"):
        read_class_names(text.split("\n"))


@pytest.mark.skipif(not Path(DEFAULT_LIBRARY).exists(), reason="darknet is missing")
def test_darknet_counts_a_blank_line(tmp_path):
    (tmp_path / "a.names").write_text("cat\n\ndog\n")
    program = f"""
import ctypes
library = ctypes.CDLL({DEFAULT_LIBRARY!r})
library.get_labels.restype = ctypes.POINTER(ctypes.c_char_p)
print([library.get_labels(b"a.names")[number].decode() for number in range(3)])
"""
    read = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert read.stdout == "['cat', '', 'dog']\n"


def test_a_name_may_have_to_be_there_once():
    assert check_class_names(["cat", "Cat"], once=True) == ("cat", "Cat")
    assert check_class_names(["cat", "cat"]) == ("cat", "cat")
    with pytest.raises(ValueError, match="'cat' is the name of the classes 0 and 2"):
        check_class_names(["cat", "dog", "cat"], once=True)


def test_lines_end_where_editors_end_them():
    assert split_lines("a\r\nb\rc\n\nd\x0ce\x1cf\x85g") == ["a", "b", "c", "", "d\x0ce\x1cf\x85g"]
