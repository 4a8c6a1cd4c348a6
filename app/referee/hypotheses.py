"""The alternatives that --try reads the tokens under, as a table: a name, what is changed, and what it means if a recorded
column is reproduced so.
Alternatives of --try that read the prompt as the tokenizer's chat template makes it of the recorded text.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from .changed_weights import Perturbation, computed_in, in_fp8, quantised, rounded, with_adapter, with_fp8_kv
from .inputs import Sequence_

TEMPERATURES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0)
CUTS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Lengths that prompts may have been cut to."""
MOST_LAST = 6
"""Tokens of a generation prompt at most."""
Prompt = tuple[int, ...]
_ROLE = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_MEANING = "this side makes its prompts otherwise than the other: compare the chat templates and their arguments"


_WAYS: Mapping[str, Mapping[str, Any]] = {
    "the template with a generation prompt": {"add_generation_prompt": True},
    "the template without a generation prompt": {"add_generation_prompt": False},
    "the template with an empty system message": {"add_generation_prompt": True, "system": ""},
    "the template without the system message": {"add_generation_prompt": True, "system": None},
    "the text of the messages without a template": {"plain": True},
}


@dataclass(frozen=True)
class Hypothesis:
    """One alternative. A field that it leaves out is as in the plain reading."""

    name: str
    meaning: str
    """The fault, if this reproduces a column."""
    group: str = ""
    """weights, precision, sampling, prompt or places: two alternatives of one group are not combined."""
    scoring: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Scoring that differ."""
    prompt: Callable[[Prompt], Prompt] | None = None
    """The prompt that is read instead of the recorded one."""
    weights: Perturbation | None = None
    """The changed copy of a model."""
    checkpoint: Path | None = None
    """The folder of the weights, if they are others."""
    shift: int = 0
    """The column's log-prob of token t is compared with ours of token t + shift."""
    is_pair: bool = False
    """True if it is two alternatives at once."""


PLAIN = Hypothesis("the referee as it is", "this side computes what the model says")


_LOW = "the column was computed in {} and no more: compute the head, or all of it, in float32 on this side"
_QUANTISED = "this side holds quantised weights: sync unquantised ones, or correct for it"
_ALWAYS = (
    Hypothesis("weights in bfloat16, computed in float32", "this side holds weights rounded to bfloat16: sync float32,"
               " or train in bfloat16 too", "weights", weights=rounded(torch.bfloat16)),
    Hypothesis("weights in float16, computed in float32", "this side holds weights rounded to float16: sync float32,"
               " or train in float16 too", "weights", weights=rounded(torch.float16)),
    Hypothesis("weights of 8 bits", _QUANTISED, "weights", weights=quantised(127)),
    Hypothesis("weights of 4 bits", _QUANTISED, "weights", weights=quantised(7)),
    Hypothesis("weights in FP8 (e4m3), a scale per matrix", _QUANTISED, "weights", weights=in_fp8(per_row=False)),
    Hypothesis("weights in FP8 (e4m3), a scale per row", _QUANTISED, "weights", weights=in_fp8(per_row=True)),
    Hypothesis("bfloat16", _LOW.format("bfloat16"), "precision", {"head_float32": False}, weights=computed_in(torch.bfloat16)),
    Hypothesis("bfloat16 with the head in float32", _LOW.format("bfloat16 but the head"), "precision",
               weights=computed_in(torch.bfloat16)),
    Hypothesis("bfloat16 by autocast", _LOW.format("bfloat16 under autocast"), "precision",
               {"autocast": "bfloat16", "head_float32": False}),
    Hypothesis("float16", _LOW.format("float16"), "precision", {"head_float32": False}, weights=computed_in(torch.float16)),
    Hypothesis("float16 with the head in float32", _LOW.format("float16 but the head"), "precision",
               weights=computed_in(torch.float16)),
    Hypothesis("float16 by autocast", _LOW.format("float16 under autocast"), "precision",
               {"autocast": "float16", "head_float32": False}),
    Hypothesis("a KV cache in FP8 (e4m3)", "this side keeps keys and values in FP8 without scales: give kv_cache_dtype auto, or"
               " calibrate", "precision", weights=with_fp8_kv),
    Hypothesis("positions that begin anew at the response", "position ids are wrong on this side: check padding and packing",
               "places", {"restart": True}),
    Hypothesis("each log-prob one token later", "the column is shifted: its value of a token is that of the next one",
               "places", shift=1),
    Hypothesis("each log-prob one token earlier", "the column is shifted: its value of a token is that of the one"
               " before", "places", shift=-1),
    Hypothesis("without the first token of the prompt", "this side did not read the first token, often BOS: check"
               " add_special_tokens", "prompt", prompt=lambda ids: ids[1:]),
    Hypothesis("with the first token of the prompt twice", "this side read BOS twice: the template has it, and the"
               " tokenizer adds it", "prompt", prompt=lambda ids: (ids[0], *ids)),
)  # fmt: skip


