"""martingale: its record of tokens, an SQLite file. A sequence has the engine's log-probs, and the trainer's of each revision."""

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from ratioscope.flat_json import loaded

from ..table import FileKind, Format, columns

_FLOATS = {"f32": ">f", "f64": ">d"}


def _scored(row: Mapping[str, Any]) -> Iterator[Any]:
    """A row for each revision that scored a sequence, in the order of their steps; one without scores where none did."""
    record = loaded(row["record_json"])
    steps = {each["digest"]: each["step"] for each in row["llm_revisions"]}
    tokens = record["tokens"]
    sampled = {
        "record": record,
        "token_ids": [token["token_id"] for token in tokens],
        "rollout": [_number(token["logprob_bits"]) for token in tokens],
        "versions": [steps.get(token["revision_digest"]) for token in tokens],
        "reward": None if record.get("reward_bits") is None else _number(record["reward_bits"]),
    }
    scores: dict[str, dict[int, float]] = {}
    for score in row["scores"]:
        bits = loaded(score["record_json"])["logprob_bits"]
        scores.setdefault(score["train_revision_digest"], {})[score["position"]] = _number(bits)
    for minibatch, revision in enumerate(sorted(scores, key=lambda each: steps.get(each, -1))):
        values = [scores[revision].get(position, float("nan")) for position in range(len(tokens))]
        yield {**sampled, "current": values, "trained_at": steps.get(revision), "pass": minibatch}
    if not scores:
        yield {**sampled, "pass": 0}


def _number(bits: str) -> float:
    """The float of its bits in hexadecimal digits: f32:bf800000 is -1."""
    kind, _, digits = bits.partition(":")
    value: float = struct.unpack(_FLOATS[kind], bytes.fromhex(digits))[0]
    return value


FORMATS = (
    Format(
        name="martingale",
        title="martingale tokens.db",
        trainer="martingale",
        parts=(
            FileKind(
                what="recorded sequences with their scores",
                file=r".*\.(?:db|sqlite|sqlite3)",
                container="martingale",
                marks=("record.tokens",),
                split=_scored,
                columns=columns("""
                    step = trained_at or versions.0
                    sequence_ids = record.sequence_id | named(record.actor_id, record.sequence_index, pass)
                    rollout_logprobs = rollout !
                    current_logprobs = current
                    token_ids = token_ids
                    prompt_ids = record.prompt_ids
                    rollout_versions = versions
                    trainer_version = trained_at
                    rewards = reward
                """),
                lacks="masks, groups and old log-probs; rows that a journal beside the file holds",
            ),
        ),
    ),
)
