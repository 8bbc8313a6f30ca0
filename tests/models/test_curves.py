import re
import sys
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from pytrtplugins.errors import MissingExtraError, NoDataError, UsageError
from pytrtplugins.models import ClassResult, Evaluation, draw_curves
from pytrtplugins.models.curves import _escape_text
from pytrtplugins.vision import load_image


def row(name, objects, precision):
    """A class whose precision falls from ``precision`` by half its recall, until a recall of 0.8."""
    recalls = np.arange(101) / 100
    curve = tuple(np.where(recalls <= 0.8, precision * (1 - recalls / 2), 0).tolist()) if objects else ()
    figure = float(np.mean(curve)) if objects else float("nan")
    return ClassResult(name, figure, figure / 2, objects, 10 * objects, curve)


def evaluation(*rows):
    figures = [item.ap50 for item in rows if item.objects]
    mean = float(np.mean(figures)) if figures else float("nan")
    return Evaluation(mean, mean / 2, rows, 7, 1.0)


@pytest.fixture
def few():
    return evaluation(row("cat", 2, 0.6), row("dog", 5, 0.9), row("cow", 0, 0))


@pytest.fixture
def many():
    return evaluation(*(row(f"kind-{number}", 100 - number, number / 30) for number in range(20)))


def texts(path):
    """What an image says: matplotlib's SVG has each text as a comment, too."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def curve(path, identity):
    """A line of an SVG image as recalls and precisions: positions within the frame."""
    tree = ElementTree.parse(path)
    numbers = {}
    for name in (identity, "patch_2"):  # the second patch is the frame's background
        group = tree.find(f".//{{*}}g[@id='{name}']")
        steps = re.findall(r"[ML] (\S+) (\S+)", group.find("{*}path").get("d"))
        numbers[name] = np.array(steps, float)
    low, high = numbers["patch_2"].min(0), numbers["patch_2"].max(0)
    x, y = numbers[identity].T
    return (x - low[0]) / (high[0] - low[0]), (high[1] - y) / (high[1] - low[1]) * 1.02


def test_few_classes_are_all_named_with_their_figures(few, tmp_path):
    draw_curves(few, tmp_path / "curves.svg", title="net.onnx, cpu")
    labels = texts(tmp_path / "curves.svg")
    assert "net.onnx, cpu" in labels
    assert f"mAP50 {few.map50:.3f}: 7 images, 7 objects of 2 classes" in labels
    assert f"{few.map50:.3f}  mean of 2" in labels
    names = [text for text in labels if re.fullmatch(r"\d\.\d{3}  \w+ \(\d+\)", text)]
    assert names == [f"{few.classes[1].ap50:.3f}  dog (5)", f"{few.classes[0].ap50:.3f}  cat (2)"]


@pytest.fixture
def drawn(monkeypatch):
    """What an image's lines are made of: label → (colour, recalls, precisions)."""
    lines, plain = dict[str, Any](), Figure.legend
    lines["dashes"] = []

    def legend(self, *given, handles, **options):
        lines["dashes"] += [each.get_linestyle() for each in handles]
        lines.update((each.get_label(), (each.get_color(), *each.get_data())) for each in handles)
        return plain(self, *given, handles=handles, **options)

    monkeypatch.setattr(Figure, "legend", legend)
    return lines


def test_each_class_has_its_own_line_beside_its_name(few, tmp_path, drawn):
    draw_curves(few, tmp_path / "curves.svg")
    recalls = np.arange(82) / 100  # precision ends at 0.8
    for result, start, color in ((few.classes[0], 0.6, "C1"), (few.classes[1], 0.9, "C0")):  # the most frequent first
        found = drawn[f"{result.ap50:.3f}  {result.name} ({result.objects})"]
        assert found[0] == color
        np.testing.assert_allclose(found[1], recalls)
        np.testing.assert_allclose(found[2], np.append(start * (1 - recalls[:-1] / 2), 0))
    assert drawn.pop("dashes") == ["-"] * 3
    assert len(drawn) == 3  # with the mean


def test_of_many_classes_those_with_most_objects_are_named(many, tmp_path, drawn):
    draw_curves(many, tmp_path / "curves.svg")
    assert drawn["dashes"] == ["-"] * 7 + ["--"] * 2 + ["-"]  # the mean, six colours, two of them again, the others
    labels = texts(tmp_path / "curves.svg")
    assert [name for text in labels for name in re.findall(r"kind-\d+ ", text)] == [f"kind-{i} " for i in range(8)]
    assert "12 others" in labels


