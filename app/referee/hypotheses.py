"""The alternatives that --try reads the tokens under, as a table: a name, what is changed, and what it means if a recorded
column is reproduced so.
Alternatives of --try that read the prompt as the tokenizer's chat template makes it of the recorded text.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .changed_weights import (
    Perturbation,
    computed_in,
    has_rope,
    in_fp8,
    quantised,
    rounded,
    tensor_changes,
    with_adapter,
    with_ends,
    with_fp8_kv,
    with_frequencies,
    with_rope_layout,
)
from .inputs import Sequence_
from .likeliest import SETTINGS, Setting
from .model import model_in
from .scoring import Context, Scoring, Visible

MOST_MESSAGES = 6
"""Messages of a prompt that are left out one by one, from its beginning and from its end."""
Prompt = tuple[int, ...]
Change = Callable[[Any], Mapping[str, Any]]
"""Value of a setting -> the fields of Hypothesis that it changes."""
_ROLE = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)
_MEANING = "this side makes its prompts otherwise than the other: compare the chat templates and their arguments"
_EACH = "{% for m in messages %}"
_WAYS: Mapping[str, Mapping[str, Any]] = {
    "the template with a generation prompt": {"add_generation_prompt": True},
    "the template without a generation prompt": {"add_generation_prompt": False},
    "the template with an empty system message": {"add_generation_prompt": True, "system": ""},
    "the template without the system message": {"add_generation_prompt": True, "system": None},
    "the text of the messages without a template": {"plain": True},
    "the template of ChatML": {
        "chat_template": f"{_EACH}<|im_start|>{{{{m.role}}}}\n{{{{m.content}}}}<|im_end|>\n{{% endfor %}}<|im_start|>assistant\n"
    },
    "the template of Llama 3": {
        "chat_template": f"{{{{bos_token}}}}{_EACH}<|start_header_id|>{{{{m.role}}}}<|end_header_id|>\n\n{{{{m.content}}}}"
        "<|eot_id|>{% endfor %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    },
    "lines of role and content": {
        "chat_template": f"{_EACH}{{{{m.role | capitalize}}}}: {{{{m.content}}}}\n{{% endfor %}}Assistant:"
    },
}


@dataclass(frozen=True)
class Knob:
    """A setting with a value: tried on a grid, then between the neighbours of its best value."""

    make: Callable[[float], "Hypothesis"]
    """The alternative at a value."""
    grid: tuple[float, ...]
    whole: bool = False
    """True if its values are whole numbers."""

    def at(self, value: float) -> "Hypothesis":
        """The alternative at this value."""
        return replace(self.make(int(value) if self.whole else value), knob=self, value=value)

    def between(self, best: float, known: Sequence[float]) -> list[float]:
        """New values on both sides of the best one, up to its neighbours among those that are known."""
        ordered = sorted({*self.grid, *known, best})
        place = ordered.index(best)
        low = ordered[place - 1] if place else best - (ordered[1] - best if len(ordered) > 1 else abs(best) / 4)
        high = ordered[place + 1] if best < ordered[-1] else best + (best - low)
        if self.whole:
            every = list(range(round(low) + 1, round(high)))
            return [value for value in every[:: len(every) // 32 + 1] if value not in known]
        return [one + (two - one) * part / 4 for one, two in ((low, best), (best, high)) for part in (1, 2, 3)]


@dataclass(frozen=True)
class Hypothesis:
    """One alternative. A field that it leaves out is as in the plain reading."""

    name: str
    meaning: str
    """The fault, if this reproduces a column."""
    code: str = ""
    """The code of the cause that it shows."""
    group: str = ""
    """weights, precision, sampling, prompt, places and others: two alternatives of one group are not combined."""
    scoring: Mapping[str, Any] = field(default_factory=dict)
    """Fields of Scoring that differ."""
    tokens: Callable[[Sequence_], Sequence_] | None = None
    """The sequence that is read instead of the recorded one."""
    weights: Perturbation | None = None
    """The changed copy of a model."""
    checkpoint: Path | None = None
    """The folder of the weights, or the name of their server, if they are others."""
    shift: int = 0
    """The column's log-prob of token t is compared with ours of token t + shift."""
    parts: tuple["Hypothesis", ...] = ()
    """The two alternatives that it is at once; empty if it is one."""
    knob: Knob | None = None
    value: float = 0.0
    """The value of the knob."""
    setting: Setting | None = None
    """The setting of a sampler that has the same effect; None if there is none by which a server's log-probs can be bounded."""

    @property
    def is_pair(self) -> bool:
        """True if it is two alternatives at once."""
        return bool(self.parts)

    @property
    def is_of_input(self) -> bool:
        """True if nothing but the tokens that are read, or the place of what is compared, differs."""
        return self.weights is None and self.checkpoint is None and not self.scoring

    @property
    def search(self) -> Any:
        """The same for every value of its settings."""
        return frozenset(own.search for own in self.parts) if self.parts else self.knob or self.name

    @property
    def line(self) -> Any:
        """The same for every value of the setting that is searched."""
        return self.search, self.parts[0].name if self.parts else ""

    @property
    def swapped(self) -> "Hypothesis | None":
        """The pair with the setting of its first part to be searched; None if that has no value."""
        return combined(*self.parts[::-1]) if self.parts and self.parts[0].knob else None

    @property
    def how(self) -> Scoring:
        """The settings of its scoring."""
        return Scoring(**self.scoring)