def hypotheses(
    sequences: Sequence[Sequence_], *, bos: int | None = None, checkpoints: Sequence[Path] = ()
) -> Iterator[Hypothesis]:
    """The plain reading and every alternative that changes something for these sequences."""
    yield PLAIN
    for path in checkpoints:
        yield from _saved(path)
    prompts = [sequence.prompt for sequence in sequences]
    changed = [hypothesis for hypothesis in (*_ALWAYS, *_prompts(prompts, bos)) if _changes(hypothesis, prompts)]
    yield from changed
    for temperature in TEMPERATURES:
        meaning = f"the column is at temperature {temperature:g}, or the other side's is: let both be at one"
        yield Hypothesis(f"temperature {temperature:g}", meaning, "sampling", {"temperature": temperature})


def combined(one: Hypothesis, other: Hypothesis) -> Hypothesis:
    """Both changes at once: the weights of the first before those of the other, but a dtype of computation last."""
    last, first = (one, other) if one.group == "precision" else (other, one)
    prompts = [each.prompt for each in (one, other) if each.prompt is not None]
    changes = [each.weights for each in (first, last) if each.weights is not None]
    return Hypothesis(
        f"{one.name} and {other.name}", f"{one.meaning}; and {other.meaning}", f"{one.group} and {other.group}",
        {**one.scoring, **other.scoring}, prompt=_both(prompts), weights=_both(changes),
        checkpoint=one.checkpoint or other.checkpoint, shift=one.shift + other.shift, is_pair=True,
    )  # fmt: skip


