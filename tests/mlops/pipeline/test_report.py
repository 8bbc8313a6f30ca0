"""The report of a run says what ran, and nothing in a log or a name becomes part of the page."""

import math
import re
from html.parser import HTMLParser

import pytest

from pytrtplugins.mlops.pipeline.record import RunRecord, StepRecord
from pytrtplugins.mlops.pipeline.report import write_report
from pytrtplugins.mlops.pipeline.report_charts import figure_chart, seconds_text, step_times

EVIL = "</pre></td><script>alert(1)</script><img src=x onerror=alert(2)>&lt;\"'"


def run(number, *steps, state="done", **facts):
    """A run that took 100 seconds."""
    begin = 1e9 + 1000 * number
    return RunRecord(f"20261123T1000{number:02}.000Z-0000aa", "animals", state, begin, begin + 100, steps, **facts)


def step(name, begin=0.0, end=50.0, state="done", **facts):
    """A step of run 1, which ran between these seconds."""
    return StepRecord(name, state, False, 1e9 + 1000 + begin, 1e9 + 1000 + end, end - begin, 1, **facts)


class Read(HTMLParser):
    """What a browser makes of a page: elements, attributes, texts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = set(), set(), "", []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.text += data


def report(tmp_path, found, **facts):
    """The report of a run."""
    write_report(found, tmp_path, tmp_path / "report.html", **facts)
    return (tmp_path / "report.html").read_text()


def rows(page, title):
    """The cells of the table below a heading."""
    part = page.split(f"<h2>{title}</h2>")[1].split("</table>")[0]
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", part)[1:]]


def test_it_says_what_ran_and_what_was_reused(tmp_path):
    reused = StepRecord("shards", "done", reused=True, seconds=70.0, attempts=1, digest="ab" * 32)
    page = report(tmp_path, run(1, reused, step("build", after=("shards",)), StepRecord("package", after=("build",))))
    assert "1 step ran, 1 was reused (1 min 10 s saved), of 3." in page
    assert rows(page, "Steps") == [
        ["shards", "reused", "1 min 10 s", "1", "", "ab" * 6, ""],
        ["build", "done", "50 s", "1", "shards", "", ""],
        ["package", "not run", "", "", "build", "", ""],
    ]


def test_figures_and_parameters_stand_beside_the_last_run_that_came_to_its_end(tmp_path):
    before = run(0, step("eval", figures={"mAP50": 0.5, "p99_ms": 20.0}), parameters={"size": "smoke", "images": 20})
    before.save(tmp_path)
    now = run(1, step("eval", figures={"mAP50": 0.55, "p99_ms": 20.0}), parameters={"size": "full", "images": 20})
    page = report(tmp_path, now)
    assert rows(page, "Figures") == [
        ["mAP50", "0.5", "0.55", "+0.05", "+10.00%"],
        ["p99_ms", "20", "20", "0", ""],
    ]
    heads = [re.findall("<th(?: [^>]*)?>(.*?)</th>", part) for part in page.split("<table")]
    assert ["figure", "before", "this run", "difference", "in %"] in heads
    assert rows(page, "Parameters") == [["size", "full", "smoke"], ["images", "20", ""]]
    assert page.count("<tr class=marked>") == 2
    assert "eval.mAP50</b> 0.55" in page
    assert "eval.p99_ms</b>" not in page  # it never changed


def test_what_a_gate_found_stands_in_a_table_of_its_own(tmp_path):
    found = "p99 below 20 ms (bench.p99_ms 12.5 < 20 ms)"
    page = report(tmp_path, run(1, step("build"), step("gate", message=found)))
    assert rows(page, "Gates") == [["gate", found.replace("<", "&lt;")]]
    assert all(row[-1] == "" for row in rows(page, "Steps"))
    assert "<h2>Gates</h2>" not in report(tmp_path, run(2, step("build")))


def test_a_step_that_fails_without_a_word_has_no_empty_box(tmp_path):
    (tmp_path / "log.txt").write_text("\n")
    page = report(tmp_path, run(1, step("a", state="failed", log="log.txt"), state="failed"))
    assert "<pre>The step has printed nothing.</pre>" in page


def test_another_run_can_stand_beside(tmp_path):
    for number, value in ((0, 0.25), (1, 0.5)):
        run(number, step("eval", figures={"mAP50": value})).save(tmp_path)
    page = report(
        tmp_path,
        run(2, step("eval", figures={"mAP50": 1.0})),
        against=RunRecord.load(next(tmp_path.glob("runs/*00.*"))),
    )
    assert rows(page, "Figures") == [["mAP50", "0.25", "1", "+0.75", "+300.00%"]]


@pytest.mark.parametrize(
    ("before", "now", "shown"),
    [
        (0.0, 1.0, ["0", "1", "+1", ""]),
        (math.nan, math.nan, ["nan", "nan", "", ""]),
        (-2.0, -1.0, ["-2", "-1", "+1", "+50.00%"]),
        (1.0, math.inf, ["1", "inf", "", ""]),
    ],
)
def test_differences_of_awkward_figures(tmp_path, before, now, shown):
    page = report(tmp_path, run(1, step("a", figures={"x": now})), against=run(0, step("a", figures={"x": before})))
    assert rows(page, "Figures") == [["x", *shown]]


def test_many_figures_are_folded_with_the_nested_ones_last(tmp_path):
    nested = {f"classes.c{number}.ap": 0.5 for number in range(12)}
    before = run(0, step("eval", figures={**nested, "classes.c11.ap": 0.25, "mAP50": 0.5}))
    page = report(tmp_path, run(1, step("eval", figures={**nested, "mAP50": 0.5})), against=before)
    shown, folded = page.split("<details>")
    assert rows(shown, "Figures")[0][:3] == ["mAP50", "0.5", "0.5"]
    assert len(rows(shown, "Figures")) == 10
    assert "<summary>3 more, of which 1 changed</summary>" in folded
    assert folded.count("<tr class=marked>") == 1
    assert "<td>classes.c11.ap</td>" in folded


def test_a_failure_has_the_end_of_its_log(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/gate.txt").write_text(
        "".join(f"line {number}\n" for number in range(1000)) + "10%\r50%\r\x1b[31mred\x1b[0m\n"
    )
    page = report(
        tmp_path,
        run(1, step("gate", state="failed", log="logs/gate.txt", message="too slow\n  p99 is 30 ms"), state="failed"),
    )
    text = Read(page).text
    assert "too slow\n  p99 is 30 ms" in text
    assert rows(page, "Steps")[0][-1] == "too slow"
    assert "line 999\nred\n" in text
    assert "line 700" not in text
    assert "logs/gate.txt" in text


def test_a_hostile_log_name_or_value_stays_text(tmp_path):
    (tmp_path / "log.txt").write_bytes(f"{EVIL}\n\x1b]0;title\x07\x00\xff\n".encode("latin-1"))
    failed = step("gate", state="failed", log="log.txt", message=EVIL, digest=EVIL, figures={EVIL: 1.0}, after=(EVIL,))
    found = run(1, failed, state="failed", parameters={EVIL: EVIL}, machine={EVIL: EVIL}, command=(EVIL,))
    write_report(found, tmp_path, tmp_path / "report.html", against=run(0, step("gate", figures={EVIL: 2.0})))
    read = Read((tmp_path / "report.html").read_text())
    assert not read.tags & {"script", "img", "link", "iframe", "object"}
    assert not {name for name in read.attributes if name.startswith(("on", "src", "href"))}
    assert read.text.count("alert(1)") >= 8
    assert "\x1b" not in read.text
    assert "title\x07" not in read.text


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "link.txt"])
def test_a_log_outside_of_the_pipelines_folder_is_not_read(tmp_path, name):
    (tmp_path / "secret.txt").write_text("secret words")
    folder = tmp_path / "pipeline"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    page = report(folder, run(1, step("gate", state="failed", log=name), state="failed"))
    refused = "expected a regular file, found a link" if name == "link.txt" else "There is no log."
    assert refused in page
    assert "secret words" not in page


@pytest.mark.parametrize(
    ("log", "said"), [("", "There is no log"), ("gone.txt", "cannot be read"), (".", "cannot be read")]
)
def test_a_log_that_is_not_there_is_said(tmp_path, log, said):
    assert said in report(tmp_path, run(1, step("gate", state="failed", log=log), state="failed"))


def test_bars_stand_where_steps_ran():
    chart = step_times(run(1, step("a", 0, 25), step("b", 25, 100, "failed"), StepRecord("c", "done", reused=True)))
    assert re.findall(r'<b class="(\w+)" style="left:([\d.]+)%;width:([\d.]+)%"', chart) == [
        ("done", "0.00", "25.00"),
        ("failed", "25.00", "75.00"),
    ]
    assert '<em class="note">reused</em>' in chart


def test_times_below_the_bars_stand_where_they_are():
    """A quarter of two minutes is thirty seconds; only the outermost times are moved into the picture."""
    chart, times = step_times(run(1, step("a", 0, 120))), ["0", "30 s", "1 min 00 s", "1 min 30 s", "2 min 00 s"]
    shares = [f"{share}.00" for share in (0, 25, 50, 75, 100)]
    sides = [" class=first", "", "", "", " class=last"]
    marks = re.findall(r'<span( class=\w+)? style="left:([\d.]+)%">([^<]*)<', chart)
    assert marks == list(zip(sides, shares, times, strict=True))
    assert re.findall(r'<i style="left:([\d.]+)%">', chart) == shares
    for end, share, side in ((160, "93.75", " class=last"), (131, "91.60", "")):  # the last time needs 8 % of the width
        assert f'<span{side} style="left:{share}%">' in step_times(run(1, step("a", 0, end)))


@pytest.mark.parametrize("end", [None, math.nan, -math.inf, 1e308])
def test_a_run_that_was_killed_or_has_odd_times_is_drawn(tmp_path, end):
    odd = StepRecord("a", "running", False, 1e9, end, math.nan, 1)
    found = RunRecord(run(1).id, "animals", "running", 1e9, None, (odd,))
    assert "it was killed" in report(tmp_path, found)


def test_a_chart_leaves_out_what_is_no_number():
    chart = figure_chart("x", [1.0, math.nan, 3.0])
    assert chart.count("<circle") == 2
    assert "1 to 3 in 2 runs" in chart
    assert figure_chart("x", [2.0]) == figure_chart("x", []) == figure_chart("x", [math.nan, 1.0, 1.0]) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.0 s"), (9.94, "9.9 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (7384, "2 h 03 min"), (math.nan, "?")],
)
def test_times_are_written_as_people_read_them(seconds, text):
    assert seconds_text(seconds) == text