def test_the_black_line_is_the_mean_precision(few, tmp_path):
    draw_curves(few, tmp_path / "curves.svg")
    recalls, precision = curve(tmp_path / "curves.svg", "mean")
    np.testing.assert_allclose(recalls[[0, -1]], [0, 0.81], atol=1e-4)  # 0.81 is the first recall without precision
    expected = np.nanmean(few.precision_at_50, axis=1)
    np.testing.assert_allclose(precision, np.interp(recalls, np.arange(101) / 100, expected), atol=1e-4)


def test_a_full_recall_reaches_the_right_edge(tmp_path):
    perfect = replace(row("cat", 1, 1.0), precision_at_50=(1.0,) * 101)
    draw_curves(evaluation(perfect), tmp_path / "curves.svg")
    recalls, precision = curve(tmp_path / "curves.svg", "mean")
    np.testing.assert_allclose([recalls.min(), recalls.max()], [0, 1], atol=1e-4)
    np.testing.assert_allclose(precision, 1, atol=1e-4)


@pytest.mark.parametrize("name", ["_hidden", "$x^2$", "$", "a" * 300, "<b>&"])
def test_any_name_can_be_drawn(few, tmp_path, name):
    result = replace(few, classes=(replace(few.classes[0], name=name), *few.classes[1:]))
    draw_curves(result, tmp_path / "curves.svg", title=name)
    kept = name if len(name) <= 24 else name[:21] + "..."
    shown = kept.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert any(text.endswith(f"  {shown} (2)") for text in texts(tmp_path / "curves.svg"))


@pytest.mark.parametrize(("text", "shown"), [("a$cde", r"a\$cde"), ("abcdef", "ab...")])
def test_a_text_is_shortened_where_it_is_longer_than_its_limit(text, shown):
    assert _escape_text(text, 5) == shown


def test_a_title_of_72_letters_and_a_name_of_24_are_shown_whole(tmp_path):
    title, name = "t" * 72, "n" * 24
    draw_curves(evaluation(row(name, 2, 0.6), row(name + "n", 2, 0.6)), tmp_path / "curves.svg", title=title)
    shown = " ".join(texts(tmp_path / "curves.svg"))
    assert title in shown
    assert f" {name} (2)" in shown
    assert f" {name[:21]}... (2)" in shown


def test_the_suffix_chooses_the_format(few, many, tmp_path):
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")):
        draw_curves(few, tmp_path / f"curves{suffix}")
        assert (tmp_path / f"curves{suffix}").read_bytes().startswith(start)
    draw_curves(many, tmp_path / "many.png")
    assert load_image(tmp_path / "many.png").shape == (600, 1080, 3)


def test_the_legend_lies_outside_the_frame(many, tmp_path):
    draw_curves(many, tmp_path / "curves.svg")
    tree = ElementTree.parse(tmp_path / "curves.svg")
    frame = [float(x) for x, _ in re.findall(r"[ML] (\S+) (\S+)", tree.find(".//{*}g[@id='patch_2']/{*}path").get("d"))]
    legend = tree.find(".//{*}g[@id='legend_1']")
    places = [item.get("transform", "") for item in legend.findall("{*}g[@id]/{*}g[@transform]")]
    left = [float(x) for text in places for x in re.findall(r"translate\((\S+) ", text)]
    assert len(left) == 11  # its title and ten lines
    assert min(left) > max(frame)


@pytest.mark.parametrize(
    ("name", "message"),
    [("curves.gif", r"unknown suffix '\.gif'\. Known: \.png \.svg \.pdf"), ("none/curves.png", "Do: mkdir -p")],
)
def test_a_name_that_cannot_be_written_is_refused(few, tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        draw_curves(few, tmp_path / name)


def test_without_an_object_there_is_nothing_to_draw(tmp_path):
    with pytest.raises(NoDataError, match="no object"):
        draw_curves(evaluation(row("cat", 0, 0)), tmp_path / "curves.png")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_error_says_how_to_install_it(few, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r'Do: pip install "pytrtplugins\[cli\]"'):
        draw_curves(few, tmp_path / "curves.png")


def test_pyplot_is_left_alone(few, tmp_path):
    import matplotlib

    before = matplotlib.rcParams["backend"], "matplotlib.pyplot" in sys.modules
    draw_curves(few, tmp_path / "curves.png")
    assert (matplotlib.rcParams["backend"], "matplotlib.pyplot" in sys.modules) == before
