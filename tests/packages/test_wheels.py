"""The source archive and the wheels that .ci/wheels.py builds hold what they should, and work from an empty folder."""

import base64
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import pytrtplugins
from pytrtplugins import native

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("wheels", ROOT / ".ci" / "wheels.py")
assert SPEC is not None
assert SPEC.loader is not None
wheels = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(wheels)

pytest.importorskip("setuptools", "77", exc_type=ImportError)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return wheels.build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def pure(archive, tmp_path_factory):
    """The wheel of pure Python, built from the source archive alone."""
    source = wheels.unpack(archive, tmp_path_factory.mktemp("source"))
    return wheels.build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def with_native(pure, tmp_path_factory):
    """The wheel with the native part that is built in this checkout."""
    if not native.available():
        pytest.skip("the native part is not built. Do: make native")
    prefix, package = tmp_path_factory.mktemp("prefix"), Path(pytrtplugins.__file__).parent
    for file in [*package.glob("_native*.so"), *(package / "lib").glob("*.so")]:
        target = prefix / "pytrtplugins" / file.relative_to(package)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    return wheels.add_native(pure, prefix, tmp_path_factory.mktemp("native"))


def sources(*endings):
    """The files of both packages."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in ("pytrtplugins", "darknet2caffe")
        for path in (ROOT / package).rglob("*")
        if path.name.endswith(endings) and "__pycache__" not in path.parts
    }


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_source_archive_has_all_that_a_wheel_is_made_of(archive):
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    native_part = {path.relative_to(ROOT).as_posix() for path in (ROOT / "plugins").rglob("*") if path.is_file()}
    assert sources(".py", ".pyi", ".typed", ".cu", ".h", ".cpp", ".json", ".css", ".js") - names == set()
    assert native_part - names == set()
    assert {"CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= names
    assert [name for name in names if name.endswith((".so", ".pyc"))] == []


def test_the_pure_wheel_has_every_module_and_kernel_and_nothing_compiled(pure):
    assert pure.name == f"pytrtplugins-{pytrtplugins.__version__}-py3-none-any.whl"
    names = set(contents(pure))
    assert sources(".py", ".pyi", ".typed", ".cu", ".h", ".cpp", ".json", ".css", ".js") - names == set()
    assert [name for name in names if name.endswith((".so", ".pyc")) or name.startswith("tests/")] == []


def test_the_native_wheel_is_for_this_python_and_lists_every_file(with_native, pure):
    files = contents(with_native)
    (info,) = {name.partition("/")[0] for name in files if ".dist-info/" in name}
    tag = with_native.name.removesuffix(".whl").split("-", 2)[2]
    assert re.fullmatch(rf"cp{sys.version_info[0]}{sys.version_info[1]}-cp\d+t?-\w+", tag)
    assert {"Root-Is-Purelib: false", f"Tag: {tag}"} <= set(files[f"{info}/WHEEL"].decode().splitlines())
    assert set(files) - set(contents(pure)) == {name for name in files if name.endswith(".so")} != set()
    record = dict(line.split(",", 1) for line in files.pop(f"{info}/RECORD").decode().splitlines())
    assert record.pop(f"{info}/RECORD") == ","
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        assert record.pop(name) == f"sha256={digest},{len(data)}"
    assert record == {}


def test_the_native_wheel_runs_plugins_in_c_plus_plus(with_native, tmp_path):
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    environment = {**os.environ, "PIP_CONSTRAINT": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*command, "--target", str(tmp_path), str(with_native)], env=environment, check=True)
    code = (
        "import pytrtplugins, numpy as np; print(pytrtplugins.__file__);"
        "print(pytrtplugins.native.layers().Reorg(stride=2).compute(np.zeros((1, 4, 2, 2), np.float32)).shape)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [str(tmp_path / "pytrtplugins" / "__init__.py"), "(1, 16, 1, 1)"], done.stderr


def test_equal_contents_give_equal_native_wheels(with_native, pure, tmp_path):
    prefix = tmp_path / "prefix"
    for name, data in contents(with_native).items():
        if name.endswith(".so"):
            (prefix / name).parent.mkdir(parents=True, exist_ok=True)
            (prefix / name).write_bytes(data)
    assert contents(wheels.add_native(pure, prefix, tmp_path)) == contents(with_native)
