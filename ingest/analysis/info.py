"""Everything that `ratioscope info` shows of a run, as plain values."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..files.quarantine import printable
from .feature_requirements import missing_of

if TYPE_CHECKING:
    from ..run import Run


def info(run: "Run") -> dict[str, Any]:
    """Numbers, texts and lists of them, so that JSON can hold them; times as ISO 8601. Reads the footers of the newest step."""
    counts = run.conservation
    return {
        "name": run.name,
        "path": run.place,
        "digest": run.digest,
        "trainer": run.info.get("trainer"),
        "versions": run.info.get("versions"),
        "code": run.info.get("code"),
        "machine": run.info.get("machine"),
        "redacted": _texts(run.info.get("redacted")),
        "steps": len(run.steps),
        "first_step": min(run.steps, default=None),
        "last_step": max(run.steps, default=None),
        "rows": run.size.rows,
        "tokens": run.size.tokens,
        "bytes": run.size.bytes,
        "policies": list(run.policies),
        "gaps": list(run.gaps),
        "readings": _readings(run),
        **({"topk": {"steps": len(steps), **asdict(run.topk_size)}} if (steps := run.topk_steps) else {}),
        "columns": sorted(run.columns),
        "unavailable": dict(missing_of(run)),
        "attempts": _attempts(run),
        "writers": [_plain(row) for row in run.writers.to_dicts()],
        "offered": counts.offered,
        "written": counts.written,
        "left_out": counts.left_out,
        "dropped": counts.dropped,
        "dropped_tokens": counts.dropped_tokens,
        "pending": counts.pending,
        "lost": counts.lost,
        "hidden": counts.hidden,
        "rows_set_aside": counts.set_aside,
        "claimed_twice": run.claims.rows if run.claims.looked_at or not run.claims.of else None,
        "states": run.states,
        "drops": run.drops.to_dicts(),
        "events": [_plain(row) for row in run.events.to_dicts()],
        "quarantined": [{"path": item.path, "reason": item.reason} for item in run.quarantined],
        "uncommitted": run.uncommitted,
        "unsettled": run.unsettled,
        "notes": list(run.notes),
    }


def _attempts(run: "Run") -> dict[str, Any]:
    shadowed = [
        {
            "attempt": s.attempt,
            "by": s.by,
            "first_step": s.first_step,
            "last_step": s.last_step,
            "steps": s.steps,
            "rank": s.rank,
            "rows": s.rows,
            "written_again": s.is_again,
        }
        for s in run.shadowed
    ]
    return {"number": run.writers["attempt"].n_unique(), "shadowed": shadowed}


def _readings(run: "Run") -> dict[str, Any]:
    """name -> facts of a reading, and how its rows fit the recorded sequences. Reads these rows, but of no run on a store."""
    fits = run.reading_fits() if run.readings and not run.is_remote else {}
    return {
        name: {
            "steps": len(reading.steps),
            "first_step": reading.steps[0],
            "last_step": reading.steps[-1],
            "sequences": reading.sequences,
            "tokens": reading.tokens,
            "made_of": [dict(made) for made in reading.made_of],
            **(asdict(fits[name]) if name in fits else {}),
        }
        for name, reading in run.readings.items()
    }


def _texts(value: Any) -> list[str]:
    return [printable(str(text)) for text in value] if isinstance(value, list) else []


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
