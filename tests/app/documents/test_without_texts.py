"""A run that leaves without its texts: no file holds one, wherever the run has it; numbers and names stay."""

from pathlib import Path

import pytest
from support.paths import ROOT
from support.planted import FILE, WORD, leaks, planted

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.presentation.difference import difference, plain_difference
from ratioscope.app.presentation.without_texts import on_paper, outgoing
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.info import info


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("planted"))


@pytest.mark.parametrize(
    "words",
    [
        ("report",), ("report", "-o", "r.json"), ("bundle", "-o", "pages"), ("bundle", "-o", "b.zip"),
        ("export", "-o", "s.parquet", "--level", "sequence"), ("export", "-o", "t.jsonl", "--level", "token"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_nothing_that_is_written_without_texts_holds_one(
    words: tuple[str, ...], run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    verb, *rest = words
    option = [] if "b.zip" in rest else ["--no-text"]
    assert main([verb, str(run), *rest, *option]) == 0
    assert list(tmp_path.iterdir()) and leaks(tmp_path) == []


def test_a_run_without_texts_has_the_same_numbers_and_the_same_equal_ids(run: Path) -> None:
    raw = open_run(run)
    bare = outgoing(raw, text=False)
    assert outgoing(raw, text=True) is raw
    before, after = verdict_of(raw), verdict_of(bare)
    assert (before.word, before.evidence, before.coverage.share) == (after.word, after.evidence, after.coverage.share)
    assert "(malformed: " in before.coverage.why and "(malformed)" in after.coverage.why
    for step in raw.steps:
        own, named = raw.sequences(step), bare.sequences(step)
        assert (
            named["sequence_id"].n_unique() == len(own) and named["group_id"].n_unique() == own["group_id"].n_unique()
        )
        assert named.select(named.columns[-8:]).equals(own.select(own.columns[-8:]))
        assert set(named["sequence_id"]) >= {f"{step}-2", f"{step}-3"} and "10.0.0.7:8000" in named["replica"].to_list()
        first = named["sequence_id"][0]
        assert len(bare.sequence(step, first)) == 6 and bare.prompt_ids(step, first) == raw.prompt_ids(
            step, own["sequence_id"][0]
        )
    assert bare.info["config"]["lr"] == 1e-6 and bare.metrics(("replica",)).height == 2


def test_nothing_that_a_run_without_texts_says_of_itself_holds_one(run: Path) -> None:
    bare = outgoing(open_run(run), text=False)
    bare.sequences()
    said = info(bare), bare.notes, bare.rules, bare.weights[0], bare.tokens().collect().to_dicts()
    assert WORD not in str(said)
    told = bare.metrics(("replica",)), bare.statistics("replica"), bare.records().collect(), bare.sequences()
    assert WORD not in str([frame.to_dicts() for frame in told])
    assert FILE not in str(bare.quarantined) and FILE not in str(bare.uncommitted)


def test_two_runs_are_paired_by_the_same_prompts_with_and_without_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, healthy = (open_run(ROOT / "sample_data" / "runs" / name) for name in ("trl-vllm-stale", "trl-vllm-healthy"))
    monkeypatch.setattr(
        "ratioscope.ingest.analysis.run_comparison.cache_folder", lambda: tmp_path
    )  # kept by neither before
    bare = (on_paper(stale, text=False), on_paper(healthy, text=False))
    without = plain_difference(difference(bare[0], bare[1], "mismatch"))
    assert without["paired"]["key"] == "prompt_text"
    assert without["paired"] == plain_difference(difference(stale, healthy, "mismatch"))["paired"]