def _both(changes: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    def apply(value: Any) -> Any:
        for change in changes:
            value = change(value)
        return value

    return apply if changes else None


def _saved(path: Path) -> Iterator[Hypothesis]:
    """The weights in a folder: a checkpoint, or an adapter that a side lacks or has."""
    if (path / "config.json").is_file():
        meaning = f"this side holds the weights of {path.name}, not the current ones: check the weight sync"
        yield Hypothesis(f"the checkpoint {path.name}", meaning, "weights", checkpoint=path)
        return
    merged = f"this side holds the model with the adapter {path.name}, --model does not: check which adapter is synced"
    yield Hypothesis(
        f"the adapter {path.name} merged", merged, "weights", weights=lambda model: with_adapter(path)(model)
    )
    absent = f"this side runs without the adapter {path.name}, which --model has: check that the engine loads it"
    without: Perturbation = lambda model: with_adapter(path, -1.0)(model)  # noqa: E731
    yield Hypothesis(f"without the adapter {path.name}", absent, "weights", weights=without)


def read_under(hypothesis: Hypothesis, sequences: Sequence[Sequence_]) -> list[Sequence_]:
    """The sequences as they are read under the alternative. A prompt that would become empty stays."""
    if hypothesis.prompt is None:
        return list(sequences)
    return [replace(sequence, prompt=hypothesis.prompt(sequence.prompt) or sequence.prompt) for sequence in sequences]


def common_beginning(prompts: Sequence[Prompt]) -> int:
    """Tokens that all prompts begin with, such as a system prompt; 0 where all prompts are one.

    >>> common_beginning([(1, 2, 3), (1, 2, 4, 5)])
    2
    """
    if len(set(prompts)) < 2:
        return 0
    least, most = min(prompts), max(prompts)
    return next((k for k, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))


def _prompts(prompts: Sequence[Prompt], bos: int | None) -> Iterator[Hypothesis]:
    common = common_beginning(prompts)
    if bos is not None:
        yield Hypothesis("with BOS before the prompt", "this side adds BOS, which is not among the recorded prompt ids: check"
                         " add_special_tokens", "prompt", prompt=lambda ids: ids if ids[0] == bos else (bos, *ids))  # fmt: skip
    if common > 1:
        meaning = "this side did not read what all prompts begin with, such as a system message: compare the templates"
        name = f"without the {common} tokens that all prompts begin with"
        yield Hypothesis(name, meaning, "prompt", prompt=lambda ids: ids[common:])
        yield Hypothesis(f"{name}, but the first", meaning, "prompt", prompt=lambda ids: (ids[0], *ids[common:]))
    for last in range(1, MOST_LAST + 1):
        meaning = (
            "this side did not read the end of the prompt, such as a generation prompt: check add_generation_prompt"
        )
        word = "token" if last == 1 else f"{last} tokens"
        yield Hypothesis(f"without the last {word} of the prompt", meaning, "prompt", prompt=_cut(None, -last))
    for length in CUTS:
        meaning = f"this side cuts prompts to {length} tokens: check max_prompt_length"
        yield Hypothesis(f"prompts cut to their last {length} tokens", meaning, "prompt", prompt=_cut(-length, None))
        yield Hypothesis(f"prompts cut to their first {length} tokens", meaning, "prompt", prompt=_cut(None, length))


def _cut(first: int | None, last: int | None) -> Callable[[Prompt], Prompt]:
    return lambda ids: ids[first:last]


def _changes(hypothesis: Hypothesis, prompts: Sequence[Prompt]) -> bool:
    own = hypothesis.prompt
    return own is None or any(own(prompt) and own(prompt) != prompt for prompt in prompts)


ChatMessage = dict[str, str]


def template_hypotheses(sequences: Sequence[Sequence_], tokenizer: Any) -> Iterator[Hypothesis]:
    """One alternative per way to make a prompt of its text that gives other ids than those on record for some sequence."""
    if tokenizer is None:
        return
    conversations = {sequence.prompt: messages_of(sequence.text) for sequence in sequences if sequence.text}
    for name, options in _WAYS.items():
        made = {prompt: _rendered(tokenizer, messages, options) for prompt, messages in conversations.items()}
        others = {prompt: ids for prompt, ids in made.items() if ids and ids != prompt}
        if others:
            yield Hypothesis(name, _MEANING, group="prompt", prompt=lambda ids, others=others: others.get(ids, ids))  # type: ignore[misc]


def messages_of(text: str) -> list[ChatMessage]:
    """The conversation of a recorded prompt: lines that begin with a role begin a message; other text is a user's.

    >>> messages_of("system: be brief\\nuser: hello")
    [{'role': 'system', 'content': 'be brief'}, {'role': 'user', 'content': 'hello'}]
    """
    if not _ROLE.match(text):
        return [{"role": "user", "content": text}]
    starts = list(_ROLE.finditer(text))
    ends = [start.start() for start in starts[1:]] + [len(text) + 1]
    return [{"role": start[1], "content": text[start.end() : end - 1]} for start, end in zip(starts, ends, strict=True)]


def _rendered(tokenizer: Any, messages: list[ChatMessage], way: Mapping[str, Any]) -> Prompt | None:
    """The ids of the conversation; None if the tokenizer has no template, or one that refuses it."""
    options = dict(way)
    if options.pop("plain", False):
        text = "\n".join(message["content"] for message in messages)
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    if "system" in options:
        system = options.pop("system")
        messages = [message for message in messages if message["role"] != "system"]
        messages = messages if system is None else [{"role": "system", "content": system}, *messages]
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception:  # a template raises what it likes: a role it does not know, no system message allowed, ...
        return None
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
