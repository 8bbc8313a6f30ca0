"""How many replicas a cluster runs."""

import pytest

from pytrtplugins.errors import UsageError
from pytrtplugins.serving.scale import Scale, read_replicas


@pytest.mark.parametrize(
    ("text", "least", "most", "autoscaled"), [("2", 2, 2, False), ("1:8", 1, 8, True), ("4:4", 4, 4, False)]
)
def test_replicas_are_a_number_or_two(text, least, most, autoscaled):
    scale = Scale(**read_replicas(text))
    assert (scale.min_replicas, scale.max_replicas, scale.autoscaled) == (least, most, autoscaled)


@pytest.mark.parametrize("text", ["", "0:", ":8", "1-8", "-1", "1:8:9", "99999"])
def test_other_texts_are_refused(text):
    with pytest.raises(UsageError, match="such as 1:8"):
        read_replicas(text)


@pytest.mark.parametrize(
    "wrong",
    [{"min_replicas": 0}, {"min_replicas": 8, "max_replicas": 2}, {"gpus": -0.5}, {"cpus": True}, {"memory_mib": 1}],
)
def test_values_out_of_range_are_refused_with_their_name(wrong):
    with pytest.raises(UsageError, match=f"Scale.({'|'.join(wrong)})"):
        Scale(**wrong)


def test_as_many_replicas_at_most_as_at_least_is_a_fixed_number():
    assert not Scale(min_replicas=3, max_replicas=3).autoscaled
    assert Scale(min_replicas=3, max_replicas=4).autoscaled
