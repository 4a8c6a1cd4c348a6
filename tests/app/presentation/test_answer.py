"""The answer says what to change in the run's trainer, and which correction was measured to help until then."""

from dataclasses import replace
from pathlib import Path

from support.uncorrected import uncorrected_run

import ratioscope
from ratioscope.app.presentation.answer import answer_of
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import known_context


def test_the_remedy_is_that_of_the_trainer_and_names_a_correction_only_if_one_helps(tmp_path: Path) -> None:
    run = ratioscope.open_run(uncorrected_run(tmp_path))
    result, verdict = diagnosis_of(run), verdict_of(run)
    context = known_context(run, result, verdict)
    assert context.bridge is not None

    known = answer_of(result, verdict, context).remedy
    assert known.startswith("Lower steps_per_generation"), "num_iterations is 1"
    gain = ": the gradient's squared error falls by 39%."
    assert known.endswith(f" Meanwhile use token TIS 2 (truncate token at 2){gain}")

    instead = replace(context, bridge=replace(context.bridge, own="truncate sequence at 2"))
    assert answer_of(result, verdict, instead).remedy.endswith(
        f"token at 2) in place of the run's own truncate sequence at 2{gain}"
    )

    without = replace(context, bridge=replace(context.bridge, helps=False), remedies={})
    assert answer_of(result, verdict, without).remedy == result.diagnosis.likely[0].cause.remedy
    assert "eanwhile" not in answer_of(result, verdict).remedy
