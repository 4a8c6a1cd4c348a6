"""The facts about an exported table: of which run and version it is, and by which formula each column was computed."""

from typing import TYPE_CHECKING, Any

from ratioscope.metrics.definitions.registry import of_column
from ratioscope.record import FIELDS, SCHEMA_VERSION
from ratioscope.version import __version__

from .probe import digest
from .tables import ColumnSource, ExportedPart

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

FORM = "ratioscope.export/1"


def table_facts(run: "Run", part: ExportedPart, columns: dict[str, ColumnSource]) -> dict[str, Any]:
    """The facts known before any row. `digest` of a column: equal digests mean the same formula, whatever the versions."""
    return {
        "form": FORM,
        "ratioscope": __version__,
        "schema_version": SCHEMA_VERSION,
        "run": {"name": run.name, "digest": run.digest, "schema_version": run.info.get("schema_version")},
        "level": part.level,
        "text": part.text,
        "columns": {name: _column(part.level, name, source) for name, source in columns.items()},
    }


def _column(level: str, name: str, source: ColumnSource) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": str(source.type)}
    if source.of_probe is not None:
        facts["digest"] = digest(level, source.of_probe)
    if "/" in name and (metric := of_column(name)) is not None:
        error = name.rpartition("/")[2] != metric.name
        facts |= {"unit": metric.unit, "formula": f"standard error of {metric.formula}" if error else metric.formula}
    elif name in FIELDS:
        facts |= {"unit": FIELDS[name].unit, "meaning": FIELDS[name].meaning}
    return facts
