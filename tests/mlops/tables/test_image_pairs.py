"""Pairs of images that a file names: every form, and what is refused with its line."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import pytrtplugins as ptp
from pytrtplugins.errors import FormatError, NoDataError, UsageError
from pytrtplugins.mlops.tables import ImagePairs, VerificationTask, fold_accuracy, verify
from pytrtplugins.vision import save_image

from .people import network, photos

LFW = (
    "2\t2\nann\t1\t2\nben\t1\t2\nann\t1\tben\t1\nann\t2\tben\t2\ncat\t1\t2\nann\t1\t3\ncat\t1\tben\t2\ncat\t2\tann\t3\n"
)


@pytest.fixture
def folder(tmp_path):
    """Photos of three people under the names that LFW gives."""
    names = {"s1": "ann", "s2": "ben", "s3": "cat"}
    for name, image in photos(people=3).items():
        person, number = name.removesuffix(".png").split("/")
        path = tmp_path / "lfw" / names[person] / f"{names[person]}_{int(number) + 1:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_image(image, path)
    return tmp_path


def written(folder, text, name="pairs.txt"):
    path = folder / "lfw" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def told(pairs):
    return [
        (pairs.names[a], pairs.names[b], bool(same))
        for a, b, same in zip(pairs.pairs.first, pairs.pairs.second, pairs.pairs.same, strict=True)
    ]


ANN, BEN, CAT = ([f"{name}/{name}_000{number}.png" for number in (1, 2, 3)] for name in ("ann", "ben", "cat"))
WANTED = [
    (ANN[0], ANN[1], True),
    (BEN[0], BEN[1], True),
    (ANN[0], BEN[0], False),
    (ANN[1], BEN[1], False),
    (CAT[0], CAT[1], True),
    (ANN[0], ANN[2], True),
    (CAT[0], BEN[1], False),
    (CAT[1], ANN[2], False),
]
FOLDS = [0, 0, 0, 0, 1, 1, 1, 1]


def lines(separator, folds=True):
    cells = [
        (a, b, str(int(same)), *([str(f)] if folds else [])) for (a, b, same), f in zip(WANTED, FOLDS, strict=True)
    ]
    return "".join(separator.join(row) + "\n" for row in cells)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (LFW, "pairs.txt"),
        (LFW.replace("\n", "\r\n"), "pairs.txt"),
        (lines(" "), "pairs.txt"),
        (lines(","), "pairs.csv"),
        ("first,second,same,fold\n\n" + lines(", "), "pairs.CSV"),
    ],
)
def test_every_form_gives_the_same_pairs_and_folds(folder, text, name):
    found = ImagePairs(written(folder, text, name))
    assert told(found) == WANTED
    assert found.pairs.folds.tolist() == FOLDS
    assert len(found) == len(set(found.names)) == 7
    image = photos(people=3)["s1/0.png"]
    assert np.array_equal(found.image(ANN[0]), image)


@pytest.mark.parametrize(("text", "name"), [(lines(" ", folds=False), "a.txt"), (lines(",", folds=False), "a.csv")])
def test_a_list_without_folds_has_none(folder, text, name):
    found = ImagePairs(written(folder, text, name))
    assert told(found) == WANTED
    assert found.pairs.folds is None


def test_one_number_at_the_head_of_lfws_form_means_that_there_are_no_folds(folder):
    found = ImagePairs(written(folder, "1\nann 1 2\nann 1 ben 1\n"))
    assert told(found) == [WANTED[0], WANTED[2]]
    assert found.pairs.folds is None


def test_images_may_be_in_another_folder(folder):
    path = folder / "pairs.txt"
    path.write_text(LFW)
    assert told(ImagePairs(path, folder / "lfw")) == WANTED
    with pytest.raises(NoDataError, match=r"line 2: there is no image 'ann/ann_0001.jpg'.*\nDo: .*--image-root DIR"):
        ImagePairs(path)


def test_the_digest_changes_with_a_pair_and_with_an_image(folder):
    path = written(folder, LFW)
    before = ImagePairs(path).digest()
    assert ImagePairs(path).digest() == before
    save_image(photos(seed=1)["s1/0.png"], folder / "lfw" / ANN[0])
    after = ImagePairs(path).digest()
    assert after != before
    assert ImagePairs(written(folder, LFW.replace("ann\t1\t3", "ann\t2\t3"))).digest() != after


BAD = [
    (LFW.replace("2\t2\n", "2\t3\n"), 1, "tells of 12 pairs, and 8 lines follow"),
    (LFW.replace("ben\t1\t2\n", "ben\t1\tann\t1\n"), 3, "expected a name and two numbers"),
    (LFW.replace("ann\t2\tben\t2", "ann\t2\t3"), 5, "expected a name and a number, twice"),
    (LFW.replace("cat\t1\t2", "cat\t1\t99999999999"), 6, "expected a name and two numbers"),
    (LFW.replace("cat\t1\t2", "cat\tone\t2"), 6, "expected a name and two numbers"),
    (LFW.replace("cat\t1\t2", "cat\t1\t1"), 6, "expected two images, found 'cat/cat_0001.png' twice"),
    (f"{ANN[0]} {ANN[1]} 1\n\n{ANN[0]} {BEN[0]}\n", 3, "expected two images, 1 or 0"),
    (f"{ANN[0]} {ANN[1]} 2\n", 1, "expected two images, 1 or 0"),
    (f"{ANN[0]} {ANN[1]} 1 0\n{ANN[0]} {BEN[0]} 0\n", 2, "in each line, or in none"),
    (f"{ANN[0]} ../x.png 1\n{ANN[0]} {BEN[0]} 0\n", 1, "expected an image in the folder"),
    (f"{ANN[0]} /etc/passwd 1\n{ANN[0]} {BEN[0]} 0\n", 1, "expected an image in the folder"),
]


@pytest.mark.parametrize(("text", "line", "said"), BAD)
def test_a_wrong_line_is_named(folder, text, line, said):
    path = written(folder, text)
    with pytest.raises(FormatError, match=f"line {line}: .*{said}") as caught:
        ImagePairs(path)
    assert caught.value.path == path
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected pairs of the same and pairs of different ones"),
        ("0 0\n", "expected pairs of the same and pairs of different ones"),
        (f"{ANN[0]} {ANN[1]} 1\n", "expected pairs of the same and pairs of different ones"),
        (f"{ANN[0]} {ANN[1]} 1 0\n{ANN[0]} {BEN[0]} 0 7\n", "different ones in fold 0"),
        (f"{ANN[0]} {ANN[1]} 1 0\n{ANN[0]} {BEN[0]} 0 0\n", "expected 2 to 1,000 folds, found 1"),
        (b"\xff\xfe1 0", "expected a text in UTF-8: not UTF-8 in line 1; it seems to be UTF-16"),
    ],
)
def test_a_file_as_a_whole_may_be_wrong(folder, text, said):
    with pytest.raises(FormatError, match=said) as caught:
        ImagePairs(written(folder, text))
    assert caught.value.line == (1 if isinstance(text, bytes) else None)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("first,second,same\na.png,b.png,yes\n", 2, "expected two images, 1 or 0"),
        ("a.png,b.png,-1\n", 1, "expected two images, 1 or 0"),
        ('"a.png"x,b.png,1\n', 1, "not comma-separated values"),
        ("a" * 200_000 + ",b.png,1\n", 1, "not comma-separated values"),
    ],
)
def test_a_wrong_line_of_a_table_is_named(folder, text, line, said):
    with pytest.raises(FormatError, match=f"line {line}: {said}"):
        ImagePairs(written(folder, text, "pairs.csv"))


@pytest.mark.parametrize("name", ["no\0thing.png", "n" * 5000, "ann"])
def test_names_that_are_no_files_are_missing_images(folder, name):
    with pytest.raises(NoDataError, match="line 1: there is no image"):
        ImagePairs(written(folder, f"{name} {ANN[1]} 1\n{ANN[0]} {BEN[0]} 0\n"))


def test_a_missing_list_is_an_error(tmp_path):
    with pytest.raises(NoDataError, match="cannot be read"):
        ImagePairs(tmp_path / "pairs.txt")


# --- accuracy ------------------------------------------------------------------------------------------------------------


def by_loops(similarity, same, folds):
    """Every threshold on the other folds, the lowest of the best ones, half way down to the next similarity."""

    def balanced(places, threshold):
        right: dict[bool, list[bool]] = {True: [], False: []}
        for place in places:
            right[bool(same[place])].append((similarity[place] >= threshold) == same[place])
        return sum(Fraction(int(sum(told)), len(told)) for told in right.values()) / 2

    found = []
    for fold in sorted(set(folds)):
        others = [place for place in range(len(same)) if folds[place] != fold]
        values = sorted({similarity[place] for place in others})
        scores = [balanced(others, value) for value in values]
        best = scores.index(max(scores))
        threshold = (values[best] + values[max(best - 1, 0)]) / 2
        found.append(float(balanced([place for place in range(len(same)) if folds[place] == fold], threshold)))
    return np.mean(found), np.std(found, ddof=1) / len(found) ** 0.5


@pytest.mark.parametrize("seed", range(5))
def test_accuracy_by_folds_is_that_of_plain_loops(seed):
    random = np.random.default_rng(seed)
    same, folds = np.tile([True, True, False], 40), np.repeat(np.arange(10), 12)
    similarity = np.round(random.normal(same * 0.5, 0.4), 1)  # with many that are equal
    found = fold_accuracy(similarity, same, folds)
    assert (found.mean, found.error) == pytest.approx(by_loops(similarity, same, folds.tolist()))


def test_a_fold_does_not_choose_its_own_threshold():
    similarity = np.array([0.9, 0.8, 0.2, 0.1])  # each fold is told apart, but not by the threshold of the other
    same, folds = np.array([True, False, True, False]), np.array([0, 0, 1, 1])
    assert verify(similarity[:2], same[:2]).balanced_accuracy == 1
    assert fold_accuracy(similarity, same, folds).mean == 0.5


def test_verification_looks_at_these_pairs_only(folder):
    task = VerificationTask(ImagePairs(written(folder, LFW)), pixels="0..255")
    engine = ptp.build(network(), engine="reference", progress=False)
    figures, _ = task.measure(engine, None)
    similarity = []
    with engine.create_context() as context:

        def embedding(name):
            x = task.data.image(name).transpose(2, 0, 1)[None].astype(np.float32)
            row = context.run({"data": x})["embedding"][0].astype(np.float64)
            return row / np.linalg.norm(row)

        for first, second, _ in WANTED:
            similarity.append(embedding(first) @ embedding(second))
    same = np.array([same for *_, same in WANTED])
    wanted = verify(np.array(similarity), same)
    assert figures["balanced_accuracy"] == wanted.balanced_accuracy
    assert figures["tpr_at_01"] == wanted.tpr_at_01
    mean, error = by_loops(similarity, same, FOLDS)
    assert (figures["fold_accuracy"], figures["fold_error"]) == pytest.approx((mean, error))
    assert [each.title for each in task.figures][3:5] == ["balanced accuracy, 2 folds", "its standard error"]
    assert {each.key for each in task.figures} == set(figures)


def test_pairs_calibrate_on_other_images_only(folder, faces):
    task = VerificationTask(ImagePairs(written(folder, LFW)), pixels="0..255")
    engine = ptp.build(network(), engine="reference", progress=False)
    with pytest.raises(UsageError, match=r"need images to calibrate on.*\nDo: pytrt table --calibration"):
        task.calibration(engine.inputs, 1)
    assert len(VerificationTask(task.data, faces, "0..255").calibration(engine.inputs, 8)[0]["data"]) == 8
    assert task.inputs(engine.inputs, 20)["data"].shape == (20, 3, 16, 16)
