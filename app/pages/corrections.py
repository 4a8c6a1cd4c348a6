"""The Fix page: the effect of corrections on the weights, the best one, and its configuration for a trainer."""

from collections.abc import Iterator, Sequence
from functools import partial
from math import isnan

import polars as pl

from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.ingest.analysis.correction_ranking import InUse, correction_in_use
from ratioscope.ingest.analysis.feature_requirements import why_no_rows
from ratioscope.ingest.jobs.correction_results import CorrectionResults
from ratioscope.ingest.run import Run
from ratioscope.metrics.corrections.correction import WeightedGap, weighted_gap
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.record import GAPS

from ..blocks import (
    Action,
    Actions,
    At,
    Beside,
    Block,
    Chart,
    Charts,
    Code,
    Drawer,
    Markup,
    Numbers,
    Paragraph,
    Part,
    Waiting,
)
from ..figures.drawing.bands import NO_ERROR
from ..figures.drawing.plotly_objects import go
from ..figures.html.comparison import comparison_table
from ..figures.series_chart import series_chart, series_key, series_of
from ..figures.weights import weights_before_after
from ..presentation.digits import a_step, count
from ..presentation.escape import visible
from ..presentation.sentence import capital
from ..presentation.slice_names import BY_NAME
from ..presentation.theme import THEMES, ThemeName
from .correction_advice import advice_blocks, own_reason, unweighted
from .corrections_outcomes import CorrectionOutcome, Outcomes, OutcomeSource, effects_ahead, outcomes_of
from .corrections_text import DEFAULT, IN_USE, Entry, compared, comparison_of, controls, syntax, with_own
from .corrections_threshold import one_threshold
from .face import Choice, Face, Switch
from .scope import NO_STEPS, Scope, Steps
from .slice_absences import slice_frame, steps_shown
from .step_choice import are_few
from .support import centering_section
from .sync_periods import no_updates, sync_blocks, synced_otherwise
from .verdict import cause_line
from .view import CacheRequest, View, figure_request

NO_GAP = "not available, because no step has the log-probs of the policy that sampled and of one that trains."
ADVISED = "advised"
"""The place of the advice, at the top of the page."""
REDRAWN = 4
"""Number of looks at a job after which the page shows the results so far."""
CHARTS = {
    "ess_after": ("ESS after", "share of the sample that still counts"),
    "mean_weight": ("mean weight", "a factor on the learning rate"),
    "bias": ("bias", "distance from exact weights: mean |v − w|, a proxy"),
    "variance": ("variance", "of the corrected weights, a proxy"),
    "removed_share": ("removed tokens", "share removed from the loss"),
    "removed_share_sequence": ("removed sequences", "share with no token left"),
}
"""A value over the steps -> its title, and its meaning."""
FIRST = 2
"""Number of charts that are always shown; the others are in a drawer."""
LANGUAGES = {
    "verl": "yaml",
    "slime": "bash",
    "skyrl": "ini",
    "nemo_rl": "yaml",
    "fireworks": "python",
    "areal": "yaml",
    "trl": "python",
}
"""Trainer -> the language of its settings."""
PLACES = {
    "verl": "in the trainer's configuration",
    "slime": "on the command line, and in the file that it names",
    "skyrl": "as overrides on the command line",
    "nemo_rl": "in the run's configuration",
    "fireworks": "in the recipe",
    "areal": "in the experiment's configuration",
    "trl": "where the trainer is made",
}
"""Trainer -> the place of its settings."""
COMPUTES = "`ratioscope corrections RUN` and the dashboard compute it"
READ_UPDATES = Switch("updates", "read the token rows for other updates per batch")
UNREAD = f"it takes the token rows of more steps than are read here; {COMPUTES}"
UNREAD_HERE = "it takes token rows, which were not read"
OF_READING = (
    "A trainer has no log-probs of a reading at hand: these settings are of the same correction on mismatch. The effects are"
    " those of weights from {}."
)


