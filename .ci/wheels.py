"""Build the source archive and the wheel into dist/, without network; with ``--native`` the wheel of this Python that has the native part.

setuptools 77 or newer must be installed, and for ``--native`` CMake, pybind11 and a C++ compiler. The wheel is built from the
source archive, in a temporary folder: what lies in the checkout from earlier builds cannot come into it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "pyproject.toml", "darknet2caffe", "plugins", "pytrtplugins")
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", "lib")


def build_sdist(out: Path) -> Path:
    """Write pytrtplugins-VERSION.tar.gz."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SOURCES:
            source, target = ROOT / name, Path(folder) / name
            shutil.copytree(source, target, ignore=LEFT_OUT) if source.is_dir() else shutil.copy(source, target)
        return _call_backend("build_sdist", Path(folder), out)


def build_wheel(source: Path, out: Path) -> Path:
    """Write the wheel of pure Python; ``source`` is the unpacked source archive."""
    return _call_backend("build_wheel", source, out)


def compile_native(source: Path, prefix: Path) -> None:
    """Compile the native part for CPUs, as files below ``prefix``."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=search)
    if cmake is None:
        sys.exit('cmake is not installed.\nDo: pip install "cmake>=3.18" "pybind11>=2.13"')
    build = source / "build" / "native"
    settings = [f"-DPython_EXECUTABLE={sys.executable}", "-DCMAKE_CUDA_COMPILER="]
    for command in (
        ["-S", source, "-B", build, *settings],
        ["--build", build, "--parallel", os.cpu_count() or 1],
        ["--install", build, "--prefix", prefix, "--component", "python", "--strip"],
    ):
        subprocess.run([cmake, *map(str, command)], check=True)


def add_native(wheel: Path, prefix: Path, out: Path) -> Path:
    """Write the wheel of this Python and platform: the pure one and the files below ``prefix``."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}{sys.abiflags}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    name, version = wheel.name.split("-")[:2]
    result, info = out / f"{name}-{version}-{tag}.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as pure:
        contents = {file: pure.read(file) for file in pure.namelist() if file != f"{info}/RECORD"}
    contents |= {file.relative_to(prefix).as_posix(): file.read_bytes() for file in prefix.rglob("*") if file.is_file()}
    about = contents[f"{info}/WHEEL"].decode()
    about = about.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").replace("Tag: py3-none-any", f"Tag: {tag}")
    contents[f"{info}/WHEEL"] = about.encode()
    record = [f"{file},sha256={_digest(data)},{len(data)}" for file, data in contents.items()]
    contents[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in contents.items():
            entry = zipfile.ZipInfo(file)  # of 1980, so that equal contents give equal wheels
            entry.external_attr, entry.compress_type = (
                (0o100755 if file.endswith(".so") else 0o100644) << 16,
                zipfile.ZIP_DEFLATED,
            )
            archive.writestr(entry, data)
    return result


def main() -> None:
    """Build what is asked for, and print it with its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--native", action="store_true", help="a wheel for this Python, with the native part")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist/")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    archive = build_sdist(options.out)
    with tempfile.TemporaryDirectory() as folder:
        source = unpack(archive, Path(folder))
        built = build_wheel(source, Path(folder) if options.native else options.out)
        if options.native:
            compile_native(source, Path(folder) / "prefix")
            built = add_native(built, Path(folder) / "prefix", options.out)
    for file in (archive, built):
        print(f"{file} {file.stat().st_size / 1e6:.1f} MB")


def unpack(archive: Path, folder: Path) -> Path:
    """The folder that a source archive holds."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 and 3.12 on; Debian 12 has 3.11.2
            tar.extractall(folder, filter="data")
        else:
            tar.extractall(folder)  # an archive that this program made
    return folder / archive.name.removesuffix(".tar.gz")


def _call_backend(hook: str, source: Path, out: Path) -> Path:
    """Call what pip would, in a process of its own."""
    code = f"import sys; from setuptools import build_meta; print(build_meta.{hook}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(out.resolve())], cwd=source, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{hook} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return out / done.stdout.splitlines()[-1]


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    main()
