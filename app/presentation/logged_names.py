"""A trainer's own numbers, in words: the trainer that logged them, and the metric of ours that each is, or why it is none."""

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from ratioscope.ingest.importers.scalars.agreement import OWN, why_own
from ratioscope.metrics.logged_names import facts_of, logged_name, trainers

_TAKEN = re.compile("(logged/)*(run|step)")


def column_of(name: str) -> str:
    """The column of a number in a table beside the columns run and step; no two numbers share one.

    >>> column_of("loss"), column_of("step"), column_of("logged/step")
    ('loss', 'logged/step', 'logged/logged/step')
    """
    return f"logged/{name}" if _TAKEN.fullmatch(name) else name


def metrics_of(logged: pl.DataFrame) -> dict[str, str]:
    """The trainer's name -> the metric of ours, `<gap>/<metric>`, of the numbers that are one."""
    return dict(logged.filter(pl.col("metric").is_not_null()).select("name", "metric").unique().iter_rows())


def with_trainer(name: str, info: Mapping[str, Any]) -> str:
    """The name with its trainer before it: verl/actor/ppo_kl."""
    trainer, _ = wrote(info)
    return f"{trainer}/{name}" if trainer and not name.startswith(f"{trainer}/") else name


def own_words(name: str, info: Mapping[str, Any]) -> str:
    """Why a number is no metric of ours."""
    return why_own(name, *wrote(info))


def compared_words(name: str, info: Mapping[str, Any]) -> str:
    """The two policies that a trainer's number compares, and whether before or after truncation; empty where it is not known."""
    trainer, _ = wrote(info)
    row = logged_name(trainer, name) if trainer in trainers() else None
    facts = {} if row is None else dict(facts_of(row))
    return ", ".join(facts[each] for each in ("compares", "truncation") if each in facts)


def wrote(info: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """(trainer, version) that wrote the log, as the import knew them. run.json may say anything."""
    said = info.get("scalar_log")
    trainer, version = (said.get("dialect"), said.get("version")) if isinstance(said, dict) else (None, None)
    known = trainer if isinstance(trainer, str) and trainer in (*trainers(), OWN) else None
    return known, version if isinstance(version, str) else None
