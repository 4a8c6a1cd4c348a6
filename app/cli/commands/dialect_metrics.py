"""`ratioscope metrics RUN --dialect TRAINER`: the metrics that the trainer would have logged at each step, by its names."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratioscope.errors import ConfigError
from ratioscope.metrics.dialects import dialect

from ...presentation.digits import plus_minus
from ..terminal import print_pairs, print_table, say, stages
from .corrections import of_trainer

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


def dialect_rows(run: "Run", dialect: str, preset: str | None, config: Path | None) -> list[dict[str, Any]]:
    """One row per step: "step", then the trainer's metrics, by the preset, by the file, or else by its first preset."""
    from ratioscope.ingest.analysis.correction_effects import logged_by_trainer

    chosen = of_trainer(dialect, [preset] if preset else [], config)[0]
    with stages(dialect, len(run.steps)) as advance:
        logged = logged_by_trainer(run, chosen, lambda done, total: advance(f"step {done} of {total}"))
    if not logged:
        if reason := run.no_tokens:
            raise ConfigError(f"what {dialect} would have logged is not available, because {reason}; try: --logged")
        raise ConfigError(
            f"{run.name} has no step with rollout log-probs of a token that counts, which {dialect} reads"
        )
    return [{"step": step, **metrics} for step, metrics in sorted(logged.items())]


def print_dialect(
    rows: Sequence[Mapping[str, Any]], dialect_name: str, canonical: Mapping[int, Mapping[str, Any]]
) -> None:
    """Prints the last step: the trainer's values, ours for the same quantities, and notes on misleading values."""
    trainer, last = dialect(dialect_name), rows[-1]
    ours = canonical.get(last["step"], {})
    say(f"{dialect_name} at step {last['step']}, the last of {len(rows)} (all steps: --json)", "bold")
    table = []
    for name in (name for name in last if name != "step"):
        full = trainer.CANONICAL.get(name)
        shown = plus_minus(ours.get(full), ours.get(f"{full}_se")) if full else ""
        table.append([name, f"{last[name]:.6g}", shown, full or ""])
    print_table(["logged as", "value", "ours ± se", "canonical"], table)
    notes = [(name, trainer.NOTES[name]) for name in last if name in trainer.NOTES]
    if notes:
        say("how theirs differs", "bold")
        print_pairs(notes)
