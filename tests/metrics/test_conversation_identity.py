"""Classes of turns by their ids alone: laws, and TRL's own rule written out as it stands there."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.analysis.conversation_identity import FORK_TOKENS, Drift, Span, answers_in, drifts, handed_on

few_ids = st.lists(st.integers(0, 3), max_size=6)
parts = st.lists(st.tuples(few_ids, st.lists(st.integers(0, 3), min_size=1, max_size=6)), min_size=1, max_size=4)


def laid_out(turns: Sequence[tuple[list[int], list[int]]]) -> tuple[list[int], list[Span], list[list[int]]]:
    """The ids of (context, answer) pairs, the places of the answers, and the ids that a faithful rendering gives."""
    ids, answers, made = list[int](), list[Span](), list[list[int]]()
    for context, answer in turns:
        ids = [*ids, *context]
        made.append(ids)
        answers.append((len(ids), len(ids) + len(answer)))
        ids = [*ids, *answer]
    return ids, answers, [*made, ids]


@given(parts)
def test_ids_that_rendering_gives_are_clean(turns: list[tuple[list[int], list[int]]]) -> None:
    ids, answers, made = laid_out(turns)
    assert list(drifts(ids, answers, made, ends=True)) == []


@given(parts, st.data())
def test_one_id_that_is_rendered_otherwise_realigns_its_own_turn_alone(
    turns: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    ids, answers, made = laid_out(turns)
    turn = data.draw(st.integers(0, len(answers) - 1))
    place = data.draw(st.integers(answers[turn][0], answers[turn][1] - 1))
    other = [[*own[:place], 9, *own[place + 1 :]] if len(own) > place else own for own in made]
    assert list(drifts(ids, answers, other)) == [Drift(turn, "realigned", place, (ids[place],), (9,))]


@given(parts, st.data())
def test_one_id_that_is_added_before_an_answer_forks_its_turn_alone(
    turns: list[tuple[list[int], list[int]]], data: st.DataObject
) -> None:
    ids, answers, made = laid_out(turns)
    turn = data.draw(st.integers(0, len(answers) - 1))
    place = answers[turn][0]
    other = [[*own[:place], 9, *own[place:]] if at >= turn else own for at, own in enumerate(made)]
    assert list(drifts(ids, answers, other)) == [Drift(turn, "forked", place, (), (9,))]


def test_an_answer_that_loses_as_many_ids_as_trl_allows_is_forked() -> None:
    for length, kind in ((FORK_TOKENS - 1, "realigned"), (FORK_TOKENS, "forked")):
        ids = [1, *[2] * length]
        (found,) = drifts(ids, [(1, len(ids))], [[1], [1]])
        assert (found.kind, found.place, len(found.lost)) == (kind, 1, length)


def test_a_history_that_is_rewritten_forks_the_turn_whose_prompt_has_it() -> None:
    ids, answers, made = laid_out([([1], [2]), ([3], [4]), ([5], [6])])
    made[2] = [1, 9, 3, 4, 5]
    found = list(drifts(ids, answers, [*made[:3], [1, 9, 3, 4, 5, 6]]))
    assert [(each.turn, each.kind, each.place) for each in found] == [(2, "forked", None)]


def test_given_ids_at_the_beginning_of_an_answer_are_no_difference() -> None:
    assert not list(drifts([1, 2, 3], [(2, 3)], [[1], [1, 2, 3]]))
    assert not list(drifts([1, 2, 3], [(1, 3)], [[1, 2], [1, 2, 3]]))


def test_an_end_is_missed_only_where_it_must_be_there() -> None:
    assert not list(drifts([1, 2], [(1, 2)], [[1], [1, 2, 7]]))
    assert list(drifts([1, 2], [(1, 2)], [[1], [1, 2, 7]], ends=True)) == [Drift(0, "realigned", 2, (), (7,))]


@given(few_ids, few_ids.filter(bool), few_ids)
def test_a_prompt_that_is_handed_on_has_the_class_that_trl_gives(
    before: list[int], answer: list[int], prompt: list[int]
) -> None:
    held = [*before, *answer]
    matched = 0
    while matched < min(len(held), len(prompt)) and held[matched] == prompt[matched]:
        matched += 1
    drift = len(held) - matched
    wanted = "clean" if drift == 0 else "realigned" if matched >= len(before) and drift < 1024 else "forked"
    assert handed_on(held, (len(before), len(held)), prompt) == wanted


def test_runs_of_sampled_tokens_are_the_answers() -> None:
    assert answers_in(None, 3, 2) == [(3, 5)] and answers_in(None, 3, 0) == []
    assert answers_in([False, True, True, False, True], 3, 5) == [(4, 6), (7, 8)]
