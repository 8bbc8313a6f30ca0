"""Figures of verification, compared with plain loops over all thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytrtplugins.errors import UsageError
from pytrtplugins.mlops.tables.verification import cosines, fold_accuracy, normalized, pairs_of, verify


def rates(similarity, same, threshold):
    """Shares of same and of different pairs that are accepted from a threshold on."""
    accepted = [value >= threshold for value in similarity]
    true = sum(a and s for a, s in zip(accepted, same, strict=True)) / sum(same)
    false = sum(a and not s for a, s in zip(accepted, same, strict=True)) / (len(same) - sum(same))
    return true, false


def by_loops(similarity, same):
    found = [rates(similarity, same, threshold) for threshold in [*similarity, 2.0]]
    balanced = max((true + 1 - false) / 2 for true, false in found)
    loose, strict = (max(true for true, false in found if false <= limit + 1e-12) for limit in (0.01, 0.001))
    return balanced, loose, strict


values = st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0])


@given(st.lists(st.tuples(values, st.booleans()), min_size=2, max_size=40))
def test_figures_are_those_of_plain_loops_also_with_equal_similarities(pairs):
    similarity, same = np.array([v for v, _ in pairs]), np.array([s for _, s in pairs])
    if same.all() or not same.any():
        return
    found = verify(similarity, same)
    balanced, loose, strict = by_loops(similarity.tolist(), same.tolist())
    assert found.balanced_accuracy == pytest.approx(balanced)
    assert (found.tpr_at_01, found.tpr_at_001) == (pytest.approx(loose), pytest.approx(strict))
    assert (found.pairs, found.same) == (len(pairs), same.sum())


def test_false_positives_up_to_the_rate_are_allowed():
    random = np.random.default_rng(0)
    similarity, same = random.random(3000), np.arange(3000) < 1000
    found = verify(similarity, same)
    negatives = similarity[~same]
    assert (negatives > found.threshold).sum() == 2  # 0.001 of 2,000
    assert found.tpr_at_001 == (similarity[same] > found.threshold).mean()


def test_embeddings_that_separate_people_are_perfect():
    labels = np.array([0, 0, 1, 1, 2])
    embeddings = np.eye(3)[labels] + 0.01
    first, second, same = pairs_of(labels)
    assert list(zip(first, second, strict=True)) == [(i, j) for i in range(5) for j in range(i + 1, 5)]
    found = verify(cosines(embeddings, first, second), same)
    assert (found.balanced_accuracy, found.tpr_at_001) == (1.0, 1.0)


def test_rows_have_length_one_and_zeros_stay():
    found = normalized(np.array([[3.0, 4.0], [0.0, 0.0]]))
    assert found.tolist() == [[0.6, 0.8], [0.0, 0.0]]


def test_too_many_images_one_kind_of_pairs_and_nan_are_refused():
    with pytest.raises(UsageError, match="12,000 images, found 12,001"):
        pairs_of(np.zeros(12001, np.int64))
    for labels in ([0, 0, 0], [0, 1, 2]):
        with pytest.raises(UsageError, match="at least two labels"):
            pairs_of(np.array(labels))
    with pytest.raises(UsageError, match="both kinds"):
        verify(np.array([0.5]), np.array([True]))
    with pytest.raises(UsageError, match="infinite or no numbers"):
        verify(np.array([0.5, np.nan]), np.array([True, False]))


@pytest.mark.parametrize("most", [4, 3])
def test_so_many_images_are_taken_and_no_more(monkeypatch, most):
    monkeypatch.setattr("pytrtplugins.mlops.tables.verification._MOST", most)
    if most == 4:
        assert len(pairs_of(np.array([0, 0, 1, 1]))[0]) == 6
    else:
        with pytest.raises(UsageError, match="at most 3 images, found 4"):
            pairs_of(np.array([0, 0, 1, 1]))


def test_accuracy_by_folds_is_that_of_the_threshold_of_the_other_folds():
    """Fold 0 is told apart between 2 and 3, fold 1 between 4 and 5: each errs at the other's threshold by half of its pairs of a kind."""
    similarity = np.array([1.0, 2, 3, 4, 3, 4, 5, 6])
    same = np.array([False, False, True, True] * 2)
    folds = np.array([0] * 4 + [1] * 4)
    found = fold_accuracy(similarity, same, folds)
    # the others' threshold is 4.5 for fold 0, which refuses both of the same; 2.5 for fold 1, which accepts all
    assert (found.mean, found.error) == (0.5, 0)
    found = fold_accuracy(np.array([1.0, 2, 3, 4, 1, 2.75, 3, 4]), same, folds)
    assert (found.mean, found.error) == (pytest.approx((1 + 0.75) / 2), pytest.approx(0.125))


def test_cosines_of_some_pairs_are_those_of_all(monkeypatch):
    from pytrtplugins.mlops.tables import verification

    rows = np.random.default_rng(0).standard_normal((9, 5))
    first, second = np.triu_indices(9, 1)
    everything = cosines(rows, first, second)
    monkeypatch.setattr(verification, "_AT_ONCE", 4)
    assert np.allclose(cosines(rows, first[:10], second[:10]), everything[:10])
