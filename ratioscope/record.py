"""The Record: one sampled sequence, the row on disk. RECORD declares it once; every schema and table is rendered from it.

Per-token columns are lists over response positions (prompt excluded), all of the row's own length. Logprobs are natural
logarithms (nats). A column that was not recorded is null in every row. Position t of every list is the same token. Columns per
prompt are lists over the prompt's positions, of a length of their own.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from .errors import UPGRADE, SchemaError

if TYPE_CHECKING:
    import polars as pl

SCHEMA_VERSION = 2
"""2 added positions. A reader takes a column that a file lacks as null, so that it reads every older version too. An older reader
ignores a column that it does not know, so only a column that changes the meaning of others needs a new version."""
NEWER = f"this ratioscope reads up to {SCHEMA_VERSION}: {UPGRADE}"

MOST_POSITIONS = 1 << 26
"""A token's place in its response is below this. Readers lay out a sliced response up to its last place."""

POLICIES = ("rollout", "old", "current")
GAPS = {"mismatch": ("rollout", "old"), "total": ("rollout", "current"), "drift": ("old", "current")}
"""gap -> (earlier policy, later policy); the gap's log-ratio is later minus earlier."""
BETWEEN = ":"
"""Any two of policies and readings are a gap, too, by the name `earlier:later`, such as rollout:referee."""
READING_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")


def newer_schema(found: int) -> str:
    """Why a file of a newer schema version is not read."""
    return f"it has schema version {found}; {NEWER}"


def sides(gap: str) -> tuple[str, str]:
    """(earlier, later) of a gap: policies or readings. SchemaError for a name that is no gap.

    >>> sides("mismatch"), sides("rollout:referee")
    (('rollout', 'old'), ('rollout', 'referee'))
    """
    if gap in GAPS:
        return GAPS[gap]
    earlier, between, later = gap.partition(BETWEEN)
    if not between or earlier == later or not (READING_NAME.fullmatch(earlier) and READING_NAME.fullmatch(later)):
        wanted = f"one of {', '.join(GAPS)}, or two policies or readings, such as rollout{BETWEEN}referee"
        raise SchemaError(f"{gap!r} is no gap; wanted {wanted}")
    return earlier, later


def gap_between(earlier: str, later: str) -> str:
    """The name of the gap between two policies or readings.

    >>> gap_between("rollout", "old"), gap_between("old", "referee")
    ('mismatch', 'old:referee')
    """
    named = {pair: gap for gap, pair in GAPS.items()}
    return named.get((earlier, later), f"{earlier}{BETWEEN}{later}")


def kin(gap: str) -> str:
    """The gap of GAPS whose metrics a gap has: mismatch where the earlier side sampled the tokens, else drift."""
    return gap if gap in GAPS else "mismatch" if sides(gap)[0] == POLICIES[0] else "drift"


def reading_fault(name: object) -> str:
    """Why this cannot be the name of a reading; "" where it can."""
    if not isinstance(name, str) or not READING_NAME.fullmatch(name):
        return f"a reading is named {str(name)[:60]!r}; wanted small letters, digits and _, 48 at most, such as referee"
    if f"{name}_logprobs" in FIELDS:
        return f"a reading is named {name!r}, which is a policy of the Record; wanted another name, such as referee"
    return ""


MASK_REASONS = ("kept", "low", "high", "sequence", "veto", "off_policy", "length", "other")
"""The loss's own decisions about a token, by their number in `mask_reason`. Numbers,
because a text per token costs a Python object; one list for all trainers, because shares of two runs are to be compared. New
reasons are added at the end."""

FieldType = Literal["bool", "int16", "int32", "int64", "float32", "float64", "string"]


@dataclass(frozen=True)
class Field:
    """One column of the Record."""

    name: str
    kind: FieldType
    per: Literal["sequence", "token", "prompt"]
    """One value for a row; or a list with one for each token of the response, or of the prompt."""
    unit: str
    """Unit of a value; 1 for a pure number."""
    meaning: str
    """Meaning of a value, for docs/record.md."""
    required: bool = False
    """True if no row lacks it."""