PLAIN = Hypothesis("the referee as it is", "this side computes what the model says")


def _prompt(change: Callable[[Prompt], Prompt]) -> Callable[[Sequence_], Sequence_]:
    """A change of the prompt alone. A prompt that would become empty stays."""
    return lambda sequence: replace(sequence, prompt=change(sequence.prompt) or sequence.prompt)


BLOCKS = (1, 16, 32, 64, 128)
"""Tokens of a block of a prefix cache: SGLang 1, vLLM 16, with some attention kernels 32 or 64, on the CPU 128."""
_LOW = "the column was computed in {} and no more: compute the head, or all of it, in float32 on this side"
_QUANTISED = "this side holds quantised weights: sync unquantised ones, or correct for it"
_PLACES = "position ids are wrong on this side: check padding and packing"
_LOAD = "this side loaded a tensor wrongly: compare names, shapes and layouts of the two sides"
_SHIFTED = "rows of the vocabulary are shifted on this side: check how the vocabulary is padded and sharded"
_WEIGHTS, _LOADED = ("different_weights", "weights"), ("corrupted_load", "weights")
_PRECISION, _PROMPTS = ("different_weights", "precision"), ("different_prompt", "prompt")
_PACKED = "a packed row leaks into this sequence on this side: its tokens see those of the sequence before"


def _behind_another(sequence: Sequence_) -> Sequence_:
    return replace(sequence, prompt=(*sequence.before, *sequence.prompt), lead=len(sequence.before))


def _restarted(places: Tensor, starts: Tensor, leads: Tensor) -> Tensor:
    return torch.where(places < starts, places, places - starts)


def _own_places(places: Tensor, starts: Tensor, leads: Tensor) -> Tensor:
    return torch.where(places < leads, places, places - leads)


def _end(model: Any, end: str) -> Any:
    """The weight of the head (output) or of the embedding (input)."""
    return getattr(model, f"get_{end}_embeddings")().weight


def _rolled(end: str, by: int) -> Perturbation:
    weight: Callable[[Any], Any] = lambda model: _end(model, end).roll(by, 0)  # noqa: E731
    return with_ends(**{"head" if end == "output" else "embedding": weight})


