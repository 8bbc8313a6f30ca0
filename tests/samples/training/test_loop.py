"""The loop: precision, what stops it, and how it continues."""

from __future__ import annotations

import errno
import inspect
import math
import os
import resource
import signal
import socket
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytrtplugins.errors import ExecutionError, FormatError
from tests.samples.needs_torch import WITHOUT_RANKS, torch
from tests.samples.training.toy import ADAM, SGD, STEPS, SingleToy, Toy, advance, difference, make, state
from training import checkpoint
from training.checkpoint import Checkpoints
from training.loop import MEMORY, Loop, noted_signals
from training.ranks import Ranks
from training.schedule import Schedule

ALONE = Ranks(0, 1, torch.device("cpu"), False)
pytestmark = WITHOUT_RANKS


def place(folder: Path, said: list[str] | None = None) -> Checkpoints:
    return Checkpoints(folder, ALONE, warn=print if said is None else said.append)


@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
def test_a_resumed_run_gives_the_same_bits(tmp_path, optimizer):
    whole, first = advance(make(optimizer=optimizer), STEPS), advance(make(optimizer=optimizer), 3)
    checkpoints = place(tmp_path)
    first.save(checkpoints, {"rows": [{"loss": 0.5}]})
    assert checkpoints.wait()
    advance(first, 1)  # the copy is not touched by later steps
    second, (path, facts) = make(optimizer=optimizer), checkpoints.newest()
    torch.manual_seed(99)
    second.resume(checkpoints, path, facts)
    assert (second.step, facts["rows"]) == (3, [{"loss": 0.5}])
    assert difference(state(advance(second, STEPS - 3)), state(whole)) == 0
    assert torch.equal(second.measured, whole.measured)


def test_the_last_two_checkpoints_are_kept_and_nothing_else(tmp_path):
    checkpoints, loop = place(tmp_path), make()
    (tmp_path / ".step-000000009.part").mkdir()
    for _ in range(3):
        loop.advance()
        loop.save(checkpoints, {})
    checkpoints.wait()
    checkpoints = place(tmp_path)  # what a killed run left behind goes when the next begins
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000000002", "step-000000003"]


