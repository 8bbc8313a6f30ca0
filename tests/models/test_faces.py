"""Embeddings of faces, and the index that finds the nearest people."""

import tracemalloc

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import FormatError, UsageError
from pytrtplugins.models.faces import FaceEmbedder, FaceIndex
from tests.mlops.tables.people import network, photos
from tests.onnx_parts import info, model, node

PHOTOS = photos()


@pytest.mark.parametrize("batch", ["N", 1, 4])
def test_embeddings_do_not_depend_on_the_batch(batch):
    engine = ptp.build(network(batch=batch), engine="reference", progress=False)
    embed = FaceEmbedder(engine)
    found = embed(PHOTOS.values())
    embed.close()
    with ptp.build(network(), engine="reference", progress=False).create_context() as context:
        for row, image in zip(found, PHOTOS.values(), strict=True):
            x = image.transpose(2, 0, 1)[None].astype(np.float32)
            wanted = context.run({"data": x})["embedding"][0]
            assert np.allclose(row, wanted / np.linalg.norm(wanted), atol=1e-6)
    assert found.dtype == np.float32


def test_other_networks_and_forms_of_pixels_are_refused():
    engine = ptp.build(network(), engine="reference", progress=False)
    with pytest.raises(UsageError, match="pixels 'bgr'"):
        FaceEmbedder(engine, "bgr")
    two = model(node("Relu", "x", "y"), node("Neg", "x", "z"), inputs=[info("x", (1, 3, 8, 8))], outputs=("y", "z"))
    with pytest.raises(UsageError, match="one output, found 2: y, z"):
        FaceEmbedder(ptp.build(two, engine="reference", progress=False))


def index():
    names = ["ann/1", "ann/2", "ben/1", "cat"]
    rows = np.array([[1, 0], [0.8, 0.6], [0, 1], [-1, 0]], np.float32)
    return FaceIndex(names, rows)


def test_each_person_is_found_once_by_the_best_photo():
    found = index().find(np.array([0.6, 0.8], np.float32), count=2)
    assert [(each.person, each.name) for each in found] == [("ann", "ann/2"), ("ben", "ben/1")]
    assert [each.cosine for each in found] == [pytest.approx(0.96), pytest.approx(0.8)]
    assert [each.person for each in index().find(np.array([-1, 0], np.float32), count=9)] == ["cat", "ben", "ann"]


def test_an_index_is_read_as_it_was_written(tmp_path):
    index().save(tmp_path / "people.npz")
    found = FaceIndex.load(tmp_path / "people.npz")
    assert found.names == index().names
    assert np.array_equal(found.embeddings, index().embeddings)
    many = FaceIndex(list(map(str, range(3000))), np.ones((3000, 128), np.float32))  # 1.5 MB
    many.save(tmp_path / "many.npz")
    assert FaceIndex.load(tmp_path / "many.npz").names == many.names
    FaceIndex([], np.zeros((0, 2), np.float32)).save(tmp_path / "empty.npz")
    assert len(FaceIndex.load(tmp_path / "empty.npz")) == 0


@pytest.mark.parametrize(
    "arrays",
    [
        {"names": np.frombuffer(b"a\nb", np.uint8)},
        {"names": np.frombuffer(b"a\nb", np.uint8), "embeddings": np.zeros((3, 2), np.float32)},
        {"names": np.frombuffer(b"a\xff", np.uint8), "embeddings": np.zeros((1, 2), np.float32)},
        {"names": np.array([1, 2]), "embeddings": np.zeros((2, 2), np.float32)},
        {"names": np.frombuffer(b"a", np.uint8), "embeddings": np.zeros((1, 2))},
    ],
)
def test_other_files_are_no_index(tmp_path, arrays):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FormatError, match="not an index of faces"):
        FaceIndex.load(tmp_path / "x.npz")


def test_an_embedding_of_another_network_is_refused():
    with pytest.raises(UsageError, match="made by another network"):
        index().find(np.zeros(3, np.float32))


@pytest.mark.parametrize("dims", [(2, 4), (1_000_000, 0)])
def test_a_small_file_of_many_names_takes_no_memory_for_them(tmp_path, dims):
    path = tmp_path / "index.npz"
    np.savez_compressed(path, names=np.full(999_999, ord("\n"), np.uint8), embeddings=np.ones(dims, np.float32))
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="1,000,000 names for embeddings"):
            FaceIndex.load(path)
        assert tracemalloc.get_traced_memory()[1] < 6 << 20  # a list of them takes 8 MB
    finally:
        tracemalloc.stop()