_ALWAYS = (
    *(Hypothesis(f"weights in {name}, computed in float32", f"this side holds weights rounded to {name}: sync float32,"
                 f" or train in {name} too", *_WEIGHTS, weights=rounded(getattr(torch, name)))
      for name in ("bfloat16", "float16")),
    *(Hypothesis(f"weights of {bits} bits", _QUANTISED, *_WEIGHTS, weights=quantised(2 ** (bits - 1) - 1)) for bits in (8, 4)),
    *(Hypothesis(f"weights of 4 bits, {group} in a group{words}", _QUANTISED, *_WEIGHTS,
                 weights=quantised(levels, group, shifted=shifted))
      for group in (16, 32, 64, 128) for levels, shifted, words in ((7, False, ""), (7.5, True, " with a zero point"))),
    *(Hypothesis(f"weights in FP8 (e4m3), a scale per {'row' if per_row else 'matrix'}", _QUANTISED, *_WEIGHTS,
                 weights=in_fp8(per_row=per_row)) for per_row in (False, True)),
    Hypothesis("queries and keys in the other layout of RoPE", _LOAD, *_LOADED, weights=with_rope_layout),
    *(Hypothesis(f"rows of the {words} shifted by {by:+d}", _SHIFTED, *_LOADED, weights=_rolled(end, by))
      for end, words in (("output", "head"), ("input", "embedding")) for by in (1, -1)),
    *(Hypothesis(f"{name}{words}", _LOW.format(f"{name}{how}"), *_PRECISION, scoring,
                 weights=None if "autocast" in scoring else computed_in(getattr(torch, name)))
      for name in ("bfloat16", "float16") for words, how, scoring in (
          ("", "", {"head_float32": False}), (" with the head in float32", " but the head", {}),
          (" by autocast", " under autocast", {"autocast": name, "head_float32": False}))),
    Hypothesis("a KV cache in FP8 (e4m3)", "this side keeps keys and values in FP8 without scales: give kv_cache_dtype auto, or"
               " calibrate", "different_weights", "cache", weights=with_fp8_kv),
    Hypothesis("positions that begin anew at the response", _PLACES, "position_ids", "places", {"positions": _restarted}),
    Hypothesis("every token at position 0", _PLACES, "position_ids", "places",
               {"positions": lambda places, starts, leads: places * 0}),
    *(Hypothesis(f"behind the sequence before it in the record{words}", _PACKED, "packing_leak", "places", scoring,
                 tokens=_behind_another)
      for words, scoring in (("", {}), (", at its own positions", {"positions": _own_places}))),
    *(Hypothesis(f"each log-prob one token {words}", f"the column is shifted: its value of a token is that of the {other}",
                 "shifted", "places", shift=by)
      for words, other, by in (("later", "next one", 1), ("earlier", "one before", -1))),
    Hypothesis("with the first token of the prompt twice", "this side read BOS twice: the template has it, and the"
               " tokenizer adds it", *_PROMPTS, tokens=_prompt(lambda ids: (ids[0], *ids))),
)  # fmt: skip


def _kept(logits: Tensor, kept: Tensor, context: Context) -> Tensor:
    """Without the logits that are not kept. That of the target stays: it was sampled, so the other side kept it."""
    return logits.masked_fill(~kept.scatter(1, context.targets[:, None], True), float("-inf"))


def _top_p(value: float, logits: Tensor, context: Context) -> Tensor:
    probability, order = logits.softmax(1).sort(1, descending=True)
    kept = probability.cumsum(1) - probability < value
    return _kept(logits, torch.zeros_like(kept).scatter(1, order, kept), context)


def _top_k(value: float, logits: Tensor, context: Context) -> Tensor:
    least = logits.topk(min(int(value), logits.shape[1]), 1).values[:, -1:]
    return _kept(logits, logits >= least, context)


def _repetition(value: float, logits: Tensor, context: Context) -> Tensor:
    seen = context.counts(logits.shape[1], prompt=True) > 0
    return torch.where(seen, torch.where(logits > 0, logits / value, logits * value), logits)


_CUTS_OF = "this side renormalises over the tokens that its sampler keeps, the other does not: let both do the same"
_PENALTY = "this side has a penalty in its log-probs, the other has not: switch it off, or apply it on both sides"
_LOGITS: tuple[tuple[str, str, str, str, str, Callable[[float, Tensor, Context], Tensor], tuple[float, ...]], ...] = (
    ("top-p", _CUTS_OF, "truncation", "cut", "after", _top_p, (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)),
    ("top-k", _CUTS_OF, "truncation", "cut", "after", _top_k, (2, 5, 10, 20, 40, 50, 100, 200)),
    ("min-p", _CUTS_OF, "truncation", "cut", "after",
     lambda value, logits, context: _kept(logits, logits.softmax(1) >= value * logits.softmax(1).amax(1, keepdim=True), context),
     (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)),
    ("repetition penalty", _PENALTY, "penalty", "penalty", "before", _repetition, (0.8, 0.9, 1.05, 1.1, 1.2, 1.5, 2)),
    ("presence penalty", _PENALTY, "penalty", "penalty", "before",
     lambda value, logits, context: logits - value * (context.counts(logits.shape[1], prompt=False) > 0),
     (-1, -0.5, 0.1, 0.5, 1, 2)),
    ("frequency penalty", _PENALTY, "penalty", "penalty", "before",
     lambda value, logits, context: logits - value * context.counts(logits.shape[1], prompt=False), (-0.5, 0.1, 0.2, 0.5, 1, 2)),
    ("logits capped at", "this side caps its logits, the other does not: compare final_logit_softcapping", "logit_cap", "cap",
     "before", lambda value, logits, context: value * torch.tanh(logits / value), (2, 5, 10, 20, 30, 50)),
)  # fmt: skip
"""Name, meaning, code, group, field of Scoring, change of the logits, and values."""


