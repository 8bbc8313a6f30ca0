"""The JSON says what the search found."""

import json
import os

import pytest

from pytrtplugins.errors import FormatError
from pytrtplugins.precision import Network, parse_tolerance, read_report, search, to_dict, write_json
from tests.precision.planted import cancelling, overflowing, samples


def found(model):
    return search(Network(model, "reference"), samples(model, 1), parse_tolerance("cosine=0.9995"), "fp16")


@pytest.fixture(scope="module")
def result():
    """Of a network with layers that are treated."""
    return found(cancelling())


def test_the_json_holds_every_layer_and_comes_back(tmp_path):
    result = found(overflowing())
    write_json(result, tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    data = read_report(tmp_path / "report.json")
    assert data == to_dict(result)
    assert [row["name"] for row in data["before"]] == [layer.name for layer in result.before]
    assert data["offenders"] == ["conv3"]
    assert float(data["final_before"]) == float("inf")
    assert sum(data["before"][0]["histogram"]) == 800


def test_the_json_has_the_figures_of_every_layer(result):
    data = to_dict(result)
    for part, layers in (("before", result.before), ("after", result.after)):
        for row, layer in zip(data[part], layers, strict=True):
            for key in ("name", "op_type", "own", "total", "amax", "clipped", "histogram_range", "limit"):
                assert row[key] == getattr(layer, key)
            assert row["histogram"] == list(layer.histogram)
    assert [data[name] for name in ("final_before", "final", "holds", "runs")] == [
        result.final_before,
        result.final,
        True,
        result.runs,
    ]


def test_reports_of_up_to_64_mib_are_read(result, tmp_path):
    path, whole = tmp_path / "x.json", json.dumps(to_dict(result))
    path.write_text(whole + " " * 100_000)
    read_report(path)
    path.write_text(whole)
    os.truncate(path, (64 << 20) + 1)
    with pytest.raises(FormatError, match="67,108,864 bytes"):
        read_report(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["steps"][0]["tried"].append(["pin", 1]),
        lambda data: data["steps"][0]["tried"].append([1, 1, 1]),
        lambda data: data["steps"][0]["tried"].append(["pin", "much", 1]),
        lambda data: data["steps"][0]["tried"].append(["pin", 1, "much"]),
        lambda data: data["steps"][0]["tried"].append("pin"),
        lambda data: data["reverted"].append(["add"]),
        lambda data: data["reverted"].append(["add", 1]),
        lambda data: data["reverted"].append("ab"),
        lambda data: data["before"][0].update(histogram=[]),
        lambda data: data["after"][0].update(histogram=[1, "2"]),
        lambda data: data.update(format=2),
    ],
)
def test_rows_of_another_form_are_refused(result, tmp_path, change):
    data = json.loads(json.dumps(to_dict(result)))
    (tmp_path / "x.json").write_text(json.dumps(data))
    read_report(tmp_path / "x.json")
    change(data)
    (tmp_path / "x.json").write_text(json.dumps(data))
    with pytest.raises(FormatError, match="not the figures of a precision search"):
        read_report(tmp_path / "x.json")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2, "before": [], "after": []}', '{"format": 1, "before": [1], "after": []}']
)
def test_another_file_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FormatError, match=r"(?s)x\.json: .*not the figures of a precision search"):
        read_report(tmp_path / "x.json")


def parts_of(data):
    """Each kind of object in a report, one of each."""
    layer, step = next(iter(data["layers"].values())), data["steps"][0]
    return {"file": data, "before": data["before"][0], "after": data["after"][0], "layers": layer, "steps": step}


@pytest.mark.parametrize("part", ["file", "before", "after", "layers", "steps"])
def test_a_figure_that_is_a_word_is_refused(result, tmp_path, part):
    path, whole = tmp_path / "x.json", json.dumps(to_dict(result))
    numbers = [key for key, value in parts_of(json.loads(whole))[part].items() if type(value) in (int, float)]
    assert numbers
    for key in numbers:
        data = json.loads(whole)
        parts_of(data)[part][key] = "much"
        path.write_text(json.dumps(data))
        with pytest.raises(FormatError, match=f"{key}: .*much"):
            read_report(path)


@pytest.mark.parametrize("change", ["missing", "of another type"])
@pytest.mark.parametrize("part", ["file", "before", "after", "layers", "steps"])
def test_a_report_without_one_of_its_figures_or_with_another_type_is_refused(result, tmp_path, part, change):
    path, whole = tmp_path / "x.json", json.dumps(to_dict(result))
    for key in parts_of(json.loads(whole))[part].keys() - {"offenders", "op_type"}:  # these may be missing
        data = json.loads(whole)
        if change == "missing":
            del parts_of(data)[part][key]
        else:
            parts_of(data)[part][key] = {} if isinstance(parts_of(data)[part][key], list) else []
        path.write_text(json.dumps(data))
        with pytest.raises(FormatError, match=key):
            read_report(path)
