"""A part of the tokens in words: the whole bucket that it is, and what there is where nothing is."""

from pathlib import Path

import pytest
from support.edge_runs import made
from support.pages_open import Open, plain

from ratioscope.app.dashboard.model.slice_absences import wrong_part
from ratioscope.app.dashboard.model.view import view
from ratioscope.app.presentation.slice_names import Only, part_words


def test_a_bucket_is_named_as_a_whole() -> None:
    assert part_words(Only("position", "2")) == "position in the response [2, 4)"
    assert part_words(Only("probability", "0.5")).endswith("[0.5, 0.75)")
    assert part_words(Only("lag", "6")) == "version lag 6" and part_words(Only("my own", "x")) == "my own x"


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