@pytest.mark.parametrize("damage", ["cut", "changed", "missing", "no facts"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    said: list[str] = []
    checkpoints, loop = place(tmp_path), make()
    for _ in range(2):
        loop.advance()
        loop.save(checkpoints, {})
    checkpoints.wait()
    file = next((tmp_path / "step-000000002").glob("*.distcp"))
    whole = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(whole[:-7])
        case "changed":
            file.write_bytes(whole[:-90] + bytes([whole[-90] ^ 1]) + whole[-89:])
        case "missing":
            file.unlink()
        case "no facts":
            (tmp_path / "step-000000002/facts.json").write_text("{}")
    path, facts = place(tmp_path, said).newest()
    assert (path.name, facts["step"]) == ("step-000000001", 1)
    assert "step-000000002" in said[0]
    file = next((tmp_path / "step-000000001").glob("*.distcp"))
    file.write_bytes(b"")
    with pytest.raises(FormatError, match=r"\nDo: begin anew"):
        place(tmp_path, said).newest()


def test_without_checkpoints_a_run_begins(tmp_path):
    assert place(tmp_path / "none").newest() is None


def test_a_checkpoint_of_another_network_is_refused(tmp_path):
    checkpoints, loop = place(tmp_path), advance(make(), 1)
    loop.save(checkpoints, {})
    checkpoints.wait()

    class Wider(Toy):
        def __init__(self):
            super().__init__()
            self.module.network.append(torch.nn.Linear(3, 3).double())

    with pytest.raises(FormatError, match="step-000000001: does not fit this network"):
        make(task=Wider()).resume(checkpoints, *checkpoints.newest())


def test_a_full_disk_leaves_the_old_checkpoint_and_says_what_to_do(tmp_path):
    """The limit of a file's size gives a write error as a full disk does."""
    said: list[str] = []
    checkpoints, loop = place(tmp_path, said), advance(make(), 1)
    loop.save(checkpoints, {})
    checkpoints.wait()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    advance(loop, 1)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
    try:
        loop.save(checkpoints, {})
        assert not checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    assert "could not be written" in said[0]
    assert "the last good one is" in said[0]
    assert "\nDo: make room" in said[0]
    loop.save(checkpoints, {})
    assert checkpoints.wait()
    assert checkpoints.newest()[1]["step"] == 2


def test_a_checkpoint_that_lacks_only_its_facts_was_not_written(tmp_path, monkeypatch):
    said: list[str] = []
    checkpoints, loop = place(tmp_path, said), advance(make(), 1)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_atomic", full)
        loop.save(checkpoints, {})
        assert not checkpoints.wait()
    assert not list(tmp_path.iterdir())
    assert "No space left on device; there is none yet.\nDo: make room" in said[0]


class Together(Ranks):
    """Ranks in threads of this process."""

    meeting, said = threading.Barrier(2), dict[int, list[float]]()

    def max_over_ranks(self, values):
        self.said[self.rank] = values
        self.meeting.wait(60)
        largest = [max(each) for each in zip(*self.said.values(), strict=True)]
        self.meeting.wait(60)
        return largest


@pytest.mark.parametrize("shared", [True, False])
def test_ranks_that_do_not_see_the_same_folder_are_told(tmp_path, shared):
    folders = [tmp_path / "a", tmp_path / ("a" if shared else "b")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    ranks = [Together(rank, 2, torch.device("cpu"), True) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = (
            each.exception(60)
            for each in [pool.submit(checkpoint._check_shared, *pair) for pair in zip(folders, ranks, strict=True)]
        )
    assert not list(folders[0].iterdir())
    if shared:
        assert (first, second) == (None, None)
        return
    assert "the machine of rank 1 does not see there what rank 0 writes" in str(first)
    assert f"{folders[1]}: machine {socket.gethostname()} does not see" in str(second)
    assert "\nDo: give an --output in a folder that all machines share" in str(second)


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_photos(tmp_path):
    task = Toy()
    task.poisoned = 2
    loop, checkpoints = make(task=task), place(tmp_path)
    with pytest.raises(ExecutionError, match=r"step 2 of rank 0: .* photos: photo-2-0, photo-2-1") as caught:
        loop.run(seconds=60, look=lambda: loop.save(checkpoints, {}), save=lambda: None)
    assert caught.value.step == 2
    checkpoints.wait()
    path, _ = checkpoints.newest()
    assert path.name == "step-000000002"
    with pytest.raises(ExecutionError):  # and nothing is saved afterwards
        loop.save(checkpoints, {})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_between_two_steps(number):
    loop, before = make(), signal.getsignal(number)

    def send():
        if loop.step == 2:
            os.kill(os.getpid(), number)

    with noted_signals() as signals:
        loop.run(seconds=60, look=send, save=lambda: None, signals=signals)
        assert (loop.step, loop.stopped) == (3, "signal")
        if number == signal.SIGINT:
            with pytest.raises(KeyboardInterrupt):  # who asks twice does not wait
                os.kill(os.getpid(), number)
    assert signal.getsignal(number) == before


def test_checkpoints_come_as_often_as_they_are_asked_for():
    saved: list[int] = []
    for every, wanted in ((0, [1, 2, 3, 4, 5, 6]), (60, [])):
        saved.clear()
        loop = make()
        loop.run(seconds=60, look=lambda: None, save=lambda: saved.append(loop.step), every=every)  # noqa: B023
        assert saved == wanted


def test_a_run_ends_with_its_schedule_or_its_time():
    loop = make()
    loop.run(seconds=60, look=lambda: None, save=lambda: None)
    assert (loop.step, loop.stopped) == (STEPS, "")
    loop = make()
    loop.run(seconds=0, look=lambda: None, save=lambda: None)
    assert (loop.step, loop.stopped) == (1, "time")


@pytest.mark.parametrize(("precision", "bound"), [("bf16", 2e-2), ("fp16", 2e-3)])
def test_lower_precision_stays_near(precision, bound):

    def run(name: str):
        return state(advance(make(task=SingleToy(), precision=name), STEPS))

    found = difference(run(precision), run("fp32"))
    assert 0 < found < bound


def test_an_overflow_in_fp16_changes_nothing_but_the_scale(tmp_path):
    loop = advance(make(task=SingleToy(overflow=1), precision="fp16"), 1)
    before, scale = state(loop), loop.precision.scaler.get_scale()
    loop.advance()
    assert loop.precision.scaler.get_scale() == scale / 2
    now = state(loop)
    assert all(torch.equal(before[name], now[name]) for name in before if name.startswith("module."))
    loop.check()
    checkpoints = place(tmp_path)
    loop.save(checkpoints, {})
    checkpoints.wait()
    again = make(task=SingleToy(), precision="fp16")
    again.resume(checkpoints, *checkpoints.newest())
    assert again.precision.scaler.state_dict() == loop.precision.scaler.state_dict()


def test_the_rate_warms_up_and_follows_a_cosine():
    schedule = Schedule(100, 2.0, warm_up=0.1, least=0.01)
    rates = [schedule.rate(step) for step in range(101)]
    assert rates[0] < 1e-4
    assert rates[5] == pytest.approx(1.0, rel=0.01)
    assert rates.index(max(rates)) == 10
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(0.02)


def test_the_page_shows_the_loop_as_it_is_and_it_fits_on_a_screen():
    page = (Path(__file__).parents[3] / "docs/explanation/training_engine.md").read_text(encoding="utf-8")
    parts = [textwrap.dedent(inspect.getsource(part)).strip() for part in (Loop.advance, Loop._gradients)]
    shown = "\n\n".join(parts)
    assert f"```python\n{shown}\n```" in page
    assert shown.count("\n") < 45


def test_a_gradient_that_overflows_is_left_out_of_the_mean():
    """In FP16 the first steps overflow until the loss scale fits; the mean of the others is printed."""
    for overflow in (0, 2):
        loop, norms = make(task=SingleToy(overflow=overflow), precision="fp16"), []
        for step in range(STEPS):
            loop.advance()
            norms.append(float(loop.last[-1]))
            assert math.isnan(loop.figures()[-1]) == (step == overflow == 0)
        assert not math.isfinite(norms.pop(overflow))
        mean = norms[0]
        for norm in norms[1:]:
            mean += (1 - MEMORY) * (norm - mean)
        assert loop.figures()[-1] == pytest.approx(mean, rel=1e-5)


def test_a_run_in_another_precision_goes_on_with_a_loss_scale_of_its_own(tmp_path):
    for before, now, scale in (("fp32", "fp16", 65536.0), ("fp16", "fp32", 1.0)):
        checkpoints = place(tmp_path / before)
        advance(make(task=SingleToy(), precision=before), 1).save(checkpoints, {})
        assert checkpoints.wait()
        loop = make(task=SingleToy(), precision=now)
        loop.resume(checkpoints, *checkpoints.newest())
        assert loop.precision.scaler.get_scale() == scale


@pytest.mark.parametrize(
    "change", [{"scale": 0.0}, {"scale": math.nan}, {"scale": "1"}, {"more": 1}, {"_growth_tracker": -1}]
)
def test_a_loss_scale_that_is_none_is_refused(tmp_path, change):
    checkpoints, loop = place(tmp_path), advance(make(task=SingleToy(), precision="fp16"), 1)
    loop.save(checkpoints, {})
    checkpoints.wait()
    path, facts = checkpoints.newest()
    with pytest.raises(FormatError, match=r"facts\.json: expected the loss scale as scale, growth_factor"):
        loop.resume(checkpoints, path, facts | {"scaler": facts["scaler"] | change})


class Planned(SingleToy):
    """Its loss is what a test says."""

    def __init__(self, losses) -> None:
        super().__init__()
        self.losses = losses
        self.module.forward = self.forward

    def forward(self, x, y):
        loss = y.mean() + 0 * sum(parameter.sum() for parameter in self.module.parameters())
        return loss, loss.detach()[None]

    def inputs(self, batch, step):
        _, (x, y) = super().inputs(batch, step)
        return step, (x, torch.full_like(y, self.losses(step)))


def falls_then_rises(step: int) -> float:
    return 4.0 if step < 20 else 1.0 if step < 60 else 9.0


@pytest.mark.parametrize(
    ("losses", "epoch", "first"),
    [
        (lambda step: 4.0 if step < 20 else 9.0, 30, True),  # rises, and stays there
        (lambda step: 4.0 if step < 20 else 9.0, 200, False),  # for less than an epoch
        (lambda step: 4.0 if step < 20 else 3.9, 30, False),
        (lambda step: 4.0, 30, False),
        (lambda step: 4.0 if step < 20 else 50.0 if step == 70 else 3.0, 30, False),  # one step
        (falls_then_rises, 30, True),
        (lambda step: 4.0 if step < 20 else 9.0, 0, False),  # nobody watches
    ],
)
def test_a_loss_that_stays_above_its_start_for_an_epoch_is_said_once(tmp_path, losses, epoch, first):
    said, task = list[str](), Planned(losses)
    loop = make(task=task, steps=200, epoch=epoch, warn=said.append)
    if epoch == 30 and first:  # what is known of the start goes on with the run
        advance(loop, 50)
        loop.save(checkpoints := place(tmp_path), {})
        checkpoints.wait()
        loop = make(task=task, steps=200, epoch=epoch, warn=said.append)
        loop.resume(checkpoints, *checkpoints.newest())
    loop.run(seconds=60, look=lambda: None, save=lambda: None)
    assert loop.step == 200
    assert len(said) == first
    if first:
        cause, do = said[0].split("\n")
        assert "the loss has been larger than at the start for 30 steps, an epoch or more" in cause
        assert "in the first 20 steps 4)" in cause
        assert do == "Do: stop it, and begin anew with a smaller learning rate than 0.1"


@pytest.mark.parametrize(("update", "shared"), [("replicated", True), ("independent", False)])
def test_figures_are_those_of_all_ranks(tmp_path, update, shared):
    """Each rank goes on with them, so that a checkpoint has them, too; independent networks have their own."""

    class Two(Ranks):
        def mean(self, values):
            return values + 1

    loop, checkpoints = advance(make(Two(0, 1, ALONE.device, False), variable_update=update), 2), place(tmp_path)
    own = loop.measured.clone()
    assert loop.figures() == (own + shared).tolist()
    loop.save(checkpoints, {})
    assert checkpoints.wait()
    again = make(variable_update=update)
    again.resume(checkpoints, *checkpoints.newest())
    assert torch.equal(again.measured, own + 2 * shared)


@pytest.mark.parametrize(("steps", "first"), [(1, 1), (10, 1), (60, 9), (200, 20), (90_000, 20)])
def test_the_start_of_a_loss_is_no_longer_than_half_the_warm_up(steps, first):
    """A rate that is too large blows the loss up within a few steps, which are no start to compare with."""
    loop = make(task=Planned(lambda step: 4.0 if step < first else 1e6), steps=steps)
    advance(loop, min(steps, 30))
    assert float(loop._losses[0]) == 4
