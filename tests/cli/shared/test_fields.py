"""Fields and plugins as they are typed: ``--set`` and ``module:INSTANCE``."""

import sys

import numpy as np
import pytest

from pytrtplugins.cli.shared.fields import open_plugin, read_fields, read_samples
from pytrtplugins.errors import FieldError, RegistryError, UsageError

LAYERS = """
import numpy as np
import numpy.typing as npt
import pytrtplugins as ptp

@ptp.plugin(namespace="clifields")
class PRelu(ptp.Plugin):
    slope: npt.NDArray[np.float32]
    table: np.ndarray = np.zeros(2, np.int64)
    steps: tuple[int, ...] = (1,)
    kind: str = "plain"
    names: tuple[str, ...] = ()
    bias: float = 0.0
    def output_dims(self, x):
        if x[1:2] != self.slope.shape:
            raise ptp.errors.DimsError("channels", expected=len(self.slope))
        return x
    def compute(self, x):
        slope = self.slope.reshape(-1, *[1] * (x.ndim - 2)).astype(x.dtype)
        return np.where(x > 0, x, x * slope)

LEAKY = PRelu(slope=[0.5, 0.25, 0.125], bias=2)
"""


@pytest.fixture
def layers(tmp_path, monkeypatch):
    """A folder with a plugin whose slope is an array, an instance of it, and arrays in files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clifields.py").write_text(LAYERS)
    np.save("slope.npy", np.array([0.5, 0.25]))
    np.save("objects.npy", np.array([{}]), allow_pickle=True)
    np.save("large.npy", np.array([1e39]))
    np.save("complex.npy", np.zeros(2, np.complex64))
    (tmp_path / "short.npy").write_bytes((tmp_path / "slope.npy").read_bytes()[:-1])
    return "clifields.py"


def test_each_type_of_field_is_read_from_what_is_typed(layers):
    plugin = open_plugin(
        f"{layers}:PRelu",
        ["slope=@slope.npy", "table=[[1, 2], [3, 4]]", "steps=4,5", "kind=1", "names=a,@b", "bias=0.5"],
    )
    assert plugin.slope.dtype == np.float32
    assert plugin.slope.tolist() == [0.5, 0.25]
    assert plugin.table.tolist() == [[1, 2], [3, 4]]
    assert plugin.table.dtype == np.int64
    assert (plugin.steps, plugin.kind, plugin.names, plugin.bias) == ((4, 5), "1", ("a", "@b"), 0.5)
    cls = open_plugin(f"{layers}:PRelu")
    assert read_fields(['kind="a,b"', 'names=["a,b"]', "slope=0.5,1"], cls)["slope"].dtype == np.float32
    assert read_fields(['kind="a,b"', 'names=["a,b"]'], cls) == {"kind": "a,b", "names": ("a,b",)}
    assert read_fields(["names="], cls) == {"names": ()}
    np.save("steps.npy", np.array([7, 8]))
    assert read_fields(["steps=@steps.npy"], cls) == {"steps": (7, 8)}


def test_a_file_imports_its_neighbours_wherever_the_command_runs(layers, tmp_path, monkeypatch):
    (tmp_path / "below").mkdir()
    (tmp_path / "clineighbours.py").write_text("from clifields import LEAKY\n")
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    monkeypatch.chdir(tmp_path / "below")
    assert open_plugin("../clineighbours.py:LEAKY").bias == 2.0


def test_what_is_no_module_is_refused_before_it_is_imported(layers):
    with pytest.raises(
        UsageError, match=r"module 'clifields\.cu/x': expected a module's name, or a Python file\.\nDo: "
    ):
        open_plugin("clifields.cu/x:PRelu")


def test_a_file_of_arrays_needs_no_sign_where_only_an_array_can_stand(layers):
    cls = open_plugin(f"{layers}:PRelu")
    assert read_fields(["slope=slope.npy", "kind=slope.npy"], cls)["slope"].tolist() == [0.5, 0.25]
    assert read_fields(["kind=slope.npy"], cls) == {"kind": "slope.npy"}
    for text in ("x=slope.npy", "x=@slope.npy"):
        (array,) = (read_samples([text]) or {}).values()
        assert array.tolist() == [0.5, 0.25]


def test_the_advice_never_names_the_users_own_file_of_another_kind(layers, tmp_path):
    (tmp_path / "dog.jpg").write_bytes(b"\xff\xd8\xff\xe0 and so on")
    with pytest.raises(UsageError, match=r"Do: numpy\.save\('dog\.npy', array\)$"):
        read_fields(["slope=@dog.jpg"], open_plugin(f"{layers}:PRelu"))


def test_an_instance_keeps_the_values_that_are_not_given(layers):
    assert open_plugin(f"{layers}:LEAKY").bias == 2.0
    changed = open_plugin(f"{layers}:LEAKY", ["bias=3"])
    assert changed.bias == 3.0
    assert changed.slope.tolist() == [0.5, 0.25, 0.125]


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("slope", UsageError, "--set slope: expected FIELD=VALUE"),
        ("size=2", UsageError, "--set size: PRelu has no such field. Fields: slope, table"),
        ("slope=@none.npy", UsageError, "--set slope=@none.npy: .*none.npy[\\s\\S]*Do: numpy.save"),
        ("slope=@objects.npy", UsageError, "--set slope=@objects.npy: .*expected numbers"),
        ("slope=@short.npy", UsageError, "--set slope=@short.npy: .*needs 16 bytes, found 15"),
        ("slope=@large.npy", FieldError, r"PRelu.slope: .* found 1e\+39, which does not fit into float32, from --set slope=@large"),
        ("slope=@complex.npy", FieldError, "an array of float32, found an array of complex64, from --set slope=@complex.npy"),
        ("slope=wide", FieldError, "PRelu.slope: expected numpy.ndarray of float32, found 'wide'.*, from --set slope=wide"),
        ("bias=x", FieldError, r"PRelu.bias: expected float, found 'x' \(str\), from --set bias=x"),
        ("steps=1,2.5", FieldError, r"expected tuple\[int, ...\], found 2.5 \(float\), from --set steps=1,2.5"),
        ('names=["a', UsageError, "--set names"),
        ("bias=2", FieldError, "missing a required argument: 'slope'"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused_with_where_it_was_typed(layers, value, error, message):
    with pytest.raises(error, match=message):
        open_plugin(f"{layers}:PRelu", [value])


def test_a_file_larger_than_the_limit_is_refused_before_it_is_read(layers):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1073741825,), }".ljust(117) + b"\n"
    with open("huge.npy", "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file.truncate(2**32 + 4 + len(header) + 10)
    with pytest.raises(UsageError, match="which is the limit"):
        open_plugin(f"{layers}:PRelu", ["slope=@huge.npy"])


def test_what_is_neither_class_nor_instance_is_refused(layers):
    with pytest.raises(RegistryError, match=r"no plugin class 'np'\. It has: PRelu"):
        open_plugin(f"{layers}:np")


def test_check_plugin_takes_fields_and_instances(printed, refused, layers):
    out = printed("check-plugin", "clifields.py:PRelu", "--set", "slope=@slope.npy", "--time-limit", "60")
    assert "PRelu(slope=array(float32, shape=(2,))" in out
    assert "shape=(3,)" in printed("check-plugin", "clifields.py:LEAKY", "--time-limit", "60")
    assert "--set slope=" in " ".join(refused("check-plugin", "clifields.py:PRelu").split())