def corrections(scope: Scope) -> Iterator[Block]:
    view, face = scope.view, scope.face
    gap = next(filter(None, map(weighted_gap, (scope.gap, *face.unasked(view.run.gaps)))), None)
    if gap is None and not scope.gap:
        yield Paragraph(NO_GAP, "absent")
        return
    if gap is None:
        yield unweighted(scope.gap)
        return
    if not scope.recorded:
        yield Paragraph(NO_STEPS, "info")
        return
    source = OutcomeSource(view, gap, scope.range)
    face.place(ADVISED)
    comparison = compared(face)
    if not face.unasked((gap,)):
        yield from controls(face, comparison)
    if comparison.entries:
        yield from _comparison(scope, source, with_own(view.of(_in_use).made, gap, comparison.entries))
    else:
        none = "Nothing is compared. Add a threshold, a standard correction, a preset or your own configuration."
        yield Paragraph(none, "muted")
    yield from sync_blocks(synced_otherwise(view.metrics(("lag",), scope.chosen, gap), gap, _by_update(scope)))
    if not view.of(no_updates):
        face.ask(READ_UPDATES)
    yield from centering_section(scope, gap)
    if not face.unasked((gap,)):
        panel = Part("one_threshold", partial(one_threshold, source, face, partial(compared, face)))
        yield Drawer("try one threshold", lambda: (panel,), "try")


def _by_update(scope: Scope) -> pl.DataFrame | str:
    """Metrics of the drift by minibatch, or why there are none. A face that asks nobody reads few rows at once."""
    view, face, words = scope.view, scope.face, BY_NAME["minibatch"]
    if why := view.of(no_updates):
        return why
    if face.unasked((words,)):
        return view.metrics(("minibatch",), scope.chosen, "drift") if are_few(view, scope.recorded) else UNREAD
    if not face.known(READ_UPDATES):
        return UNREAD_HERE
    return slice_frame(view, face, words, steps_shown(view, face, words, scope.chosen), "drift")


def ahead(view: View, theme: ThemeName) -> Iterator[CacheRequest]:
    """Requests for the default corrections of the default gap; then for their charts, which are drawn from them."""
    gap = weighted_gap(next(iter(view.of(judged_first)), ""))
    if gap is None:
        return
    source = OutcomeSource(view, gap, Steps().of(view.steps))
    entries = with_own(view.of(_in_use).made, gap, comparison_of(DEFAULT).entries)
    yield from effects_ahead(source, entries)
    outcomes = outcomes_of(source, entries)
    yield from (figure_request(_over_steps, outcomes, name, theme) for name in [*CHARTS][:FIRST])


def _in_use(run: Run) -> InUse:
    return correction_in_use(run.info)


def _comparison(scope: Scope, source: OutcomeSource, entries: Sequence[Entry]) -> Iterator[Block]:
    results = {entry.text: known for entry in entries if (known := source.results(entry)) is not None}
    steps, chosen = source.with_rows, len(scope.recorded)
    if scope.face.unasked(entries) and steps and (len(steps) < chosen or not are_few(scope.view, steps)):
        left_out = ", ".join(entry.name for entry in entries if entry.text in results)
        have = f"it takes token rows, which {len(steps):,} of {count(chosen, 'step')} have"
        yield Paragraph(f"{left_out}: not here, because {have}; {COMPUTES}.", "absent")
        entries = [entry for entry in entries if entry.text not in results]
    elif results:
        source.compute(scope.face.unasked([*results.values()]))
        yield from _job(scope, source, [*results.values()])
    outcomes = outcomes_of(source, entries)
    yield At(ADVISED, (*_advice(scope, outcomes),))
    yield Markup(partial(comparison_table, outcomes.rows()))
    over = f"{source.gap} over {count(len(outcomes.common), 'step')}"
    if len(outcomes.common) != chosen:
        over += f" of {chosen:,} chosen, those that every correction has"
    yield Paragraph(
        f"{over} · w: weight, v: weight after correction · means over tokens unless a row shows sequences · "
        "◆ best in its column, among corrections over tokens of one gap",
        "muted",
    )
    yield Markup(partial(series_key, [each.entry.name for each in outcomes.each]))
    names = [*CHARTS]
    yield _charts(outcomes, names[:FIRST])
    if not scope.face.unasked(names):
        yield Drawer("bias, variance and removed tokens", lambda: (_charts(outcomes, names[FIRST:]),), "more_effects")
    shown = _asked_outcome(scope.face, outcomes)
    config = Part("config", partial(_config, scope, shown.entry, source.gap))
    yield Beside("shown", ((_weights(outcomes, shown),), (Paragraph("In your trainer's syntax", "lead"), config)))
    yield Numbers("lab_numbers", outcomes.numbers)


