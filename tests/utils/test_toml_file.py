"""Lines of tables and keys, which errors name."""

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.utils.toml_file import TomlFile

TEXT = """
[a]
x = 1
"y" = 2

[[a.b]]
z = 1

[[a.b]]
z = 2
c.d = 3
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "x.toml").write_text(TEXT)
    return tmp_path / "x.toml"


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (("a",), 2),
        (("a", "x"), 3),
        (("a", "y"), 4),
        (("a", "b"), 6),
        (("a", "b", 0), 6),
        (("a", "b", 0, "z"), 7),
        (("a", "b", 1, "z"), 10),
        (("a", "b", 1, "c", "d"), 11),
        (("a", "b", 2), 0),
    ],
)
def test_tables_lists_of_tables_and_keys_have_their_line(path, names, line):
    assert TomlFile.read(path).line(names) == line


def test_a_table_of_a_file_has_its_own_data_and_the_lines_of_the_file(path):
    file = TomlFile.read(path, ("a",))
    assert (file.data["x"], file.line(("y",))) == (1, 4)
    assert str(file.error(("y",), "is wrong")) == f"{path}, line 4: is wrong"
    assert TomlFile.read(path, ("nothing",)).data == {}
    with pytest.raises(FormatError, match=r"a\.x: expected a table"):
        TomlFile.read(path, ("a", "x"))
