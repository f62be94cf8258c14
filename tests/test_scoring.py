"""Scores: sums over branches, products along paths, sums over forms, in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest

from core import scoring
from core.schema import FieldDefinition
from core.scoring import branch_masses
from core.trie import FieldTrie, Fork, Form


def fork(*sizes):
    """A fork whose branches have so many tokens each."""
    branch = np.repeat(np.arange(len(sizes)), sizes)
    return Fork((), np.arange(len(branch)), branch, len(sizes))


def trie_of(choices, forks, forms):
    """`forms`: (choice, path) of each."""
    field = FieldDefinition("f", "enum", "", tuple(choices))
    made = tuple(Form(choice, (), b"", (), None) for choice, _ in forms)
    return FieldTrie(field, made, tuple(forks), tuple(tuple(path) for _, path in forms))


def decide(trie, rows, temperature, prior=None):
    masses = [None if row is None else branch_masses(fork, row) for fork, row in zip(trie.forks, rows, strict=True)]
    return scoring.decide(trie, masses, temperature, prior)


def flat(*scores, temperature=1.0):
    """One fork, one token a choice."""
    forms = [(i, [(0, i)]) for i in range(len(scores))]
    trie = trie_of([f"c{i}" for i in range(len(scores))], [fork(*[1] * len(scores))], forms)
    return decide(trie, [np.array(scores, dtype=np.float32)], temperature)


# --- masses ---


@pytest.mark.parametrize("sizes", [(1, 1), (3, 1, 2), (1,) * 255, (40, 1, 1, 7)])
def test_a_branchs_mass_is_the_sum_over_its_tokens(sizes):
    rows = np.random.default_rng(0).normal(-8, 4, sum(sizes)).astype(np.float32)
    start, expected = 0, []
    for size in sizes:
        expected.append(math.log(math.fsum(math.exp(float(p)) for p in rows[start : start + size])))
        start += size
    assert branch_masses(fork(*sizes), rows) == pytest.approx(expected, abs=1e-12)


def test_masses_far_below_the_smallest_number_stay_finite_and_exact():
    rows = np.array([-800.0, -800.0, -900.0], dtype=np.float32)
    assert branch_masses(fork(2, 1), rows) == pytest.approx([-800 + math.log(2), -900], abs=1e-12)


def test_masses_are_summed_in_double_precision():
    rows = np.array([np.float32(-1.0), *[np.float32(-17.5)] * 1000, np.float32(-2.0)], dtype=np.float32)
    expected = math.log(math.exp(-1.0) + 1000 * math.exp(-17.5))
    assert branch_masses(fork(1001, 1), rows)[0] == pytest.approx(expected, abs=1e-14)


# --- paths and forms ---


def test_a_score_is_the_product_of_the_masses_on_its_path():
    forms = [(0, [(0, 0), (1, 0)]), (1, [(0, 0), (1, 1)]), (2, [(0, 1)])]
    trie = trie_of(["BILLING", "BILLING_DISPUTE", "OTHER"], [fork(2, 1), fork(1, 1)], forms)
    decision = decide(trie, [np.log([0.3, 0.2, 0.4]), np.log([0.6, 0.3])], 1.0)
    assert np.exp(decision.scores) == pytest.approx([0.5 * 0.6, 0.5 * 0.3, 0.4])
    assert decision.probabilities == pytest.approx([0.3 / 0.85, 0.15 / 0.85, 0.4 / 0.85])
    assert decision.candidate_mass == pytest.approx(0.85)
    assert decision.value == "OTHER" and decision.levels == (2, 2, 1)


def test_the_forms_of_one_choice_are_summed():
    forms = [(0, [(0, 0)]), (0, [(0, 1), (1, 0)]), (1, [(0, 2)]), (1, [(0, 1), (1, 1)])]
    trie = trie_of([True, False], [fork(1, 1, 1), fork(1, 1)], forms)
    decision = decide(trie, [np.log([0.25, 0.5, 0.2]), np.log([0.1, 0.8])], 1.0)
    assert np.exp(decision.scores) == pytest.approx([0.25 + 0.05, 0.2 + 0.4])
    assert decision.value is False
    assert decision.levels == (1, 1)  # of the canonical forms, although the quoted ones lie deeper


# --- winner, temperature, probabilities ---


@pytest.mark.parametrize(
    "scores, winner",
    [((-1, -2), 0), ((-2, -1), 1), ((-1, -1), 0), ((-3, -1, -1), 1), ((-5,) * 9, 0), ((-900, -800), 1)],
)
def test_the_highest_score_wins_and_the_first_declared_of_equals(scores, winner):
    decision = flat(*scores)
    assert decision.winner == winner
    assert decision.top()[0][0] == decision.value == f"c{winner}"


@pytest.mark.filterwarnings("ignore:overflow encountered in divide")
@pytest.mark.parametrize("temperature", [1e-310, 1e-300, 1e-6, 0.5, 1.0, 7.0, 1e300])
def test_temperature_never_changes_the_winner_and_probabilities_sum_to_one(temperature):
    scores = (-12.0, -3.5, -3.4999, -800.0)
    decision = flat(*scores, temperature=temperature)
    assert decision.winner == 2
    assert math.fsum(decision.probabilities) == pytest.approx(1.0, abs=1e-12)
    assert decision.probability == max(decision.probabilities)
    assert decision.scores == flat(*scores).scores


def test_temperature_spreads_the_probabilities_as_written():
    decision = flat(-1.0, -2.0, -4.0, temperature=2.0)
    weights = [math.exp(-0.5), math.exp(-1.0), math.exp(-2.0)]
    assert decision.probabilities == pytest.approx([weight / sum(weights) for weight in weights])


def test_scores_at_minus_800_are_finite_and_still_compared():
    decision = flat(-800.0, -802.0, -1500.0)
    assert all(map(math.isfinite, decision.scores))
    assert decision.probabilities == pytest.approx([1 / (1 + math.exp(-2)), math.exp(-2) / (1 + math.exp(-2)), 0.0])
    assert decision.candidate_mass == 0.0


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("score", [float("nan"), float("-inf"), float("inf")])
def test_scores_that_are_no_numbers_are_an_error_that_names_the_field(score):
    with pytest.raises(
        ArithmeticError, match="field 'f': the model gives no finite scores; load it with another dtype"
    ):
        flat(-1.0, score)


def test_the_candidate_mass_never_exceeds_one():
    assert flat(math.log(0.5), math.log(0.5) + 1e-6).candidate_mass == 1.0


# --- forks that were not read ---


def boolean(true, false, quoted, quoted_true=None):
    """A boolean whose quoted forms were not read, or were."""
    forms = [(0, [(0, 0)]), (0, [(0, 2), (1, 0)]), (1, [(0, 1)]), (1, [(0, 2), (1, 1)])]
    trie = trie_of([True, False], [fork(1, 1, 1), fork(1, 1)], forms)
    below = None if quoted_true is None else np.log([quoted_true, 1 - quoted_true])
    return trie, [np.log([true, false, quoted]), below]


@pytest.mark.parametrize("temperature", [1e-300, 0.1, 0.2, 0.5, 1.0, 2.0, 10.0, 1e300])
@pytest.mark.parametrize("quoted_true", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.filterwarnings("ignore:overflow encountered in divide")
def test_what_unread_forms_can_add_is_bounded_at_every_temperature(temperature, quoted_true):
    for true, false, quoted in ((0.5, 0.1, 0.35), (0.5, 0.1, 1e-6), (0.4, 0.4, 0.1)):
        found = decide(*boolean(true, false, quoted), temperature)
        whole = decide(*boolean(true, false, quoted, quoted_true), temperature)
        for share, exact in zip(found.probabilities, whole.probabilities, strict=True):
            assert 0.0 <= share <= exact + 1e-12
        assert math.fsum(found.probabilities) + found.unread_mass == pytest.approx(1.0)
        assert found.candidate_mass == pytest.approx(true + false + quoted)


def test_a_little_that_was_not_read_leaves_a_cold_winner_certain():
    assert decide(*boolean(0.5, 0.1, 1e-6), 1e-3).probability == pytest.approx(1.0)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_no_number_at_the_first_fork_is_an_error_although_nothing_was_read_to_its_end():
    trie, (first, _) = boolean(0.5, 0.1, 0.3)
    only_quoted = trie_of([True, False], trie.forks, [(0, [(0, 2), (1, 0)]), (1, [(0, 2), (1, 1)])])
    with pytest.raises(ArithmeticError, match="no finite scores"):
        decide(only_quoted, [first * np.nan, None], 1.0)
    with pytest.raises(ArithmeticError, match="no finite scores"):
        decide(trie, [np.array([math.log(0.5), math.log(0.2), np.nan]), None], 1.0)


# --- what a server was not asked for ---


@pytest.mark.parametrize("unread", [False, True])
def test_what_was_not_asked_for_is_counted_and_bounded_by_what_its_forks_leave(unread):
    upper, lower = replace(fork(1, 1), unasked=5), replace(fork(1, 1), unasked=3)
    trie = trie_of("abc", [upper, lower], [(0, [(0, 0)]), (1, [(0, 1), (1, 0)]), (2, [(0, 1), (1, 1)])])
    rows = [np.log([0.6, 0.3]), None if unread else np.log([0.5, 0.25])]
    decision = decide(trie, rows, 1.0)
    missing = 0.1 if unread else 0.1 + 0.3 * 0.25  # at the first fork, and at the second times the way there
    assert (decision.unasked, decision.unasked_mass) == (5 if unread else 8, pytest.approx(missing, abs=1e-6))


def test_where_all_was_asked_for_nothing_is_missing():
    decision = flat(-1.0, -2.0)
    assert (decision.unasked, decision.unasked_mass) == (0, 0.0)
