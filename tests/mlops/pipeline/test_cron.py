"""Schedules are checked field by field, as Argo's reader of cron does."""

import pytest

from pytrtplugins.errors import PipelineError
from pytrtplugins.mlops.pipeline import Pipeline, Step
from pytrtplugins.mlops.pipeline.cron import schedule_problems


@pytest.mark.parametrize(
    "text",
    ["0 3 * * *", "*/15 0-23/2 1,15 JAN-mar MON-FRI", "59 23 31 12 6", "0 0 1 1 0", "5/10 * ? * sun,3-5", "0 0 29 2 *", "0 0 31 4 1",
     "0  3 * *  *", "*/60 */24 */31 */12 */7", "@daily", "@hourly", "@weekly", "@monthly", "@yearly", "@annually", "@midnight"],
)  # fmt: skip
def test_what_argo_takes_is_taken(text):
    assert list(schedule_problems(text)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("60 * * * *", "minute: expected 0 to 59, found '60'"),
        ("-1 * * * *", "minute: expected numbers, ranges such as 1-5 and steps such as */2, found '-1'"),
        ("* 24 * * *", "hour: expected 0 to 23, found '24'"),
        ("* * 0 * *", "day of the month: expected 1 to 31, found '0'"),
        ("* * 32 * *", "day of the month: expected 1 to 31, found '32'"),
        ("* * * 13 *", "month: expected 1 to 12, or JAN to DEC, found '13'"),
        ("* * * JANUARY *", "month: expected 1 to 12, or JAN to DEC, found 'JANUARY'"),
        ("* * * * 7", "day of the week: expected 0 to 6, or SUN to SAT, found '7'"),
        ("* * * * JAN", "day of the week: expected 0 to 6, or SUN to SAT, found 'JAN'"),
        ("MON * * * *", "minute: expected 0 to 59, found 'MON'"),
        ("*/0 * * * *", "minute: expected a step from 1 to 60, found '0'"),
        ("*/61 * * * *", "minute: expected a step from 1 to 60, found '61'"),
        ("* */x * * *", "hour: expected a step from 1 to 24, found 'x'"),
        ("30-10 * * * *", "minute: the range 30-10 ends before it begins"),
        ("* * * * FRI-MON", "day of the week: the range FRI-MON ends before it begins"),
        ("1,,2 * * * *", "minute: expected numbers, ranges such as 1-5 and steps such as */2, found ''"),
        ("1-2-3 * * * *", "minute: expected numbers, ranges such as 1-5 and steps such as */2, found '1-2-3'"),
        ("* * L * *", "day of the month: expected 1 to 31, found 'L'"),
        ("* * * * 1#2", "day of the week: expected numbers, ranges such as 1-5 and steps such as */2, found '1#2'"),
        ("٣ * * * *", "minute: expected 0 to 59, found '٣'"),
        ("0 0 30 2 *", "day of the month: no month of 2 has a day 30: it would never run"),
        ("0 0 31 FEB,4,6 ?", "day of the month: no month of FEB,4,6 has a day 31: it would never run"),
        ("0 3 * *", "expected five fields of cron, such as \"0 3 * * *\", found '0 3 * *'"),
        ("0 0 3 * * *", "expected five fields of cron, such as \"0 3 * * *\", found '0 0 3 * * *'"),
        ("@often", "expected five fields of cron, such as \"0 3 * * *\", or one of @yearly, @annually, @monthly, @weekly, @daily, "
                   "@midnight, @hourly, found '@often'"),
        ("", "expected five fields of cron, such as \"0 3 * * *\", found ''"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_named_by_field(text, problem):
    assert list(schedule_problems(text)) == [problem]


def test_every_field_that_is_wrong_is_named():
    fields = [problem.partition(":")[0] for problem in schedule_problems("60 24 32 13 7")]
    assert fields == ["minute", "hour", "day of the month", "month", "day of the week"]


def test_a_pipeline_with_such_a_schedule_is_refused_with_its_line(tmp_path):
    path = tmp_path / "pipeline.yaml"
    path.write_text("name: demo\nschedule: 61 3 * * *\nsteps:\n  a: {command: x, outputs: [o]}\n")
    with pytest.raises(PipelineError) as caught:
        Pipeline.load(path)
    assert caught.value.problems == ((2, "minute: expected 0 to 59, found '61'"),)
    with pytest.raises(PipelineError, match="hour: expected 0 to 23"):
        Pipeline("demo", (Step("a", ("x",), outputs=("o",)),), schedule="* 99 * * *")
