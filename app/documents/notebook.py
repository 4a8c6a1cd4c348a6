"""A run as a notebook shows it: its name, its verdict, and a line of its first metric over the steps.

The HTML has no script, no style sheet and no colour of its own, so that it reads on a light and on a dark page.
"""

import shlex
from typing import TYPE_CHECKING

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.gap_history import gap_size
from ratioscope.ingest.analysis.judged_verdict import judged_verdict
from ratioscope.metrics.definitions.registry import BY_NAME

from ..presentation.answer import first_words
from ..presentation.digits import count
from ..presentation.escape import html
from ..presentation.metric_places import names_at
from ..presentation.size_words import size_words
from ..presentation.sparkline import HEIGHT, WIDTH, svg_path
from ..presentation.theme import MARKS

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

LONGEST = 300
"""Characters of a name or sentence that others wrote."""


def notebook_html(run: "Run") -> str:
    """The run in a few lines. Its token rows are not read, so that the cause of a gap is left to `diagnose`."""
    steps = run.steps
    where = f" ({steps[0]} to {steps[-1]})" if steps else ""
    size = f"{count(len(steps), 'step')}{where}, {', '.join(run.gaps) or 'no gap'}"
    parts = [f"<b>{html(run.name, LONGEST)}</b>: {size}"]
    if steps:
        verdict = judged_verdict(run)
        parts.append(f"{MARKS[verdict.word]} {html(first_words(verdict).brief, 2 * LONGEST)}")
        if drawn := _line(run):
            parts.append(drawn)
        parts.append(
            f"<small>Causes and remedies: <code>ratioscope diagnose {html(shlex.quote(run.place), LONGEST)}</code></small>"
        )
    return f"<div>{'<br/>'.join(parts)}</div>"


def _line(run: "Run") -> str:
    """The first metric of the first gap over the steps, and its size; empty where no value is on record."""
    names = [(gap, name) for gap in judged_first(run)[:1] for name in names_at("runs", gap)[:1]]
    for gap, name in names:
        column, metric = f"{gap}/{name}", BY_NAME[name]
        frame = run.metrics(names=[name])
        values = frame[column].to_list() if column in frame.columns else []
        if path := svg_path(values):
            words = f"{metric.title}, {gap}: {size_words(gap_size(run, gap))}"
            return (
                f'<svg role="img" aria-label="{html(metric.title)} over the steps" width="{WIDTH}" height="{HEIGHT}" '
                f'viewBox="-1 -1 {WIDTH + 2} {HEIGHT + 2}"><path d="{path}" fill="none" stroke="currentColor" '
                f'stroke-width="1.5"/></svg> {html(words)}'
            )
    return ""
