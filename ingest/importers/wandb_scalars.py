"""The numbers that a trainer logged to W&B, under the trainer's own names, beside the metrics of ours that they come close to."""

from collections.abc import Iterable
from dataclasses import dataclass

from ratioscope.errors import ConfigError
from ratioscope.metrics.logged_names import likely_trainers

from .scalars.number_row import number
from .wandb_log import LogRecord


@dataclass
class Scalar:
    """A number that was logged again and again."""

    rows: int = 0
    """Rows that hold it."""
    not_finite: int = 0
    """The number of these rows where it is NaN or infinite."""
    last_row: int | None = None
    """W&B's own number of the newest row with it."""
    last: float = float("nan")
    """Its value in that row."""


def scalars(entries: Iterable[LogRecord]) -> dict[str, Scalar]:
    """name -> what its rows hold. W&B's own names, texts, and parts of histograms and tables are left out."""
    values: dict[str, Scalar] = {}
    for entry in entries:
        if entry.kind != "history":
            continue
        kinds = tuple(name.removesuffix("_type") for name in entry.values if name.endswith("._type"))
        for name, value in entry.values.items():
            own = number(value)
            if own is None or name.startswith("_") or (kinds and name.startswith(kinds)):
                continue
            scalar = values.setdefault(name, Scalar())
            scalar.rows += 1
            scalar.not_finite += own - own != 0
            scalar.last, scalar.last_row = own, _row(entry.values.get("_step"))
    return values


def likely_dialect(names: Iterable[str]) -> str | None:
    """The trainer of which most of these names are known; None if none is, ConfigError if two trainers have as many."""
    best = likely_trainers(names)
    if len(best) > 1:
        raise ConfigError(
            f"the names of this log are those of {' and '.join(best)} alike; wanted to know which trainer wrote it: try --dialect"
            f" {best[0]}"
        )
    return best[0] if best else None


def _row(value: object) -> int | None:
    return value if isinstance(value, int) else None
