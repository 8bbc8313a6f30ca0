"""Files of arrays: read as NumPy reads them, or refused before they cost anything."""

import contextlib
import io
import itertools
import os
import resource
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pytrtplugins.errors import FormatError, PytrtpluginsError
from pytrtplugins.utils.array_files import read_npy, read_npz
from tests.damage import damaged

NUMBERS = arrays.arrays(
    st.sampled_from(["<f4", ">f8", "<f2", "i1", "<u2", ">i8", "?", "<c8"]), arrays.array_shapes(min_dims=0, min_side=0)
)


def npy(header, data=b"", version=1):
    """A .npy file with any header."""
    text = header.encode() if isinstance(header, str) else header
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def header(shape, descr="'<f4'", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n"


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@given(array=NUMBERS, fortran=st.booleans())
def test_what_numpy_saves_is_read(tmp_path_factory, array, fortran):
    path = tmp_path_factory.getbasetemp() / "x.npy"
    array = np.asfortranarray(array) if fortran else array
    np.save(path, array)
    found = read_npy(path)
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(found, array)


def test_a_header_has_10_000_bytes_at_most(tmp_path):
    for size, version in itertools.product((9_999, 10_000, 10_001), (1, 2)):
        text = header("(1,)")[:-1]
        (tmp_path / "x.npy").write_bytes(npy(text.ljust(size - 1) + "\n", bytes(4), version))
        if size > 10_000:
            with pytest.raises(FormatError, match="a header of 10,001 bytes"):
                read_npy(tmp_path / "x.npy")
        else:
            assert read_npy(tmp_path / "x.npy").tolist() == [0]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_arrays_are_read(tmp_path, save):
    held = {"a": np.zeros((1000, 100)), "b": np.arange(5, dtype=np.int8), "c/d": np.float32(3)}
    save(tmp_path / "x.npz", **held)
    found = read_npz(tmp_path / "x.npz")
    assert found.keys() == held.keys()
    for name, array in held.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "header is damaged"),
        (b"PK", "header is damaged"),
        (npy(header("(2**40,)")), "header is damaged"),
        (npy(header(f"({2**40},)")), "takes more than 1,073,741,824 bytes"),
        (npy(header(f"({2**62}, {2**62})")), "takes more than 1,073,741,824 bytes"),
        (npy(header("(3,)"), bytes(11)), "needs 12 bytes, found 11"),
        (npy(header("(3,)"), bytes(13)), "needs 12 bytes, found 13"),
        (npy(header("(-1,)")), r"the shape \(-1,\)"),
        (npy(header("(True,)"), bytes(4)), r"the shape \(True,\)"),
        (npy(header("(" + "1," * 33 + ")"), bytes(4)), "the shape"),
        (npy(header("(1,)", "'|O'"), bytes(8)), "expected numbers"),
        (npy(header("(1,)", "'<M8[s]'"), bytes(8)), "expected numbers"),
        (npy(header("(1,)", "'<U4'"), bytes(16)), "expected numbers"),
        (npy(header("(1,)", "[('a', '<f4')]"), bytes(4)), "expected numbers"),
        (npy(header("(1,)", "'|V2'"), bytes(2)), "expected numbers"),
        (npy("{'descr': '<f4', 'shape': (1,)}"), "header is damaged"),
        (npy("{" * 5000), "header is damaged"),
        (npy("[" * 9000 + "]" * 900), "header is damaged"),
        (npy("(" * 60), "header is damaged"),
        (npy("__import__('os').system('true')"), "header is damaged"),
        (npy(b"{'descr'\xff"), "header is damaged"),
        (npy("'''"), "header is damaged"),
        (npy(" " * 20_000, version=2), "a header of 20,000 bytes"),
        (npy(header("()"), bytes(4), version=3), "version 3.0"),
        (npy(header("()"))[:20], "header is damaged"),
    ],
    ids=range(25),
)
def test_files_that_claim_what_they_do_not_hold_are_refused(tmp_path, data, problem):
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=problem) as caught:
        read_npy(path)
    assert caught.value.path == path
    assert len(str(caught.value)) < 600
    zipped(tmp_path / "x.npz", {"x.npy": data})
    with pytest.raises(FormatError, match=problem):
        read_npz(tmp_path / "x.npz")


def test_the_limit_can_be_changed_and_counts_all_arrays(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.zeros(100), b=np.zeros(100))
    assert len(read_npz(tmp_path / "x.npz", max_bytes=2000)) == 2
    with pytest.raises(FormatError, match=r"take 1,856 bytes of memory; the limit is 1,800"):
        read_npz(tmp_path / "x.npz", max_bytes=1800)
    np.save(tmp_path / "x.npy", np.zeros(100))
    with pytest.raises(FormatError, match="takes more than 799 bytes"):
        read_npy(tmp_path / "x.npy", max_bytes=799)


def overlapping(path, copies, size):
    """A zip whose entries all lie at the same place, each of so many zeros."""
    zipped(path, {"a0.npy": saved(np.zeros(size, np.uint8))}, compression=zipfile.ZIP_DEFLATED)
    data = path.read_bytes()
    central, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entries = b"".join(data[central:end].replace(b"a0.npy", b"a%d.npy" % number) for number in range(copies))
    tail = bytearray(data[end:])
    tail[8:12] = copies.to_bytes(2, "little") * 2
    tail[12:16] = len(entries).to_bytes(4, "little")
    path.write_bytes(data[:central] + entries + tail)


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "x.npz"
    overlapping(path, 9, 200 << 20)
    assert path.stat().st_size < 300_000
    limit = 1 << 30
    code = "import sys; from pytrtplugins.utils.array_files import read_npz; read_npz(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert "the limit is 1,073,741,824" in done.stderr


def test_entries_at_the_same_place_are_refused(tmp_path):
    overlapping(tmp_path / "x.npz", 9, 1 << 20)
    with pytest.raises(FormatError, match=r"its entries claim [\d,]+ bytes of a file of"):
        read_npz(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("members", "options", "problem"),
    [
        ({}, {}, "expected 1 to 10,000 arrays"),
        ({"x.txt": b"a"}, {}, "the entry 'x.txt' is not a .npy file"),
        ({"x.npy": saved(np.zeros(9))}, {"compression": zipfile.ZIP_LZMA}, "compressed in a way"),
        ({"x.npy": saved(np.zeros(9))}, {"compression": zipfile.ZIP_BZIP2}, "compressed in a way"),
    ],
)
def test_archives_of_something_else_are_refused(tmp_path, members, options, problem):
    zipped(tmp_path / "x.npz", members, **options)
    with pytest.raises(FormatError, match=problem):
        read_npz(tmp_path / "x.npz")


def test_a_size_that_deflate_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "x.npz"
    zipped(path, {"x.npy": saved(np.zeros(2))}, compression=zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = (1 << 29).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"claims 536,870,912 bytes, more than its \d+ can hold"):
        read_npz(path)


def test_a_damaged_array_is_told_by_its_checksum(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros(100))
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="Bad CRC-32"):
        read_npz(path)


@given(data=st.data(), compressed=st.booleans())
def test_damaged_files_give_arrays_or_our_error(tmp_path_factory, data, compressed):
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    (np.savez_compressed if compressed else np.savez)(path, a=np.arange(9.0), b=np.zeros((2, 2), np.int8))
    path.write_bytes(damaged(data, path.read_bytes()))
    for read in (read_npz, read_npy):
        with contextlib.suppress(PytrtpluginsError):
            read(path)
