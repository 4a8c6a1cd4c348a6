"""A part of the tokens: its text, and its statistics against a loop over the tokens and against the statistics on record."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.edge_runs import made

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.part_rows import part_sequences
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.jobs.part_job import PartResults, PartWork, part_digests
from ratioscope.ingest.rows.part import MOST_TERMS, Only, Part, part_of, part_text, terms_of
from ratioscope.ingest.run import Run, open_run
from ratioscope.ingest.statistics.metric_columns import distribution_frame
from ratioscope.metrics.frame import metric_frame

WORDS = ("a", " ", "and", "or", "(", ")", "%", "=", "lag=", " and lag=1", "\u202e", "\n")
KEYS = st.lists(st.sampled_from(WORDS), min_size=1).map("".join)
TERMS = st.builds(Only, st.sampled_from(["lag", "replica", "group_id"]), KEYS)
GROUPS = st.lists(TERMS, min_size=1, max_size=3).map(tuple)


@given(st.lists(GROUPS, min_size=1, max_size=3).map(tuple))
def test_every_part_survives_its_text(groups: tuple[tuple[Only, ...], ...]) -> None:
    assert part_of(part_text(Part(groups))) == Part(groups)


def test_a_text_without_a_whole_term_is_no_part() -> None:
    assert [part_of(text) for text in ("", "  ", "?", "lag", "lag=", "=x", "lag=1 and replica=")] == [None] * 7
    assert terms_of("lag=1 and replica=") == [("lag", "1"), ("replica", "")]


def test_unclear_texts_are_refused_with_an_example() -> None:
    for text in ("lag=1 and lag=2 or lag=3", "lag=1 or lag=2 and replica=a"):
        with pytest.raises(ConfigError, match="need parentheses"):
            part_of(text)
    with pytest.raises(ConfigError, match="closing parenthesis"):
        part_of("(lag=1 or lag=2")
    with pytest.raises(ConfigError, match=f"at most {MOST_TERMS}"):
        part_of(" and ".join(["lag=1"] * (MOST_TERMS + 1)))


def test_terms_are_removed_and_replaced() -> None:
    one, two, other = Only("lag", "1"), Only("lag", "2"), Only("replica", "a")
    part = Part(((one, two), (other,)))
    assert part.without(two) == Part(((one,), (other,))) and Part(((one,),)).without(one) is None
    assert part.with_key(Only("lag", "7")) == Part(((other,), (Only("lag", "7"),)))
    assert part.written is None and Part(((one,),)).written == one and Part(((Only("rank", "0"),),)).written is None


@pytest.mark.parametrize("text", ["lag=6 and position=4", "lag=6 or lag=0", "(lag=6 or lag=0) and probability=0.5"])
def test_a_part_is_what_a_loop_over_the_tokens_finds(tmp_path: Path, text: str) -> None:
    run = open_run(made(tmp_path, "stale"))
    results = read(run, text, tmp_path)
    frame = metric_frame(results.statistics(part_digests(run, "mismatch")))
    wanted = {step: loop(run, step, text) for step in run.steps}
    assert any(wanted.values())
    for step, values in wanted.items():
        row = frame.filter(step=step)
        assert len(row) == bool(values)
        if values:
            weights = np.exp(values)
            assert row["mismatch/tokens"][0] == len(values)
            assert row["mismatch/kl_k3"][0] == pytest.approx(float(np.mean(weights - 1 - np.array(values))), rel=1e-6)
            assert row["mismatch/mean_weight_token"][0] == pytest.approx(float(weights.mean()), rel=1e-6)
            found = distribution_frame(results.statistics(part_digests(run, "mismatch")), "token", "mismatch")
            assert found.filter(step=step)["count"].sum() == len(values)


@pytest.mark.parametrize("slice_name", ["lag", "position", "probability"])
def test_a_part_of_one_term_has_the_statistics_on_record(tmp_path: Path, slice_name: str) -> None:
    run = open_run(made(tmp_path, "stale"))
    known = run.metrics(("step", slice_name))
    key = known[slice_name].cast(pl.String).mode()[0]
    found = metric_frame(read(run, f"{slice_name}={key}", tmp_path).statistics(part_digests(run, "mismatch")))
    wanted = known.filter(pl.col(slice_name).cast(pl.String) == key)
    assert found["step"].to_list() == wanted["step"].to_list()
    both = [name for name in wanted.columns if name.startswith("mismatch/") and name in found.columns]
    assert len(both) > 20
    for name in both:
        if wanted[name].null_count() < len(wanted):
            np.testing.assert_allclose(found[name].to_numpy(), wanted[name].to_numpy(), rtol=1e-9, atol=1e-12)


def test_sequences_with_a_token_of_the_part_are_counted(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, "stale"))
    step, text = run.steps[-1], "position=4 or position=8"
    found = part_sequences(run, step, "mismatch", whole(text))
    assert found["matching"].sum() == len(loop(run, step, text)) > 0 and (found["matching"] > 0).all()


def test_what_was_read_once_is_kept_also_where_no_token_is(tmp_path: Path) -> None:
    run = open_run(made(tmp_path, "stale"))
    read(run, "lag=6 and lag=7", tmp_path)
    again = PartResults(whole("lag=6 and lag=7"), "mismatch", Cache(tmp_path / "cache"))
    digests = part_digests(run, "mismatch")
    assert again.ledger.missing(digests, run.steps) == [] and again.statistics(digests).is_empty()
    changed = digests | {run.steps[0]: "other rows"}
    assert again.ledger.missing(changed, run.steps) == [run.steps[0]]


def read(run: Run, text: str, folder: Path) -> PartResults:
    """The part, read in whole."""
    results = PartResults(whole(text), "mismatch", Cache(folder / "cache"))
    work = PartWork(run, results, run.steps)
    for piece in work.pieces:
        work.do(piece)
    work.save()
    return results


def whole(text: str) -> Part:
    part = part_of(text)
    assert part is not None
    return part


def loop(run: Run, step: int, text: str) -> list[float]:
    """The mismatch of each unmasked token of the part, by plain loops."""
    groups = {
        "lag=6 and position=4": [["lag=6"], ["position=4"]],
        "lag=6 or lag=0": [["lag=6", "lag=0"]],
        "(lag=6 or lag=0) and probability=0.5": [["lag=6", "lag=0"], ["probability=0.5"]],
        "position=4 or position=8": [["position=4", "position=8"]],
    }[text]
    rows = run.tokens([step]).collect().to_dicts()
    kept = [row for row in rows if row["mask"] is not False and row["mismatch"] is not None]
    return [row["mismatch"] for row in kept if all(any(has(row, term) for term in group) for group in groups)]


def has(row: dict[str, Any], term: str) -> bool:
    name, _, key = term.partition("=")
    if name == "lag":
        return bool(row["trainer_version"] - row["rollout_version_min"] == int(key))
    if name == "position":
        return bool(int(key) <= row["position"] < 2 * int(key))
    return bool(0.5 <= math.exp(row["rollout_logprob"]) < 0.75)
