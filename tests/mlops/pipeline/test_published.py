"""How a published output is known to be the same."""

from pytrtplugins.mlops.pipeline.published import _mark


def test_the_mark_of_a_folder_has_each_of_its_files(tmp_path):
    (tmp_path / "b").mkdir()
    for name in ("a", "b/c"):
        (tmp_path / name).write_text(name)
    mark = _mark(tmp_path)
    assert [name for name, *_ in mark] == ["a", "b/c"]
    (tmp_path / "b/c").write_text("longer")
    assert [name for (name, *_), other in zip(mark, _mark(tmp_path), strict=True) if [name, *_] != other] == ["b/c"]
    assert _mark(tmp_path / "none") == []
