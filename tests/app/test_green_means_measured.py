"""Every kind of record x every face: nothing is green of which the gap was not measured."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from support.known_runs import KINDS, STEPS, known_run, missing_steps
from support.pages_open import html
from support.pages_read import Read

from ratioscope.app.cli import main
from ratioscope.app.dashboard.model.diagnoses import diagnoses
from ratioscope.app.dashboard.model.view import view
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.export.sinks.prometheus import TextFile
from ratioscope.app.export.wandb.rows import STEP, step_rows
from ratioscope.app.pages.folder import summary_of
from ratioscope.app.pages.runs import COLOURS, WORDS
from ratioscope.app.presentation.theme import MARKS
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.run import open_run

Output = pytest.CaptureFixture[str]
EVERY = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """kind -> its run, made once."""
    root, made = tmp_path_factory.mktemp("known"), dict[str, Path]()

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = known_run(root / kind.replace(" ", "-"), kind)
        return made[kind]

    return of


@EVERY
def test_the_terminal_says_what_is_known(folder: Callable[[str], Path], kind: str, capsys: Output) -> None:
    recorded, run = KINDS[kind], str(folder(kind))
    capsys.readouterr()  # of a verb that made the run
    assert main(["info", run]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f": {recorded.word}: " in first and recorded.says in first
    assert main(["info", run, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["severity"], told["finding"]["severity"]) == (recorded.word, recorded.word)
    code = main(["diagnose", run])
    shown = capsys.readouterr().out
    assert code or f": {recorded.word}: " in shown.splitlines()[0]
    assert code or recorded.word != "not measured" or "nats/token at the" not in shown.split("\n\n")[0], (
        "a size of nothing"
    )


@EVERY
def test_a_gate_passes_only_what_was_measured(folder: Callable[[str], Path], kind: str, capsys: Output) -> None:
    recorded, run = KINDS[kind], str(folder(kind))
    assert main(["check", run]) == recorded.code
    assert f"verdict: {recorded.word}" in capsys.readouterr().out
    assert main(["check", run, "--allow-unmeasured"]) == (0 if recorded.code == 4 else recorded.code)
    capsys.readouterr()
    assert main(["check", run, "--json"]) == recorded.code
    assert json.loads(capsys.readouterr().out)["passed"] == (recorded.code == 0)


@EVERY
def test_report_and_lists_say_the_same_word(folder: Callable[[str], Path], kind: str) -> None:
    recorded = KINDS[kind]
    run = open_run(folder(kind))
    data = material(run)
    page, text, plain_report = html_report(data), markdown_report(data), json.loads(json_report(data))
    summary = summary_of(run)
    assert (summary.gap or recorded.gap) == data.gap == recorded.gap == next(iter(judged_first(run)), "mismatch")
    assert data.verdict.word == data.head.severity == recorded.word == summary.severity
    assert f"<title>{recorded.word}: " in page and f" {recorded.word}: " in text.splitlines()[0]
    assert plain_report["head"]["severity"] == recorded.word
    assert kind != "without the sampler" or data.verdict.remedy == "Pass rollout_logprobs= to Collector.log."
    assert all(recorded.says in re.sub(r"\s+", " ", whole) for whole in (data.verdict.sentence, text.replace("\\", "")))


@EVERY
def test_no_number_of_a_sink_is_that_of_health(folder: Callable[[str], Path], kind: str, tmp_path: Path) -> None:
    rows = list(step_rows(open_run(folder(kind)), settled_only=False))
    expected = {
        "healthy": {0},
        "watch": {1},
        "act": {2},
        "not measured": {-1},
        "partly measured": {-1} if len(rows) == STEPS else {0},
    }
    assert {row.severity for row in rows} == expected[KINDS[kind].word], "a step that was dropped whole has no row"
    file = tmp_path / "run.prom"
    TextFile(file, "run").write(rows[-1].step, {n: v for n, v in rows[-1].content().items() if n != STEP})
    assert f"{float(rows[-1].severity)}\n" in file.read_text() and "-1 not measured" in file.read_text()


@EVERY
def test_the_first_page_says_the_same(folder: Callable[[str], Path], kind: str, read: Read) -> None:
    word = KINDS[kind].word
    shown_run = view(str(folder(kind)))
    diagnoses().of(shown_run)
    diagnoses().answer_all()
    shown = html(read("overview", folder(kind)))
    assert f"<b>{MARKS[word]} {word}</b>" in shown and shown_run.judged_verdict().word == word
    assert word == "healthy" or "<b>● healthy" not in shown


def test_steps_that_nobody_recorded_are_part_of_the_verdict(tmp_path: Path, capsys: Output) -> None:
    run = missing_steps(tmp_path / "run")
    assert main(["check", str(run)]) == 4
    assert (
        "57.1% of the offered sequences were measured: 24 in 3 missing steps between 2 and 6" in capsys.readouterr().out
    )
    limits = tmp_path / "limits.toml"
    limits.write_text("measured = 0.5\n")
    assert main(["check", str(run), "--limits", str(limits)]) == 0
    (run / "ratioscope.toml").write_text("measured = 0.5\n")
    assert main(["check", str(run)]) == 0 and "50% must be measured" in capsys.readouterr().out


def test_a_run_that_recorded_nothing_passes_no_gate(tmp_path: Path, capsys: Output) -> None:
    from ratioscope.collectors.collector import Collector

    collector = Collector(tmp_path / "run")
    collector.log(step=1, rollout_logprobs=object(), old_logprobs=object())
    collector.close()
    assert main(["check", str(tmp_path / "run")]) == 4 and "not measured" in capsys.readouterr().out


def test_a_scalar_log_without_a_graded_number_is_not_measured(tmp_path: Path, capsys: Output) -> None:
    log = tmp_path / "metrics.jsonl"
    pl.DataFrame({"step": [1, 2, 3], "loss": [0.1, 0.2, 0.3], "rollout_probs_diff_mean": [0.01] * 3}).write_ndjson(log)
    assert main(["import", str(log), "-o", str(tmp_path / "run")]) in (0, 1)
    assert main(["check", str(tmp_path / "run")]) == 4 and "not measured" in capsys.readouterr().out


def test_rows_that_an_import_rejected_are_part_of_the_verdict(tmp_path: Path, capsys: Output) -> None:
    sound = {"step": 1, "rollout_logprobs": [-1.0, -0.5, -0.25], "old_logprobs": [-1.01, -0.5, -0.24]}
    bad = {**sound, "old_logprobs": [-1.01]}
    dump = tmp_path / "rows.jsonl"
    dump.write_text("".join(json.dumps(row) + "\n" for row in [sound] * 3 + [bad] * 7))
    assert main(["import", str(dump), "-o", str(tmp_path / "run")]) == 1
    capsys.readouterr()
    assert main(["check", str(tmp_path / "run")]) == 4
    assert "30.0% of the offered sequences were measured: 7 not imported" in capsys.readouterr().out


def test_one_word_of_the_list_of_runs_is_green() -> None:
    assert [word for word, colour in zip(WORDS, COLOURS, strict=True) if colour == "green"] == ["● healthy"]


@pytest.mark.parametrize(
    ("logged", "why"),
    [
        (range(100), "no check that reads tokens was made"),
        (range(0, 100, 5), "no check that reads tokens was made"),
        (range(3), "3 of about 100 steps of the log have a number of the gap"),
    ],
)
def test_a_scalar_log_is_measured_in_part_at_most(logged: range, why: str, tmp_path: Path, capsys: Output) -> None:
    name = "rollout_corr/k3_kl"
    rows = [{"step": step, "loss": 0.1, **({name: 0.0003} if step in logged else {})} for step in range(100)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["import", str(tmp_path / "log.jsonl"), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1"]) in (
        0,
        1,
    )
    capsys.readouterr()
    assert main(["check", str(tmp_path / "run")]) == 4
    told = capsys.readouterr().out
    assert "partly measured: " in told and "healthy" not in told and why in told
