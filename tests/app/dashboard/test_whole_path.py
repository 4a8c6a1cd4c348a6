"""From a real trainer to the report: what is shown are the numbers of the tensors that the trainer held."""

import json
import math
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from support.oracle import ERRORS, ORACLE, Tokens
from support.pages_open import charts, html, unopened, well
from support.tiny_trl import TrainingTrace, train

import ratioscope
from ratioscope.app.cli import main
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.dashboard.model.opened_runs import RUNS
from ratioscope.app.pages.pages import PAGES, Page
from ratioscope.record import GAPS

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

STEPS = 3


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingTrace, Path]:
    """A training on TRL's path for vLLM with a collector attached, and the folder it wrote."""
    folder = tmp_path_factory.mktemp("run") / "tiny"
    return train(folder, steps=STEPS, vllm_stub=True, vllm_importance_sampling_mode="token_truncate"), folder


def held(trace: TrainingTrace, step: int, gap: str) -> list[Tokens]:
    """The sequences of a step as the trainer's own tensors hold them."""
    names = {"rollout": "sampling_per_token_logps", "old": "old_per_token_logps", "current": "current"}
    earlier, later = (names[policy] for policy in GAPS[gap])
    sequences = []
    for batch in trace.batches:
        if batch["training"] and batch["global_step"] + 1 == step:
            of_current = GAPS[gap][1] == "current"
            columns = (batch[earlier], batch[later], batch["completion_mask"].bool(), batch["entropy"])
            rows = zip(*(column.float().tolist() for column in columns), strict=True)
            sequences += [Tokens(e, x, [bool(m) for m in mask], h if of_current else None) for e, x, mask, h in rows]
    return sequences


@pytest.mark.parametrize("gap", list(GAPS))
def test_every_metric_of_every_step_is_the_oracles_on_the_trainers_tensors(
    recorded: tuple[TrainingTrace, Path], gap: str
) -> None:
    trace, folder = recorded
    rows = ratioscope.open_run(folder).metrics().to_dicts()
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    compared = 0
    for row in rows:
        sequences = held(trace, row["step"], gap)
        for name, value, wanted in read(row, gap, sequences):
            # A spread that is read from sums of squares keeps half of the digits.
            close = pytest.approx(wanted, rel=1e-6, abs=1e-7 if name.endswith("_se") else 1e-9)
            assert value == close, f"{name} at step {row['step']}"
            compared += 1
    assert compared > STEPS * (20 if gap == "drift" else 50)


def read(row: dict[str, Any], gap: str, sequences: list[Tokens]) -> Iterator[tuple[str, float, float]]:
    """(name, ours, the oracle's) of every metric and standard error that is available."""
    for column, value in row.items():
        name = column.removeprefix(f"{gap}/")
        if name == column or value is None:
            continue
        oracle = ERRORS[name.removesuffix("_se")] if name.endswith("_se") else ORACLE[name]
        wanted = oracle(sequences)
        if math.isfinite(wanted):
            yield name, value, wanted


def test_what_trl_logged_of_the_mismatch_is_what_we_read(recorded: tuple[TrainingTrace, Path]) -> None:
    trace, folder = recorded
    rows = {row["step"]: row for row in ratioscope.open_run(folder).metrics().to_dicts()}
    logged = [entry for entry in trace.log_history if "sampling/sampling_logp_difference/mean" in entry]
    assert logged
    for entry in logged:
        row = rows[int(entry["step"])]
        assert row["mismatch/abs_log_ratio"] == pytest.approx(entry["sampling/sampling_logp_difference/mean"], rel=1e-4)
        assert row["mismatch/max_abs_log_ratio"] == pytest.approx(
            entry["sampling/sampling_logp_difference/max"], rel=1e-5
        )


def test_the_reports_of_it_are_built_and_agree_with_each_other(
    recorded: tuple[TrainingTrace, Path], tmp_path: Path
) -> None:
    _, folder = recorded
    for suffix in ("html", "md", "json"):
        assert main(["report", str(folder), "-o", str(tmp_path / f"tiny.{suffix}")]) == 0
    page = (tmp_path / "tiny.html").read_text()
    parser = HTMLParser()
    parser.feed(page)
    parser.close()
    data = json.loads((tmp_path / "tiny.json").read_text())
    sentence = data["verdict"]["title"]
    assert sentence in page and sentence in (tmp_path / "tiny.md").read_text()


def test_the_command_line_prints_a_row_per_step(
    recorded: tuple[TrainingTrace, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["metrics", str(recorded[1]), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert all(row["mismatch/kl_k3"] >= 0 for row in rows)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_every_page_of_the_dashboard_draws_it(
    recorded: tuple[TrainingTrace, Path], page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUNS, json.dumps([str(recorded[1])]))
    monkeypatch.setenv("PAGE", page.path)
    app = well(unopened().run())
    diagnoses().answer_all()
    well(app.run())
    assert charts(app) or "rs-reasons" in html(app) or app.get("arrow_data_frame") or app.dataframe
