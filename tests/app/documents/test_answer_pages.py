"""Overview and Diagnosis on paper: what a living face shows by a click is there in words, and each chart has its own name."""

from dataclasses import replace
from html import unescape
from pathlib import Path

from support.site import material_of

from ratioscope.app.blocks import Verdict
from ratioscope.app.documents.document import FIRST, files
from ratioscope.app.pages.diagnosis import diagnosis
from ratioscope.app.pages.overview import overview
from ratioscope.app.presentation.privacy import scrubbed
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.definitions.registry import BY_NAME


def test_the_verdict_has_the_words_of_the_report_its_share_and_its_proof(runs: Path) -> None:
    for name in ("stale", "healthy", "one_token", "many_steps", "empty"):
        run = material_of(runs, name)
        (verdict,) = (block for block in overview(run.scope) if isinstance(block, Verdict))
        head = run.head
        assert (verdict.severity, verdict.title, verdict.share) == (head.severity, head.title, head.share)
        assert dict(verdict.facts).items() >= {(each, text) for each, text in head.facts if each != "state"}
        assert (verdict.chart is None) == (name == "empty")


def test_alerts_that_a_file_cannot_lead_to_are_words_and_charts_say_the_worst_step(runs: Path) -> None:
    run = material_of(runs, "stale")
    page, every = unescape(files(run)[FIRST]), run.view.events_and_alerts().alerts
    assert f"{len(every)} alerts" in page and "engine and trainer disagree on the same tokens, from" in page
    _, step = worst_step(BY_NAME["kl_k3"], run.steps, run.gap)
    assert f"{run.gap} kl_k3 over 12 steps; the worst is" in page and f"at step {step}" in page


def test_the_diagnosis_is_of_the_best_gap_whichever_gap_the_verdict_is_of(runs: Path) -> None:
    run = material_of(runs, "stale")
    page = [*diagnosis(replace(run.scope, gap=""))]
    assert run.scope.view.diagnosis() is run.scope.view.diagnosis("", None)
    known = run.view.diagnosis()
    assert known is not None and known.result is not None
    assert any(known.result.read in repr(block) for block in page)


def test_two_charts_of_one_name_have_two_names_in_the_files(runs: Path) -> None:
    run = material_of(runs, "stale")
    (verdict,) = (block for block in overview(run.scope) if isinstance(block, Verdict))
    assert verdict.chart is not None
    other = replace(verdict.chart, of=(*verdict.chart.of[:2], "undone in another way"))
    names = [run.drawn(each).name for each in (verdict.chart, other, verdict.chart)]
    assert names == ["proof", "proof-2", "proof"]


def test_no_text_of_a_diagnosis_that_leaves_names_a_home_folder(runs: Path) -> None:
    result = diagnosis_of(material_of(runs, "stale").run)
    assert scrubbed(result) is result
    (first, *others), secret = result.diagnosis.likely, "at /home/ann/run, with hf_abcdefghijklmnopqrst"
    told = replace(result, diagnosis=replace(result.diagnosis, likely=(replace(first, where=secret), *others)))
    assert scrubbed(told).diagnosis.likely[0].where == "at ~/run, with [redacted]"
