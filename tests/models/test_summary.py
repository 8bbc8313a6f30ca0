"""The line at the end of a run on many images."""

from pytrtplugins.engines.base.detection import Timings
from pytrtplugins.models import summary
from tests.clock import Clock


def test_rates_and_percentiles_are_those_of_known_times(monkeypatch):
    """Runs of 1, 2, ... 100 ms, of which a quarter is the network's; 100 images in 8 s."""
    clock = Clock()
    monkeypatch.setattr(summary, "time", clock)
    found = summary.Summary()
    for total in range(1, 101):
        found.add([None] * (total % 2), Timings(0.25 * total, 0.25 * total, 0.5 * total))
    clock.now += 8
    assert str(found) == "100 images, 50 detections: 12.5 images/s; a run: median 50.5 ms, p99 99.0 ms"