RECORD: tuple[Field, ...] = (
    Field("attempt", "int32", "sequence", "1", "which start of the run wrote the row; a resume is a new attempt", True),
    Field(
        "step", "int64", "sequence", "1", "the trainer's own logged step at which the sequence enters the loss", True
    ),
    Field(
        "minibatch",
        "int32",
        "sequence",
        "1",
        "the update of the step that `current` belongs to; null: facts known before it",
    ),
    Field("sequence_id", "string", "sequence", "-", "unique per sampling event within the run", True),
    Field("generation_step", "int64", "sequence", "1", "the step at which the sequence was sampled"),
    Field("group_id", "string", "sequence", "-", "the prompt group"),
    Field("rank", "int32", "sequence", "1", "the trainer rank that wrote the row"),
    Field("replica", "string", "sequence", "-", "the engine that sampled the sequence"),
    Field("token_ids", "int32", "token", "-", "the sampled tokens"),
    Field("mask", "bool", "token", "-", "sampled tokens; false at tool and environment tokens"),
    Field("loss_mask", "bool", "token", "-", "tokens left in the loss after filtering and rejection"),
    Field(
        "mask_reason",
        "int16",
        "token",
        "-",
        f"why the loss left the token out: {', '.join(f'{number} {word}' for number, word in enumerate(MASK_REASONS))}",
    ),
    Field(
        "sampled_ids",
        "int32",
        "token",
        "-",
        "the tokens that the engine sampled, where the trained `token_ids` may differ",
    ),
    Field("rollout_logprobs", "float32", "token", "nats", "log-prob under the engine that sampled (behaviour policy)"),
    Field("old_logprobs", "float32", "token", "nats", "log-prob under the trainer's recomputation before the update"),
    Field(
        "current_logprobs", "float32", "token", "nats", "log-prob under the weights differentiated in this minibatch"
    ),
    Field("reference_logprobs", "float32", "token", "nats", "log-prob under the reference model of the KL penalty"),
    Field(
        "entropy", "float32", "token", "nats", "the trainer's entropy: of `current` where the row has it, else of `old`"
    ),
    Field("rollout_version_min", "int64", "sequence", "1", "oldest weights that sampled a token of the sequence"),
    Field("rollout_version_max", "int64", "sequence", "1", "newest weights that sampled a token of the sequence"),
    Field("rollout_versions", "int64", "token", "1", "weights that sampled each token"),
    Field(
        "kv_versions",
        "int64",
        "token",
        "1",
        "oldest weights whose keys and values each token was sampled with; below `rollout_versions`: a cache outlived a sync",
    ),
    Field("trainer_version", "int64", "sequence", "1", "weights that computed `old`, else `current`"),
    Field(
        "router_agreement",
        "float32",
        "token",
        "1",
        "share of the experts that engine and trainer both chose, from 0 to 1",
    ),
    Field("replayed", "bool", "sequence", "1", "whether the trainer used the engine's experts (router replay)"),
    Field("turn", "int16", "token", "1", "turn of the conversation, from 0"),
    Field("advantages", "float32", "token", "1", "advantage; a list of length 1 is one value for the sequence"),
    Field("reward", "float64", "sequence", "1", "reward of the sequence"),
    Field("finish_reason", "string", "sequence", "-", "why sampling ended, in the engine's word"),
    Field(
        "prompt_tokens",
        "int32",
        "sequence",
        "1",
        "tokens of prompts as the engine counted them, over all calls of the sequence",
    ),
    Field("cached_tokens", "int32", "sequence", "1", "of these, tokens that the engine took from its prefix cache"),
    Field("media", "int32", "sequence", "1", "images, videos and sounds in the prompt"),
    Field(
        "pack_index", "int32", "sequence", "1", "the packed row of the trainer's micro-batch that the sequence lies in"
    ),
    Field("pack_position", "int32", "sequence", "1", "the place of the sequence in its packed row, from 0"),
    Field("queue_seconds", "float64", "sequence", "s", "time from the request to the first token of the sequence"),
    Field("generation_seconds", "float64", "sequence", "s", "time from the first token to the last"),
    Field(
        "prompt_ids", "int32", "prompt", "-", "the tokens of the prompt: all that come before the first recorded token"
    ),
    Field("prompt_text", "string", "sequence", "-", "the prompt, where text is recorded"),
    Field("token_texts", "string", "token", "-", "the text of each token, where text is recorded"),
    Field(
        "positions",
        "int32",
        "token",
        "1",
        "where these tokens stand in the response, where the row is a slice of it; null: 0, 1, 2, ...",
    ),
    Field("inclusion_probability", "float64", "sequence", "1", "probability with which this row was kept; null: 1"),
    Field("extra", "string", "sequence", "-", "anything else, as a JSON object"),
)
FIELDS = {field.name: field for field in RECORD}
TOKEN_FIELDS = tuple(field.name for field in RECORD if field.per == "token")
PROMPT_FIELDS = tuple(field.name for field in RECORD if field.per == "prompt")
"""Lists that all samples of a prompt repeat."""

SLICED_BY = ("mask", "replica", "rollout_version_min", "trainer_version", "turn")
"""Columns that the written statistics depend on and that a process may record of sequences another one measures."""

_ARROW: dict[FieldType, pa.DataType] = {
    "bool": pa.bool_(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
    "float32": pa.float32(), "float64": pa.float64(), "string": pa.string(),
}  # fmt: skip


@cache
def arrow_schema() -> pa.Schema:
    """The schema of a token file; list columns for fields per token and per prompt, everything nullable but the required."""
    return pa.schema([pa.field(f.name, _arrow_type(f), nullable=not f.required) for f in RECORD])


@cache
def reading_schema() -> pa.Schema:
    """The schema of a file of a reading: the key of a sequence and its log-probs. The last two columns may be absent."""
    own = ("attempt", "step", "sequence_id", "positions", "inclusion_probability")
    columns = [pa.field(name, _arrow_type(FIELDS[name]), nullable=not FIELDS[name].required) for name in own]
    return pa.schema([*columns[:3], pa.field("logprobs", pa.list_(pa.float32()), nullable=False), *columns[3:]])


def scalar_schema() -> pa.Schema:
    """The schema of a file of scalars: numbers that a trainer logged by step, a row each. The last row of an attempt, step and
    name counts. `metric`: the metric of ours that has the same definition, `<gap>/<metric>`; null where none has."""
    number = {"attempt": pa.int32(), "step": pa.int64(), "name": pa.string(), "value": pa.float64()}
    columns = [pa.field(name, type_, nullable=False) for name, type_ in number.items()]
    return pa.schema([*columns, pa.field("metric", pa.string())])


def polars_schema() -> "pl.Schema":
    """The same schema for readers; derived from the Arrow one, so that the two cannot drift apart."""
    import polars as pl

    frame = pl.DataFrame(arrow_schema().empty_table())
    return frame.schema


def markdown_table(fields: Iterable[Field] = RECORD) -> str:
    """The documentation table of the fields."""
    rows = (
        f"| `{f.name}` | {f.kind}{'' if f.per == 'sequence' else ' list'} | {f.unit} | {f.meaning} |" for f in fields
    )
    return "\n".join(("| column | type | unit | meaning |", "| --- | --- | --- | --- |", *rows))


def _arrow_type(field: Field) -> pa.DataType:
    value = _ARROW[field.kind]
    return value if field.per == "sequence" else pa.list_(value)