_ENDS: tuple[tuple[str, str, Callable[[int], slice], Callable[[int], slice]], ...] = (
    ("first", "this side did not read the beginning of the prompt, often BOS: check add_special_tokens",
     lambda n: slice(n, None), lambda n: slice(n)),
    ("last", "this side did not read the end of the prompt, such as a generation prompt: check add_generation_prompt",
     lambda n: slice(-n), lambda n: slice(-n, None)),
)  # fmt: skip
"""An end of the prompt, the meaning if it is missing, and n -> the rest without so many tokens there, and these tokens alone."""


def _knobs(model: Any, sequences: Sequence[Sequence_], recorded: Mapping[str, float]) -> Iterator[Knob]:
    """Every setting that has a value. recorded: name of a setting -> its value on record, which is tried too."""
    prompts = sorted({len(sequence.prompt) for sequence in sequences})
    longest, whole = prompts[-1], max(sequence.length for sequence in sequences)

    def knob(
        words: str,
        meaning: str,
        kind: tuple[str, str],
        grid: Sequence[float],
        change: Change,
        name: str = "",
        *,
        is_whole: bool = True,
    ) -> Knob:
        """words, meaning: formats of the value. kind: code and group. name: that of the setting, if it may be on record."""

        def make(value: float) -> Hypothesis:
            own = words.format(value).replace(" 1 tokens of", " token of")
            return Hypothesis(own, meaning.format(value), *kind, **change(value))

        return Knob(make, tuple(dict.fromkeys((*([recorded[name]] if name in recorded else []), *grid))), is_whole)

    yield knob("temperature {:.4g}", "the column is at temperature {:.4g}, or the other side's is: let both be at one",
               ("trainer_temperature", "sampling"), (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.5, 2.0, 3.0),
               lambda value: {"scoring": {"temperature": value}, "setting": ("temperature", value)},
               "temperature", is_whole=False)  # fmt: skip
    for name, meaning, code, group, at, change, grid in _LOGITS:
        made = _with_logits(at, change, name.replace("-", "_"))
        yield knob(f"{name} {{:.4g}}", meaning, (code, group), grid, made, name, is_whole=name == "top-k")

    few = [n for n in (1, 2, 3, 4, 5, 6, 8, 16, 32) if n < longest]
    lengths = [n for n in (*range(1, 17), *_powers(longest, 24), *prompts[1:-1:2], longest - 1) if 0 < n < longest]
    for end, meaning, rest, part in _ENDS:
        yield knob(f"without the {end} {{}} tokens of the prompt", meaning, _PROMPTS, few, _with_part(rest))
        yield knob(f"prompts cut to their {end} {{}} tokens", "this side cuts prompts to {} tokens: check max_prompt_length",
                   _PROMPTS, lengths, _with_part(part), "prompt length")  # fmt: skip
    ids = (getattr(model.config, f"{name}_token_id", None) for name in ("pad", "eos"))
    pad = next((id for id in ids if isinstance(id, int)), 0)
    widths = [longest, *(n for n in _powers(4 * longest + 64, 8) if n > longest)]
    for side, words, scoring in (
        ("left", "", {}),
        ("left", ", at their own positions", {"positions": _own_places}),
        ("right", "", {}),
    ):
        yield knob(f"prompts padded at the {side} to {{}} tokens, seen{words}", "this side reads the padding, which its attention"
                   " mask should hide: check attention_mask and padding_side", _PROMPTS, widths,
                   _with_padding(pad, side, scoring), "padded length")  # fmt: skip

    yield knob("positions of the response moved by {:+d}", _PLACES, ("position_ids", "places"),
               (-4, -3, -2, -1, 1, 2, 3, 4, 8, 16, 32, 64),
               lambda by: {"scoring": {"positions": lambda places, starts, leads: places + by * (places >= starts)}})  # fmt: skip
    if not has_rope(model):
        yield knob("all positions moved by {:+d}", _PLACES, ("position_ids", "places"), (1, 2, 3, 4, 8, 16, 32),
                   lambda by: {"scoring": {"positions": lambda places, starts, leads: places + by}})  # fmt: skip
    yield knob("attention over {} tokens", "this side attends to so many tokens and no more: compare sliding_window",
               ("attention_mask", "places"), _powers(whole, 4),
               lambda size: {"scoring": {"visible": lambda query, key, leads: (query - key < size)[None]}}, "window")  # fmt: skip
    base = (getattr(model.config, "rope_parameters", None) or {}).get("rope_theta")
    if has_rope(model) and base:
        rope, kind = "this side has another RoPE: compare rope_theta and rope_scaling", ("position_ids", "rope")
        yield knob("RoPE of base {:.4g}", f"{rope}; the model's base is {base:.4g}", kind,
                   [n for n in (1e3, 1e4, 1e5, 5e5, 1e6, 1e7) if n != base],
                   lambda value: {"weights": with_frequencies(lambda own: own ** (log(value) / log(base)))},
                   "rope base", is_whole=False)  # fmt: skip
        yield knob("RoPE stretched {:.4g} times", rope, kind, (0.25, 0.5, 2, 4, 8),
                   lambda value: {"weights": with_frequencies(lambda own: own / value)},
                   "rope scale", is_whole=False)  # fmt: skip


