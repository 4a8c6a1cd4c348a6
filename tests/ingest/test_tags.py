"""Tags: kept in the run, the last change of each, on no chart, and nothing of what a stranger wrote in another form."""

import json
from pathlib import Path

from support.statistics_runs import write_statistics_run

from ratioscope.collectors.writing.offline import write_remark
from ratioscope.ingest.analysis.acknowledgements import MOST, note_of, tags_of
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.run import open_run
from ratioscope.layout import TAG


def test_the_last_change_of_a_tag_holds_and_no_chart_marks_it(tmp_path: Path) -> None:
    run = write_statistics_run(tmp_path / "run", 3)
    for tag, holds in (("good", True), ("bad-data", True), ("good", False), ("archived", False), ("archived", True)):
        write_remark(run, TAG, 0, note_of(tag, holds=holds))
    assert tags_of(open_run(run)) == ("archived", "bad-data") and verify(run, deep=True).sound
    assert TAG not in recorded_events(open_run(run))["event"].to_list()


def test_notes_of_another_form_are_passed_over_and_tags_are_bounded(tmp_path: Path) -> None:
    run = write_statistics_run(tmp_path / "run", 3)
    strange = [
        "{",
        "[]",
        "3",
        '{"tag": "a"}',
        '{"tag": "", "holds": true}',
        json.dumps({"tag": "x" * 99, "holds": True}),
    ]
    for note in (*strange, *(note_of(f"t{number}", holds=True) for number in range(MOST + 5))):
        write_remark(run, TAG, 0, note)
    assert len(tags_of(open_run(run))) == MOST and "x" * 99 not in tags_of(open_run(run))
