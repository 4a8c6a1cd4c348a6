"""`ratioscope corrections RUN`: the effects that corrections would have had on the run, and a trainer's settings for them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import ConfigError, SchemaError
from ratioscope.ingest.importers.config_text import mapping_in
from ratioscope.metrics.dialects import dialect as dialect_named
from ratioscope.metrics.digits import digits

from ...blocks import Paragraph, text_table
from ...presentation.digits import count
from ..blocks_printed import print_blocks
from ..next_steps import after_corrections, print_next
from ..terminal import print_json, say, say_gap, stages
from .arguments import AsJson, OnlySteps, RunFolder, comma_separated, gaps_of_readings, opened, steps_on_record

if TYPE_CHECKING:
    import polars as pl

    from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
    from ratioscope.ingest.analysis.correction_ranking import InUse
    from ratioscope.ingest.run import Run
    from ratioscope.metrics.corrections.correction import Correction
    from ratioscope.metrics.distribution import Level

    from ...pages.sync_periods import Answers

COLUMNS = ("ess_after", "mean_weight", "bias", "clipped_share", "removed_share", "ess_before", "variance")
"""Columns by importance: a narrow terminal leaves the last ones out."""

FIRST_MINIBATCH = "A sequence of several minibatches counts once, with the current log-probs of the first."


def corrections(
    run: RunFolder,
    dialect: Annotated[
        str | None, typer.Option(metavar="TRAINER", help="Use the correction presets of this trainer.")
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME,...", help="Only these presets of the trainer.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A configuration of that trainer, as YAML or JSON.")
    ] = None,
    threshold: Annotated[
        str | None, typer.Option(metavar="C,...", help="Truncate at each C, and mask outside [1/C, C].")
    ] = None,
    level: Annotated[
        str, typer.Option(metavar="token|sequence|geometric", help="The weights that --threshold bounds.")
    ] = "token",
    by: Annotated[
        str,
        typer.Option(
            metavar="run|step|SLICE", help="One row for the run, per step, or per lag, replica, group_id, ..."
        ),
    ] = "run",
    everything: Annotated[
        bool, typer.Option("--all", help="All standard corrections, not only those that the page Fix begins with.")
    ] = False,
    gap: Annotated[
        str | None,
        typer.Option(
            metavar="mismatch|total|rollout:B",
            help="The gap that makes the weights; rollout:B is that of the engine to a reading, e.g. rollout:referee.",
        ),
    ] = None,
    steps: OnlySteps = None,
    as_json: AsJson = False,
) -> None:
    """Show the effect of corrections, the run's own one among them, and the gap at other sync periods, lags and updates.

    Mean weight is a factor on the learning rate.
    """
    slice = None if by in ("run", "step") else by
    if slice and dialect:
        raise ConfigError(f"--by {by}: a trainer's own correction needs --by run or --by step")
    chosen = _chosen(dialect, preset, config, threshold, level, everything)
    import polars as pl

    from ratioscope.ingest.analysis.correction_effects import TrainerCorrection, correction_effects, effect_frame
    from ratioscope.ingest.analysis.correction_ranking import correction_in_use, reads, without_double
    from ratioscope.ingest.analysis.support_numbers import support_numbers
    from ratioscope.metrics.corrections.advice import OWN
    from ratioscope.record import GAPS

    from ...pages.support import centering_blocks
    from ...pages.sync_periods import plain_answers, sync_blocks

    opened_run = opened(run)
    wanted = steps_on_record(opened_run, steps)
    read = None if wanted is None else [step for step in opened_run.steps if step in wanted]
    chosen, weighed = _weighted(opened_run, chosen, gap)
    reading = "" if weighed in GAPS else weighed
    is_usual = dialect is None and threshold is None
    used = correction_in_use(opened_run.info)
    own = used.made if is_usual and used.made and reads(used.made, weighed) else None
    own = None if slice and isinstance(own, TrainerCorrection) else own
    every = [*([] if own is None else [own]), *chosen]
    with stages("corrections", len(opened_run.row_digests(read, gap=reading))) as advance:
        effects = correction_effects(
            opened_run,
            every,
            by=slice,
            steps=read,
            gap=reading,
            progress=lambda done, total: advance(f"step {done} of {total}"),
        )
    keys = {"run": (), "step": ("step",)}.get(by, ("key",))
    frame = effect_frame(effects.sums, keys).rename({"key": by} if slice else {})
    absences = [
        f"{', '.join(title for title, own in effects.absent.items() if own == why)}: not available, {why}"
        for why in dict.fromkeys(effects.absent.values())
    ]
    if len(effects.absent) == len(every) and frame.is_empty():
        raise SchemaError("; ".join(absences))
    synced = _synced(opened_run, frame, reading) if by == "run" and read is None else None
    if as_json:
        absent = [{"correction": title, "reason": why} for title, why in effects.absent.items()]
        rows = pl.concat([frame, pl.DataFrame(absent)], how="diagonal").to_dicts() if absent else frame.to_dicts()
        more = {} if synced is None else plain_answers(synced)
        print_json([{**row, "own": row["correction"].endswith(OWN), **more} for row in rows])
        return
    if read is not None:
        say(f"of {count(len(read), 'step')} alone, from {read[0]} to {read[-1]}", "dim")
    compared = without_double(own, chosen)
    if by == "run" and is_usual and not frame.is_empty():
        _say_best(opened_run, compared, effect_frame(effects.sums, ("step",)), used)
    _print(frame, opened_run, by, compared)
    for line in absences:
        say(line, "dim")
    if synced is not None and not dialect:
        print_blocks(sync_blocks(synced))
    if by == "run" and is_usual and opened_run.topk_steps:
        print_blocks(centering_blocks(opened_run, support_numbers(opened_run, weighed, wanted)))
    if dialect and effects.by_minibatch:
        say(FIRST_MINIBATCH, "dim")
    if dialect and len(chosen) == 1 and isinstance(only := chosen[0], TrainerCorrection):
        trainer = dialect_named(dialect)
        settings = str(trainer.write(trainer.parse(only.config)))
        print_blocks([Paragraph(""), *map(Paragraph, settings.splitlines())])
    print_next(opened_run, after_corrections(opened_run, dialect, is_chosen=preset is not None))


def _chosen(
    dialect: str | None, preset: str | None, config: Path | None, threshold: str | None, level: str, everything: bool
) -> "Sequence[Correction | TrainerCorrection]":
    from ratioscope.metrics.corrections.correction import CORRECTIONS, USUAL, mask, truncate
    from ratioscope.metrics.distribution import LEVELS

    if dialect is None and (preset or config):
        raise ConfigError("--preset and --config belong to a trainer; add --dialect TRAINER")
    if dialect is not None:
        return of_trainer(dialect, comma_separated(preset), config)
    if threshold is None:
        return CORRECTIONS if everything else USUAL
    levels: dict[str, Level] = {known: known for known in LEVELS}
    if level not in levels:
        raise ConfigError(f"--level {level}: wanted one of {', '.join(levels)}")
    caps = [_number(part) for part in comma_separated(threshold)]
    return [c for cap in caps for c in (truncate(cap, level=levels[level]), mask(1 / cap, cap, level=levels[level]))]


def _weighted(
    run: "Run", chosen: "Sequence[Correction | TrainerCorrection]", gap: str | None
) -> "tuple[Sequence[Correction | TrainerCorrection], str]":
    """(the corrections with weights of the gap, the gap). ConfigError where it has no weights.

    gap: None for the one that pages open on.
    """
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.metrics.corrections.correction import Correction, weighted_gap

    if gap is None:
        judged = next(filter(None, map(weighted_gap, judged_first(run))), "mismatch")
        return [replace(each, gap=judged) if isinstance(each, Correction) else each for each in chosen], judged
    gaps_of_readings(run, [gap])
    if weighted_gap(gap) is None:
        raise ConfigError(
            f"--gap {gap}: the tokens were not sampled from its earlier side; wanted a gap that begins at rollout"
        )
    if not all(isinstance(each, Correction) for each in chosen):
        raise ConfigError(
            f"--gap {gap}: a trainer's own correction reads the policies that it reads; leave --dialect out"
        )
    own = [replace(each, gap=gap) for each in chosen if isinstance(each, Correction)]
    return own, gap


def _number(part: str) -> float:
    try:
        value = float(part)
    except ValueError:
        value = 0.0
    if not value > 1:
        raise ConfigError(f"--threshold {part}: wanted numbers above 1, such as 2,5")
    return value


def of_trainer(name: str, presets: Sequence[str], config: Path | None) -> "Sequence[TrainerCorrection]":
    """A trainer's presets with these names, all presets if none is named, or the corrections of a configuration file."""
    from ratioscope.ingest.analysis.correction_effects import TrainerCorrection

    trainer = dialect_named(name)
    if config is not None:
        settings = mapping_in(config.read_text(encoding="utf-8"), str(config))
        return [TrainerCorrection(f"{name} {config.name}", name, settings)]
    unknown = [each for each in presets if each not in trainer.PRESETS]
    if unknown:
        raise ConfigError(f"{name} has no preset '{unknown[0]}'; it has: {', '.join(trainer.PRESETS)}")
    return [TrainerCorrection(f"{name} {each}", name, trainer.PRESETS[each]) for each in presets or trainer.PRESETS]