def _with_logits(at: str, change: Callable[[float, Tensor, Context], Tensor], setting: str) -> Change:
    served: Callable[[float], Setting | None] = lambda value: (setting, value) if setting in SETTINGS else None  # noqa: E731
    return lambda value: {"scoring": {at: partial(change, value)}, "setting": served(value)}


def _with_part(part: Callable[[int], slice]) -> Change:
    return lambda tokens: {"tokens": _prompt(lambda ids: ids[part(tokens)])}


def _with_padding(pad: int, side: str, scoring: Mapping[str, Any]) -> Change:
    return lambda length: {"scoring": scoring, "tokens": partial(_padded, pad, length, side)}


def _powers(most: float, least: int) -> list[float]:
    """Powers of two, and one and a half times these, from the least on and below the most."""
    return [float(n) for k in range(20) for n in (least << k, 3 * least << k >> 1) if n < most]


def _padded(pad: int, length: int, side: str, sequence: Sequence_) -> Sequence_:
    fill = (pad,) * max(0, length - len(sequence.prompt))
    if side == "right":
        return replace(sequence, prompt=(*sequence.prompt, *fill))
    return replace(sequence, prompt=(*fill, *sequence.prompt), lead=len(fill))


def hypotheses(
    sequences: Sequence[Sequence_],
    *,
    model: Any,
    checkpoints: Sequence[Path] = (),
    recorded: Mapping[str, float] | None = None,
    marks: Sequence[int] = (),
) -> Iterator[Hypothesis]:
    """The plain reading and every alternative that changes something for these sequences.

    recorded: name of a setting -> its value on record. marks: ids that begin messages, as the tokenizer names them.
    """
    yield PLAIN
    for path in checkpoints:
        yield from _saved(path)
    knobs = [knob.at(value) for knob in _knobs(model, sequences, recorded or {}) for value in knob.grid]
    config = model.config
    bos = config.bos_token_id if isinstance(getattr(config, "bos_token_id", None), int) else None
    every = (*_ALWAYS, *_special(config), *_prompts([each.prompt for each in sequences], bos, marks), *knobs)
    yield from (hypothesis for hypothesis in every if changes(hypothesis, sequences))


def _special(config: Any) -> Iterator[Hypothesis]:
    """Alternatives of models with a cap, a window or a scaled RoPE: without it."""
    if getattr(config, "final_logit_softcapping", None):
        yield Hypothesis("without the cap of the logits", "this side leaves the model's final_logit_softcapping out", "logit_cap",
                         "cap", {"capped": False})  # fmt: skip
    if getattr(config, "sliding_window", None):
        every: Visible = lambda query, key, leads: (query >= key)[None]  # noqa: E731
        yield Hypothesis("without the sliding window", "this side attends to all tokens, the model has a sliding window",
                         "attention_mask", "places", {"visible": every})  # fmt: skip


