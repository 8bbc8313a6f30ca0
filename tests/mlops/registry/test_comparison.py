"""What differs between two versions, and where they come from."""

from dataclasses import replace

import pytest

from pytrtplugins.calibration import CalibrationTable
from pytrtplugins.errors import ModelRegistryError
from pytrtplugins.mlops.registry.card import write_html
from pytrtplugins.mlops.registry.comparison import compare
from pytrtplugins.mlops.registry.lineage import trace


def table(tmp_path, name, **amax):
    path = tmp_path / f"{name}.cache"
    CalibrationTable({tensor: value / 127 for tensor, value in amax.items()}, version="8.6.1").write(path)
    return path


def test_only_what_differs_is_shown_and_the_tensor_that_changed_most_first(registry, engine_file, tmp_path):
    first = registry.add(
        engine_file("a", b"a"),
        name="scale",
        cache=table(tmp_path, "a", same=1.0, little=1.0, much=1.0, old=2.0),
        figures={"map50": 0.5, "ms": 3},
        licence="MIT",
    )
    second = registry.add(
        engine_file("b", b"longer"),
        name="scale",
        cache=table(tmp_path, "b", same=1.0, little=1.1, much=0.1, new=2.0),
        figures={"map50": 0.6},
        licence="MIT",
    )
    found = compare(registry, first, second)
    assert found.facts == {"networks.built": (first.networks["built"], second.networks["built"])}
    assert found.figures == {"map50": (0.5, 0.6), "ms": (3, None)}
    assert found.sizes["engine"] == (first.files["engine"].bytes, first.files["engine"].bytes + 5)
    assert [each.tensor for each in found.calibration] == ["new", "old", "much", "little"]
    assert [each.a for each in found.calibration[:2]] == [None, 2.0]
    assert found.calibration[2].ratio == pytest.approx(0.1)
    assert found.tensors == 3


def test_without_a_table_nothing_is_said_of_tensors(filled):
    found = compare(filled, filled.get("scale", 1), filled.get("scale", 2))
    assert (found.tensors, found.calibration) == (None, ())


def test_a_digest_leads_to_every_version_that_has_it(registry, engine_file):
    photos = "ab" * 32
    for number in (1, 2, 3):
        registry.add(
            engine_file(f"{number}", b"%d" % number), name="scale", data={"shards": photos} if number > 1 else {}
        )
    assert [each.version.version for each in trace(registry, photos[:8])] == [2, 3]
    (found,) = trace(registry, registry.get("scale", 3).digest)
    assert [each.version for each in found.ancestors] == [2, 1]
    assert (found.version.data, found.stage) == ({"shards": photos}, None)
    assert trace(registry, "scale:3") == (found,)
    with pytest.raises(ModelRegistryError, match="no version has the digest"):
        trace(registry, "cd" * 32)


def test_a_model_whose_name_looks_like_a_digest_is_found_by_it(registry, engine_file):
    registry.add(engine_file(), name="deadbeef")
    assert trace(registry, "deadbeef")[0].version.name == "deadbeef"


def test_the_page_has_the_facts_and_no_markup_of_a_note(registry, engine_file, tmp_path):
    made = registry.add(engine_file(), name="scale", note="<script>alert(1)</script>", figures={"map50": 0.5})
    registry.promote("scale", why="first & best")
    write_html(made, registry.history("scale"), tmp_path / "card.html")
    text = (tmp_path / "card.html").read_text("utf-8")
    assert made.digest in text
    assert "first &amp; best" in text
    assert "<script" not in text


@pytest.mark.timeout(20)
@pytest.mark.parametrize("parent", [2, 3])
def test_a_version_that_says_it_followed_itself_or_a_later_one_has_no_ancestors(filled, parent):
    filled.folder.write_manifest(replace(filled.get("scale", 2), parent=parent))
    (found,) = trace(filled, "scale:2")
    assert found.ancestors == ()