def _print(frame: "pl.DataFrame", run: "Run", by: str, compared: "Sequence[Correction | TrainerCorrection]") -> None:
    from ratioscope.ingest.analysis.correction_ranking import title_of

    if frame.is_empty():
        from ratioscope.ingest.analysis.feature_requirements import why_no_gap

        why = (
            run.no_tokens
            or why_no_gap(run)
            or "no step has token rows with finite log-probs of the policies these corrections read"
        )
        say(f"{run.name}: not available, because {why}", "dim")
        return
    gaps = frame["gap"].unique()
    if len(gaps) == 1:
        say_gap(gaps[0], run.name)
    titles = {each.name: title_of(each) for each in compared}
    keys = [column for column in (by, "correction", *(["gap"] if len(gaps) > 1 else [])) if column in frame.columns]
    rows = (
        [
            *(titles[row[key]] if key == "correction" else str(row[key]) for key in keys),
            *("n/a" if row[column] is None else digits(row[column]) for column in COLUMNS),
        ]
        for row in frame.to_dicts()
        if row["correction"] in titles
    )
    head = [*keys, *(column.replace("_", " ") for column in COLUMNS)]
    print_blocks([text_table("the effects of corrections", head, rows)])


def _synced(run: "Run", frame: "pl.DataFrame", reading: str) -> "Answers | None":
    """The gap of the first row under other settings; None without rows."""
    from ...pages.sync_periods import no_updates, synced_otherwise

    if frame.is_empty():
        return None
    gap = str(frame["gap"][0])
    by_update = no_updates(run) or run.metrics(("minibatch",), gap="drift")
    return synced_otherwise(run.metrics(("lag",), gap=gap if reading else None), gap, by_update)


def _say_best(
    run: "Run", compared: "Sequence[Correction | TrainerCorrection]", by_step: "pl.DataFrame", used: "InUse"
) -> None:
    """Says which of the corrections of one gap helps most, or why none is recommended, as the page Fix does."""
    from ratioscope.ingest.analysis.correction_ranking import ranking, refuted
    from ratioscope.ingest.analysis.grades import verdict_of

    from ...pages.correction_advice import advice_blocks, own_reason

    gap, contradiction = str(by_step["gap"][0]), refuted(run)
    found = ranking(run, compared, verdict_of(run), gap=gap, by_step=by_step, is_on=not contradiction)
    if found is not None:
        print_blocks(advice_blocks(found, own_reason(used, gap, contradiction)))
        say()