def damaged(model: Any) -> Iterator[Hypothesis]:
    """Alternatives in which a tensor was loaded wrongly: many, so they are tried when nothing else reproduces a column."""
    return (Hypothesis(name, _LOAD, *_LOADED, weights=change) for name, change in tensor_changes(model))


def in_turn(every: Iterable[Hypothesis], codes: Sequence[str]) -> list[Hypothesis]:
    """The alternatives of the likeliest causes first. codes: those of the causes, the likeliest first."""
    place = {code: k for k, code in reversed(list(enumerate(codes)))}
    return sorted(every, key=lambda own: -1 if own.name == PLAIN.name else place.get(own.code, len(codes)))


def combined(one: Hypothesis, other: Hypothesis) -> Hypothesis:
    """Both changes at once: the weights of the first before those of the other, but a dtype of computation last."""
    last, first = (one, other) if one.group == "precision" else (other, one)
    tokens = [each.tokens for each in (one, other) if each.tokens is not None]
    weights = [each.weights for each in (first, last) if each.weights is not None]
    knob = other.knob
    return Hypothesis(
        f"{one.name} and {other.name}", f"{one.meaning}; and {other.meaning}", f"{one.code} {other.code}",
        f"{one.group} and {other.group}", {**one.scoring, **other.scoring}, _both(tokens), _both(weights),
        one.checkpoint or other.checkpoint, one.shift + other.shift, (one, other),
        knob=knob and replace(knob, make=lambda value: combined(one, knob.at(value))),
        value=other.value,
    )  # fmt: skip


def _both(changes: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any] | None:
    def apply(value: Any) -> Any:
        for change in changes:
            value = change(value)
        return value

    return apply if len(changes) > 1 else changes[0] if changes else None


def of_checkpoint(path: Path) -> tuple[Hypothesis, Hypothesis]:
    """All weights of a checkpoint, and a switch from or to them inside a sequence. path: a folder, or the name of a server."""
    held = f"this side holds the weights of {path.name}, not the current ones: check the weight sync"
    whole = Hypothesis(f"the checkpoint {path.name}", held, "stale_weights", "weights", checkpoint=path)
    switch = replace(whole, name=f"weights switched from or to {path.name} inside a sequence", code="switch_inside",
                     meaning="this side changed its weights while it sampled: record versions by token",
                     parts=(whole, PLAIN))  # fmt: skip
    return whole, switch


def _in_blocks(size: int, tokens: int) -> int:
    """The tokens of a prompt that a cache of blocks of this size reads; never the last one."""
    return (tokens - 1) // size * size


def _saved(path: Path) -> Iterator[Hypothesis]:
    """The weights in a folder: a checkpoint or parts of it, or an adapter that a side lacks or has."""
    if (path / "config.json").is_file():
        whole, switch = of_checkpoint(path)
        held = whole.meaning.removeprefix("this side holds ")
        yield whole
        other: Callable[[str], Callable[[Any], Any]] = lambda end: lambda model: _end(model_in(path, model), end)  # noqa: E731
        for part, ends in (("head", {"head": "output"}), ("embedding", {"embedding": "input"}),
                            ("head and embedding", {"head": "output", "embedding": "input"})):  # fmt: skip
            yield Hypothesis(f"the {part} of the checkpoint {path.name}", f"the {part} of this side holds {held}",
                             *_LOADED, weights=with_ends(**{own: other(end) for own, end in ends.items()}))  # fmt: skip
        for size in BLOCKS:
            blocks = f", in blocks of {size}" if size > 1 else ""
            yield Hypothesis(f"keys and values of the prompt of the checkpoint {path.name}{blocks}", "this side reuses a prompt"
                             " cache of older weights: reset the prefix cache at each sync", "stale_prefix", "cache",
                             {"older": partial(model_in, path), "kept": partial(_in_blocks, size)})  # fmt: skip
        yield switch
        return
    words: Mapping[float, tuple[str, str]] = {
        1: (f"the adapter {path.name} merged", f"this side holds the model with the adapter {path.name}, --model does not: check"
            " which adapter is synced"),
        -1: (f"without the adapter {path.name}", f"this side runs without the adapter {path.name}, which --model has: check that"
             " the engine loads it"),
    }  # fmt: skip
    scaled = f"this side has the adapter {path.name} at another scale: compare alpha, rank, and merges"

    def times(value: float) -> Hypothesis:
        name, meaning = words.get(value, (f"the adapter {path.name} {value:+.4g} times more", scaled))
        own: Perturbation = lambda model: with_adapter(path, value)(model)  # noqa: E731
        return Hypothesis(name, meaning, "adapter_scale", "weights", weights=own)

    knob = Knob(times, (1, -1, 0.5, -0.5, 2, 3, 7))
    yield from (knob.at(value) for value in knob.grid)


