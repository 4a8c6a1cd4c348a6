"""A part of the tokens in words: the whole bucket that it is, and what there is where nothing is."""

from pathlib import Path

import pytest
from support.edge_runs import made
from support.pages_open import Open, plain

from ratioscope.app.dashboard.model.view import view
from ratioscope.app.pages.slice_absences import wrong_part
from ratioscope.app.presentation.slice_names import part_words, term_words
from ratioscope.ingest.rows.part import Only, Part


def test_a_bucket_is_named_as_a_whole() -> None:
    assert term_words(Only("position", "2")) == "position in the response [2, 4)"
    assert term_words(Only("probability", "0.5")).endswith("[0.5, 0.75)")
    assert term_words(Only("lag", "6")) == "version lag 6" and term_words(Only("my own", "x")) == "my own x"
    either = (Only("lag", "6"), Only("lag", "7"))
    assert part_words(Part((either,))) == "version lag 6 or version lag 7"
    assert (
        part_words(Part((either, (Only("replica", "a"),)))) == "(version lag 6 or version lag 7) and engine replica a"
    )


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("foo", "foo is not a slice of this run; wanted slice=key, with a slice of position, probability, lag"),
        ("?", "wanted slice=key"),
        ("lag", "wanted lag=key: 0, "),
        ("lag=77", "lag has no key 77; it has "),
        (
            "replica=vllm-3",
            "replica is not available, because the rows have no replica; pass replica= to Collector.log",
        ),
        ("token_id=3", "is not a slice"),
        ("lag=6", ""),
        ("lag=6 and foo=1", "foo is not a slice of this run; wanted slice=key"),
        ("lag=6 or lag=77", "lag has no key 77; it has "),
        ("lag=6 or lag=0 and position=4", "need parentheses"),
        ("(lag=6 or lag=0) and position=4", ""),
        ("finish_reason=stop", "finish_reason is not available"),
    ],
)
def test_what_was_typed_in_vain_is_answered_with_what_there_is(runs: Path, typed: str, says: str) -> None:
    found = wrong_part(view(str(made(runs, "stale"))), typed)
    assert says in found and bool(found) == bool(says)


def test_a_page_says_it_in_red_and_names_its_part_as_a_whole(opened: Open) -> None:
    app = opened("overview", "stale", only="lag")
    assert ":red[" in "".join(caption.value for caption in app.caption) and "wanted lag" in plain(app)
    assert "only tokens of position in the response [2, 4)" in plain(opened("overview", "stale", only="position=2"))
    assert "Other pages show only position in the response [2, 4)" in plain(opened("where", "stale", only="position=2"))
