"""A sequence as JSON: small, strict, and the numbers of the run come back from it bit by bit."""

import json
import math
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.edge_runs import RUNS, made

from ratioscope.errors import SourceError
from ratioscope.ingest.rows import sequence_json as document
from ratioscope.ingest.run import Run, open_run


def _first(run: Run) -> tuple[pl.DataFrame, dict[str, object]]:
    """The tokens and the facts of the first sequence of the last step with rows."""
    step = next(step for step in reversed(run.steps) if len(run.sequences(step)))
    row = run.sequences(step).row(0, named=True)
    tokens = run.sequence(step, row["sequence_id"], row["minibatch"])
    return tokens, {**row, "run": run.name, "trainer": run.info.get("trainer")}


@pytest.mark.parametrize("name", [name for name in RUNS if name != "empty"])
def test_tokens_and_numbers_come_back_from_the_document(runs: Path, name: str) -> None:
    tokens, about = _first(open_run(made(runs, name)))
    text = document.sequence_json(tokens, about, texts=True)
    found = json.loads(text, parse_constant=_refused)
    assert found["tokens"] == found["of"] == len(tokens)
    assert document.sequence_metrics(found) == found["metrics"]
    again = document.sequence_tokens(found)
    both = [column for column in again.columns if again[column].null_count() < len(again)]
    kept = [column for column in both if column not in ("step", "attempt", "sequence_id", "minibatch")]
    assert_frame_equal(again.select(kept), tokens.select(kept), check_exact=True)


def test_the_numbers_are_those_of_the_run(runs: Path) -> None:
    tokens, about = _first(open_run(made(runs, "stale")))
    found = json.loads(document.sequence_json(tokens, about))
    for metric in ("kl_k3", "abs_log_ratio", "max_abs_log_ratio", "tokens"):
        assert found["metrics"][f"mismatch/{metric}"] == pytest.approx(about[f"mismatch/{metric}"], rel=1e-12)


def test_the_snippet_on_the_page_runs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens, about = _first(open_run(made(runs, "stale")))
    (tmp_path / "sequence.json").write_text(document.sequence_json(tokens, about))
    monkeypatch.chdir(tmp_path)
    shown: list[pl.DataFrame] = []
    exec(document.SNIPPET, {"print": shown.append})
    assert len(shown[0]) == len(tokens)


def test_a_window_keeps_its_positions_and_text_only_when_asked(runs: Path) -> None:
    tokens, about = _first(open_run(made(runs, "stale")))
    found = json.loads(document.sequence_json(tokens, about, first=3, most=4))
    assert document.sequence_tokens(found)["position"].to_list() == [3, 4, 5, 6]
    assert found["tokens"] == 4 and found["of"] == len(tokens) and "token_texts" not in found["columns"]
    assert "token_texts" in json.loads(document.sequence_json(tokens, about, texts=True))["columns"]


def test_numbers_that_json_has_not_are_spelled(runs: Path) -> None:
    run = open_run(made(runs, "holes"))
    text = document.sequence_json(run.sequence(5, "5-0", 0), {"step": 5, "sequence_id": "5-0"})
    found = json.loads(text, parse_constant=_refused)
    assert "nan" in found["columns"]["old_logprobs"]
    assert math.isnan(document.sequence_tokens(found)["old_logprob"][2])


def test_what_is_no_such_document_is_refused() -> None:
    with pytest.raises(SourceError, match="wanted 'ratioscope.sequence/1'"):
        document.sequence_records({"schema": "other"})
    with pytest.raises(SourceError, match="newer"):
        document.sequence_records({"schema": document.SCHEMA, "columns": {"new": []}})


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