def read_under(hypothesis: Hypothesis, sequences: Sequence[Sequence_]) -> list[Sequence_]:
    """The sequences as they are read under the alternative."""
    return list(sequences) if hypothesis.tokens is None else [hypothesis.tokens(sequence) for sequence in sequences]


def common_beginning(prompts: Sequence[Prompt]) -> int:
    """Tokens that all prompts begin with, such as a system prompt; 0 where all prompts are one.

    >>> common_beginning([(1, 2, 3), (1, 2, 4, 5)])
    2
    """
    if len(set(prompts)) < 2:
        return 0
    least, most = min(prompts), max(prompts)
    return next((k for k, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), min(len(least), len(most)))


def _prompts(prompts: Sequence[Prompt], bos: int | None, marks: Sequence[int]) -> Iterator[Hypothesis]:
    common = common_beginning(prompts)
    if bos is not None:
        yield Hypothesis("with BOS before the prompt", "this side adds BOS, which is not among the recorded prompt ids: check"
                         " add_special_tokens", *_PROMPTS,
                         tokens=_prompt(lambda ids: ids if ids[0] == bos else (bos, *ids)))  # fmt: skip
    if common > 1:
        meaning = "this side did not read what all prompts begin with, such as a system message: compare the templates"
        name = f"without the {common} tokens that all prompts begin with"
        yield Hypothesis(name, meaning, *_PROMPTS, tokens=_prompt(lambda ids: ids[common:]))
        yield Hypothesis(
            f"{name}, but the first", meaning, *_PROMPTS, tokens=_prompt(lambda ids: (ids[0], *ids[common:]))
        )
    for mark in _marks(prompts, marks):
        for place in (*range(MOST_MESSAGES), *range(-MOST_MESSAGES, 0)):
            which = f"message {place + 1}" if place >= 0 else f"message {-place} from the end"
            meaning = "this side did not read one message of the prompt: compare the conversations that both sides get"
            yield Hypothesis(f"without {which} of the prompt (by id {mark})", meaning, *_PROMPTS,
                             tokens=_prompt(partial(_without, mark, place)))  # fmt: skip


def _marks(prompts: Sequence[Prompt], known: Sequence[int]) -> list[int]:
    """Ids that begin messages: known ones, and those near the beginning of every prompt, that stand in a prompt twice."""
    first = set.intersection(*(set(prompt[:3]) for prompt in prompts))
    return [mark for mark in sorted({*known, *first}) if any(prompt.count(mark) > 1 for prompt in prompts)]


def _without(mark: int, place: int, prompt: Prompt) -> Prompt:
    """The prompt without one of the parts that begin with the mark; as it is if it has too few."""
    starts = [k for k, id in enumerate(prompt) if id == mark]
    parts = list(pairwise([*starts, len(prompt)]))
    if not -len(parts) <= place < len(parts) or len(parts) < 2:
        return prompt
    first, end = parts[place]
    return prompt[:first] + prompt[end:]


def changes(hypothesis: Hypothesis, sequences: Sequence[Sequence_]) -> bool:
    """True if some sequence is read otherwise under it."""
    own = hypothesis.tokens
    return own is None or any(own(sequence).prompt != sequence.prompt for sequence in sequences)


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
            own: Callable[[Prompt], Prompt] = lambda ids, others=others: others.get(ids, ids)  # type: ignore[misc]  # noqa: E731
            yield Hypothesis(name, _MEANING, *_PROMPTS, tokens=_prompt(own))


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
    if "system" in options:
        system = options.pop("system")
        messages = [message for message in messages if message["role"] != "system"]
        messages = messages if system is None else [{"role": "system", "content": system}, *messages]
    try:
        text = (
            "\n".join(message["content"] for message in messages)
            if options.pop("plain", False)
            else tokenizer.apply_chat_template(messages, tokenize=False, **options)
        )
    except Exception:  # a template raises what it likes: a role it does not know, no system message allowed, ...
        return None
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