def _job(scope: Scope, source: OutcomeSource, results: Sequence[CorrectionResults]) -> Iterator[Block]:
    """The line on the steps that were computed from token rows, with the button that starts the job or stops it."""
    view, steps, chosen = scope.view, source.with_rows, len(scope.recorded)
    if not steps:
        yield Paragraph(
            "Standard corrections, presets and sequence thresholds over tokens are not available, because none of the chosen "
            f"{count(chosen, 'step')} has token rows: {why_no_rows(view.run)}. Single thresholds are computed from statistics.",
            "absent",
        )
        return
    job = view.source.jobs.corrections(view.path)
    if job is not None and job.progress.at_work and set(job.work.results) & set(results):
        yield Waiting("job", "computing from token rows", lambda: True, job=view.path, redrawn=REDRAWN)
        so_far = "The results below cover the steps computed so far. They are kept when you cancel or leave."
        yield Paragraph(so_far, "muted")
        return
    lacking, every = len(source.missing(results)), len(steps)
    of = f"{count(every, 'step')} with token rows" + (f", of {chosen:,} chosen" if chosen != every else "")
    said = f"computed from the tokens of all {of}"
    if lacking:
        done = f"{every - lacking:,} of {of}"
        said = f"computed from the tokens of {done}; the button computes the others in the background"
    if job is not None and job.progress.state == "failed":
        said += f" · the last attempt failed: {visible(job.progress.reason, 200)}"
    if job is not None and job.progress.state == "cancelled" and lacking:
        said += " · cancelled; what was done is kept"
    start = partial(view.source.jobs.carry_out, view.path, view.run, tuple(results), steps)
    words = f"compute {count(lacking, 'step')} from token rows"
    button = (Action("carry_out", words, start, icon="play_arrow"),) if lacking else ()
    yield Actions("computed", button, after=f"{said}.")


def _advice(scope: Scope, outcomes: Outcomes) -> Iterator[Block]:
    """The best of the compared corrections, in the words of the run's verdict, and a judgement on the run's own one."""
    known = scope.view.diagnosis()
    refuted = "" if known is None or known.context is None else known.context.correction.refuted
    found = outcomes.advice(is_on=not refuted)
    if found is None:
        return
    risk = (
        "The squared error of a step's gradient is taken as bias² + 1 / (ESS × sequences of the step), by convention, and "
        f"averaged over {count(len(outcomes.common), 'step')}."
    )
    reason = own_reason(scope.view.of(_in_use), outcomes.source.gap, refuted)
    yield from advice_blocks(found, reason, risk)
    fair = {each.entry.text for each in outcomes.fair}
    if unranked := ", ".join(each.entry.name for each in outcomes.each if each.entry.text not in fair):
        lacking = "not ranked, because the effect on the tokens of this gap is not known yet"
        yield Paragraph(f"{visible(unranked, 300)}: {lacking}.", "muted")
    yield from cause_line(scope)


