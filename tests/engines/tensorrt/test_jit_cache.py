"""Kernels that TensorRT for RTX makes where an engine runs are kept beside its file; TensorRT's part is played here."""

import logging

import pytest

from pytrtplugins.engines.tensorrt.jit_cache import JitCache, cache_path


class Cache:
    """TensorRT's cache: it takes bytes that begin with its version."""

    def __init__(self):
        self.kernels = b""

    def deserialize(self, blob):
        fits = blob.startswith(b"1.7:")
        self.kernels = blob[4:] if fits else self.kernels
        return fits

    def serialize(self):
        return memoryview(b"1.7:" + self.kernels)


class Config:
    def __init__(self):
        self.cache = None

    def create_runtime_cache(self):
        self.made = Cache()
        return self.made

    def set_runtime_cache(self, cache):
        self.cache = cache
        return True


class CudaEngine:
    def create_runtime_config(self):
        return Config()


@pytest.fixture
def path(tmp_path):
    return cache_path(tmp_path / "model.engine")


def made(path):
    cache = JitCache(CudaEngine(), path)
    assert cache.config.cache is cache.config.made
    return cache


def kept(path, kernels=b"kernels"):
    """A cache to which these kernels were added, and kept in its file."""
    cache = made(path)
    cache.config.made.kernels = kernels
    cache.keep()
    return cache


def test_kernels_stand_beside_the_engine_file(path):
    assert path.name == "model.engine.jit"


def test_kernels_of_one_process_are_the_next_ones(path):
    kept(path)
    assert made(path).config.made.kernels == b"kernels"


def test_a_file_is_written_where_kernels_were_added_and_left_alone_otherwise(path):
    first = kept(path)
    before = path.stat()
    first.keep()
    made(path).keep()
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    first.config.made.kernels += b" and more"
    first.keep()
    assert path.read_bytes() == b"1.7:kernels and more"


def test_kernels_of_another_version_are_made_again_and_replaced(path):
    path.write_bytes(b"1.6:older")
    assert made(path).config.made.kernels == b""
    kept(path, b"new")
    assert path.read_bytes() == b"1.7:new"


def test_a_file_of_more_than_a_gibibyte_is_not_read(path, caplog):
    many = b"k" * (2 << 20)
    path.write_bytes(b"1.7:" + many)
    assert made(path).config.made.kernels == many
    with path.open("r+b") as file:
        file.truncate((1 << 30) + 1)
    assert made(path).config.made.kernels == b""
    assert "expected at most 1,073,741,824 bytes, found 1,073,741,825" in caplog.text


def test_nothing_is_written_through_a_link(path, tmp_path, caplog):
    other = tmp_path / "private" / "file"
    other.parent.mkdir()
    other.write_bytes(b"somebody's")
    path.symlink_to(other)
    with caplog.at_level(logging.WARNING):
        kept(path)
    assert other.read_bytes() == b"somebody's"
    assert "found a link" in caplog.text


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        kept(cache_path(tmp_path / "gone" / "model.engine")).keep()
    assert caplog.text.count("the kernels cannot be kept") == 1


def test_an_engine_without_a_file_keeps_its_kernels_in_the_process():
    kept(None)
