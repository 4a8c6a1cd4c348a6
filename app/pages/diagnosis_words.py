"""The texts of the Diagnosis page: rows of its tables, and the lines that record a missing column."""

from collections.abc import Sequence

from ratioscope.metrics.diagnosis.diagnosis import Diagnosis

from ..presentation.sentence import capital, sentence

VALUES = {
    "token_ids": ("ids", "of the sampled tokens, one list per sequence"),
    "entropy": ("entropy", "of the trainer's distribution, in nats, one per token"),
    "rollout_versions": ("versions", "of the weights that sampled: one per sequence, or one per token"),
    "trainer_version": ("version", "of the weights that computed old (else current) log-probs"),
    "replica": ("replicas", "names of the engine's replicas: one, or one per sequence"),
    "group_ids": ("groups", "of the prompts, one per sequence"),
    "cached_tokens": ("cached", "prompt tokens from the engine's prefix cache, one number per sequence"),
    "kv_versions": ("kv_versions", "of the weights whose keys and values each token was sampled with"),
    "media": ("media", "number of images, videos and sounds, one per sequence"),
    "pack_position": ("places", "of the sequences in their packed row, from 0"),
    "router_agreement": ("agreement", "share of experts that both sides chose, one per token"),
    "sampled_ids": ("sampled", "ids as the engine sampled them, one list per sequence"),
    "turns": ("turns", "number of the turn, one per token"),
}
"""Argument of Collector.log -> a name for its values, and their meaning and shape."""


def excluded_rows(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Cause, measured effect, and the smallest effect that would have been seen."""
    return [
        (capital(item.cause.title), sentence(item.effect), sentence(item.would_show)) for item in diagnosis.excluded
    ]


def open_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Reason why the record cannot tell, and the causes that it leaves open."""
    causes: dict[str, list[str]] = {}
    for item in diagnosis.cannot_tell:
        causes.setdefault(sentence(item.because), []).append(item.cause.title)
    return [(because, sentence("; ".join(titles))) for because, titles in causes.items()]


def record_lines(arguments: Sequence[str]) -> str:
    """The call that records these arguments."""
    values = {name: VALUES.get(name, ("...", "")) for name in arguments}
    lines = {f"    {name}={value},": about for name, (value, about) in values.items()}
    wide = max(map(len, lines), default=0)
    return "\n".join(
        [
            "collector.log(",
            "    ...,",
            *(f"{line:{wide}}  # {about}".rstrip(" #") for line, about in lines.items()),
            ")",
        ]
    )