def _charts(outcomes: Outcomes, names: Sequence[str]) -> Charts:
    drawn, charts = count(sum(len(each.steps) > 0 for each in outcomes.each), "correction"), []
    for name in names:
        label, numbers = f"{CHARTS[name][0]} of {drawn} over the steps", partial(outcomes.over_steps, name)
        charts.append(Chart(f"lab_{name}", label, _over_steps, (outcomes, name), numbers=numbers))
    return Charts(tuple(charts))


def _over_steps(outcomes: Outcomes, name: str, theme: ThemeName) -> go.Figure:
    known = [(at, each) for at, each in enumerate(outcomes.each) if len(each.steps)]
    longest = {each.unit: each.steps["weights"] for _, each in sorted(known, key=lambda own: len(own[1].steps))}
    sizes = (
        a_step(longest[unit].cast(pl.Float64).to_list(), unit) for unit in ("token", "sequence") if unit in longest
    )
    title, about = CHARTS[name]
    return series_chart(
        [series_of(each.steps, name, each.entry.name, at) for at, each in known],
        capital(title),
        (about,),
        made=(" or ".join(filter(None, sizes)), NO_ERROR),
        events=outcomes.source.view.events(),
        absent="nothing was computed yet",
        theme=THEMES[theme],
    )


def _asked_outcome(face: Face, outcomes: Outcomes) -> CorrectionOutcome:
    """The correction whose weights and configuration are shown."""
    known = {each.entry.text: each for each in outcomes.each}
    usual = next((text for text in known if text not in ("none", IN_USE)), next(iter(known)))
    names = {text: each.entry.name for text, each in known.items()}
    return known[face.ask(Choice("shown", "correction to show", [*known], usual, names.__getitem__, width=480))]


def _weights(outcomes: Outcomes, shown: CorrectionOutcome) -> Block:
    name = shown.entry.name
    if shown.left is None:
        why = shown.reason or "they were not computed yet"
        return Paragraph(f"The weights after {name} are not available, because {visible(why, 300)}.", "muted")
    place = [each.entry.text for each in outcomes.each].index(shown.entry.text)
    label, of = f"Weights before and after {name}", (outcomes, place)
    return Chart("lab_weights", label, _before_after, of, numbers=shown.weights)


def _before_after(outcomes: Outcomes, place: int, theme: ThemeName) -> go.Figure:
    shown = outcomes.each[place]
    assert shown.before is not None and shown.left is not None
    return weights_before_after(
        shown.before,
        shown.left,
        0.0 if isnan(shown.removed) else shown.removed,
        shown.entry.name,
        place=place,
        unit=shown.unit,
        notes=("after: estimated from the sample of rows that the budget kept",) if shown.sampled else (),
        theme=THEMES[theme],
    )


def _config(scope: Scope, entry: Entry, gap: WeightedGap) -> Iterator[Block]:
    """The correction in the syntax of the chosen trainer, by default the run's, or the reason why it cannot be expressed."""
    plain = str(scope.view.run.info.get("trainer") or "").lower().replace("-", "_")
    own = next((name for name in NAMES if plain.startswith(name)), NAMES[0])
    usual = entry.made.dialect if isinstance(entry.made, TrainerCorrection) else own
    name = scope.face.ask(Choice("trainer", "trainer", NAMES, usual, look="segments", has_title=False))
    text, notes = syntax(entry, gap, name)
    if text is None:
        yield Paragraph(f"{name} cannot express {visible(entry.name, 100)}: {visible(notes[0], 400)}", "wrong")
        return
    if gap not in GAPS:
        yield Paragraph(OF_READING.format(gap), "absent")
    yield Paragraph(f"{visible(entry.name, 120)}, for {name} {dialect(name).VERSIONS[0]}, {PLACES[name]}", "muted")
    yield Code(text.split("\n"), LANGUAGES[name], "config")
    for note in notes:
        yield Paragraph(visible(note, 400), "absent")
