"""One sequence, or a window of it, as a small JSON document to paste into an issue, and reading it back.

    {"schema": "ratioscope.sequence/1",
     "run": ..., "trainer": ..., "ratioscope": version that wrote it,
     "step": ..., "minibatch": ..., "sequence_id": ..., "facts": {reward, lag, ...},
     "first_position": position of the first token below, "tokens": how many tokens are below, "of": how many the response has,
     "prompt_ids": the prompt's tokens, with the text only; absent if not on record,
     "columns": {name of the Record: list of `tokens` values}, "metrics": {"<gap>/<metric>": value over these tokens}}

Columns are per-token columns of the Record (ratioscope/record.py) that hold a value. Floats are float32, written in enough digits
to read back the same bits. JSON has no number for NaN and infinities: they are "nan", "inf" and "-inf".
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import FIELDS, arrow_schema
from ratioscope.version import __version__

from .token_frame import LISTS, token_frame

SCHEMA = "ratioscope.sequence/1"
FACTS = (
    "attempt", "group_id", "replica", "rank", "lag", "rollout_version_min", "rollout_version_max", "trainer_version", "reward",
    "finish_reason", "inclusion_probability", "prompt_tokens", "cached_tokens", "media", "pack_index", "pack_position",
    "replayed", "queue_seconds", "generation_seconds",
)  # fmt: skip
METRICS = (
    "tokens", "kl_direct", "kl_k3", "ppo_kl", "kl_k2", "abs_log_ratio", "max_abs_log_ratio", "chi2_token", "ess_token",
    "prob_diff", "max_prob_diff",
)  # fmt: skip
TEXTS = ("token_texts",)
SNIPPET = """import json
from pathlib import Path

from ratioscope.ingest.rows.sequence_json import sequence_metrics, sequence_tokens

document = json.loads(Path("sequence.json").read_text())
assert sequence_metrics(document) == document["metrics"]
print(sequence_tokens(document))  # a row per token: log-probs, log-ratios, weights
"""
"""Code that the receiver of a document can run on it."""


def sequence_json(
    tokens: pl.DataFrame,
    about: Mapping[str, Any],
    *,
    first: int = 0,
    most: int | None = None,
    texts: bool = False,
    prompt_ids: Sequence[int] | None = None,
) -> str:
    """The document of the tokens from position `first` on, `most` of them (None: all). texts: with the text of the tokens, and
    with the prompt's tokens.

    tokens: as Run.sequence returns them. about: run, trainer, step, minibatch, sequence_id and FACTS of the sequence.
    """
    chosen = tokens.slice(first, most)
    columns = {
        record: _values(chosen[name])
        for name, record in LISTS.items()
        if name in chosen.columns and chosen[name].null_count() < len(chosen) and (texts or record not in TEXTS)
    }
    document = {
        "schema": SCHEMA,
        "run": about.get("run"),
        "trainer": about.get("trainer"),
        "ratioscope": __version__,
        "step": about.get("step"),
        "minibatch": about.get("minibatch"),
        "sequence_id": about.get("sequence_id"),
        "facts": {name: _value(about[name]) for name in FACTS if about.get(name) is not None},
        "first_position": first,
        "tokens": len(chosen),
        "of": len(tokens),
        **({"prompt_ids": list(prompt_ids)} if texts and prompt_ids is not None else {}),
        "columns": columns,
    }
    document["metrics"] = sequence_metrics(document)
    return _spelled(document)


def sequence_records(document: Mapping[str, Any]) -> pa.Table:
    """The document as a table with one Record. SourceError where it is no such document."""
    if document.get("schema") != SCHEMA:
        raise SourceError(f"the document's schema is {document.get('schema')!r}; wanted {SCHEMA!r}")
    columns = document.get("columns", {})
    unknown = [name for name in columns if name not in FIELDS]
    if unknown:
        raise SourceError(f"the document has columns {unknown} that no Record has; it may be of a newer ratioscope")
    members: dict[str, Any] = {
        "attempt": document.get("facts", {}).get("attempt", 0),
        "step": document.get("step"),
        "minibatch": document.get("minibatch"),
        "sequence_id": document.get("sequence_id"),
        "prompt_ids": document.get("prompt_ids"),
        **{name: [_number(value, name) for value in values] for name, values in columns.items()},
    }
    return pa.table(
        [pa.array([members.get(field.name)], field.type) for field in arrow_schema()], schema=arrow_schema()
    )


def sequence_tokens(document: Mapping[str, Any]) -> pl.DataFrame:
    """One row per token of the document, as Run.sequence gives them."""
    tokens = token_frame(sequence_records(document))
    return tokens.with_columns(pl.col("position") + int(document["first_position"]))


def sequence_metrics(document: Mapping[str, Any]) -> dict[str, float | str]:
    """`<gap>/<metric>` over the tokens of the document, for METRICS that are available; values as in the document."""
    own_statistics = pl.DataFrame(statistics(sequence_records(document)))
    if own_statistics.is_empty():
        return {}
    row = metric_frame(own_statistics, by=()).row(0, named=True)
    return {
        name: _value(value)
        for name, value in row.items()
        if value is not None and name.partition("/")[2] in METRICS and not math.isnan(value)
    }


def _values(column: pl.Series) -> list[Any]:
    """Plain values; float32 in the fewest digits that read back the same."""
    if column.dtype == pl.Float32:
        return [None if value is None else _value(float(str(np.float32(value)))) for value in column.to_list()]
    return [_value(value) for value in column.to_list()]


def _value(value: Any) -> Any:
    """The value; a text where JSON has no number for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any, column: str) -> Any:
    return float(value) if isinstance(value, str) and FIELDS[column].kind.startswith("float") else value


def _spelled(document: Mapping[str, Any]) -> str:
    """The document as JSON with one line per entry and per column, to be read and compared by lines."""
    entries = []
    for name, value in document.items():
        if name == "columns":
            lines = ",\n".join(f"  {json.dumps(column)}: {json.dumps(values)}" for column, values in value.items())
            entries.append(f' "columns": {{\n{lines}\n }}')
        else:
            entries.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(entries) + "\n}\n"
