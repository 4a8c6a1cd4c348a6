"""Judges of --try: a model and a server, each with what it can change, and the log-probs that it gives under a change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from ratioscope.errors import SourceError

from .changed_weights import Perturbation, computed_in, in_fp8, quantised
from .engines import Engine
from .hypotheses import Hypothesis, damaged, of_checkpoint, read_under
from .inputs import ModelBounds, Sequence_
from .likeliest import Likeliest, Setting, between
from .model import Referee, model_in
from .sampled import OwnDistance, own_distance
from .scoring import Logprobs, scores_under

T = TypeVar("T")
PRECISIONS: Mapping[str, tuple[Perturbation, ...]] = {
    "float32": (),
    "bfloat16": (computed_in(torch.bfloat16),),
    "float16": (computed_in(torch.float16),),
    "float8": (in_fp8(per_row=True), computed_in(torch.bfloat16)),
    "int8": (quantised(127), computed_in(torch.bfloat16)),
    "int4": (quantised(7, 128), computed_in(torch.bfloat16)),
}
"""Precision on record -> the changes that make a model compute in it."""
DECODE = "the server's decode"
"""It stands for the precision of the engine's column where a server reads."""
ASSUMED = "bfloat16"
"""The precision in which the referee's own distance is told where none is on record. Then nothing is proof."""

Group = Sequence[tuple[Hypothesis, str]]
"""(alternative, precision or "" for the judge's own): they read the same tokens with the same weights."""
Tokens = tuple[str, tuple[int, ...], tuple[int, ...]]
Scored = list[dict[int, Logprobs]]
"""For each of a group, place of a sequence -> log-probs of its response tokens."""


@dataclass(frozen=True)
class ModelJudge:
    """A loaded model: it can change everything."""

    referee: Referee
    passed_over = (Exception,)
    """Errors that leave an alternative out, such as a dtype that this device lacks; others end the attempt."""
    precisions = PRECISIONS
    """The precisions in which it can read beside its own."""
    settings: ClassVar[Mapping[str, float]] = {}
    """Values to try instead of those on record, by the name of a setting: none."""
    measures_itself = False
    """True if its distance from itself is measured, not computed in the precision of a column."""

    @property
    def room(self) -> ModelBounds:
        return self.referee.room

    def about(self, tokenizer: Any) -> Any:
        """The model as far as alternatives ask for it: its config and its buffers."""
        return self.referee.model

    def can(self, alternative: Hypothesis) -> bool:
        """True if it can make this change."""
        return True

    def served(self) -> list[Hypothesis]:
        """Alternatives that other servers read: none."""
        return []

    def damages(self) -> Sequence[Hypothesis] | None:
        """Alternatives of damaged tensors, which are tried before pairs; None if it tries neither."""
        return list(damaged(self.referee.model))

    def own_distance(self, alternative: Hypothesis, sequences: Sequence[Sequence_]) -> OwnDistance:
        """Nothing: it computes in the precision of the column instead."""
        return OwnDistance()

    def scored(self, group: Group, sequences: Sequence[Sequence_]) -> Scored:
        """The log-probs of the sequences, which are as the group reads them."""
        first, precision = group[0]
        model, changes = self.referee.model, PRECISIONS.get(precision, ())
        if first.checkpoint is not None:
            model = model_in(first.checkpoint, model)
        for change in (*filter(None, [first.weights]), *changes):
            model = change(model)
        hows = [replace(own.how, head_float32=own.how.head_float32 and not changes) for own, _ in group]
        scored: Scored = [{} for _ in group]
        for place, each in scores_under(model, sequences, hows):
            for own, logprobs in zip(scored, each, strict=True):
                own[place] = logprobs
        return scored


class TooLong(SourceError):
    """An alternative makes a sequence longer than a server takes."""


class Unknown(SourceError):
    """A server does not give the likeliest tokens."""


@dataclass(frozen=True)
class ServerJudge:
    """A server: it can change the tokens that it reads, or be another one with other weights, one change at a time.

    Settings of a sampler are computed from the likeliest tokens that it gives: a column is compared with the farther bound.
    """

    engine: Engine
    others: Mapping[Path, Engine] = field(default_factory=dict)
    """Name of a checkpoint -> the server that has it."""
    passed_over = (TooLong, Unknown)
    precisions: Mapping[str, tuple[Perturbation, ...]] = field(default_factory=dict)
    """As of `ModelJudge`: a server reads in its own precision alone."""
    measures_itself = True
    _own: dict[str, OwnDistance] = field(default_factory=dict)
    """Alternative -> its distance from itself. One that reads the recorded tokens has that of its server."""
    _read: dict[Tokens, Logprobs] = field(default_factory=dict)
    """(server, prompt, response) -> log-probs: alternatives that make the same tokens are asked for once."""
    _likeliest: dict[Tokens, Likeliest] = field(default_factory=dict)
    """The same with the likeliest tokens."""

    @property
    def settings(self) -> Mapping[str, float]:
        """As of `ModelJudge`: temperature 1 where the server is read at another one, which is that on record."""
        return {} if self.engine.temperature == 1 else {"temperature": 1.0}

    @property
    def room(self) -> ModelBounds:
        return self.engine.room

    def about(self, tokenizer: Any) -> Any:
        """The special tokens of the tokenizer; no buffer is known."""
        names = [f"{kind}_token_id" for kind in ("bos", "eos", "pad")]
        config = SimpleNamespace(**{name: getattr(tokenizer, name, None) for name in names})
        return SimpleNamespace(config=config, named_buffers=lambda: iter(()))

    def can(self, alternative: Hypothesis) -> bool:
        """True if nothing but the input or the temperature changes, or what is cut off at temperature 1, or all weights are
        those of another server."""
        setting = alternative.setting
        is_bounded = setting is not None and (setting[0] == "temperature" or self.engine.temperature == 1)
        return alternative.is_of_input or is_bounded or alternative.checkpoint in self.others

    def served(self) -> list[Hypothesis]:
        """The weights of the other servers."""
        return [own for path in self.others for own in of_checkpoint(path)]

    def damages(self) -> Sequence[Hypothesis] | None:
        """None: it has no tensor to change, and pairs would be many requests."""
        return None

    def scored(self, group: Group, sequences: Sequence[Sequence_]) -> Scored:
        """The log-probs of the sequences, or their bounds, shape (2, tokens); all of a group are read once."""
        most = self.room.positions
        if most is not None and max(sequence.length for sequence in sequences) > most:
            raise TooLong(f"it is longer than the {most} positions of {self.room.name}")
        engine = self._with(group[0][0])
        settings = [self._setting(own) for own, _ in group]
        if settings[0] is None:
            read = _known(self._read, engine.place, engine.scores, sequences)
            return [dict(enumerate(read))] * len(group)
        try:
            known = _known(self._likeliest, engine.place, engine.likeliest, sequences)
        except SourceError as error:
            raise Unknown(str(error)) from None
        bounds = ([between(own, setting) for own in known] for setting in settings if setting is not None)
        return [{place: np.array(own, np.float32) for place, own in enumerate(each)} for each in bounds]

    def own_distance(self, alternative: Hypothesis, sequences: Sequence[Sequence_]) -> OwnDistance:
        """The server's distance from itself under an alternative, measured once."""
        engine = self._with(alternative)
        setting = self._setting(alternative)
        name = engine.place if alternative.tokens is None and alternative.setting is None else alternative.name
        if name not in self._own:
            self._own[name] = own_distance(engine, read_under(alternative, sequences), setting)
        return self._own[name]

    def _setting(self, alternative: Hypothesis) -> Setting | None:
        """That of the alternative, or the temperature at which the server is read; None at temperature 1."""
        own = self.engine.temperature
        return alternative.setting or (None if own == 1 else ("temperature", own))

    def _with(self, alternative: Hypothesis) -> Engine:
        return self.engine if alternative.checkpoint is None else self.others[alternative.checkpoint]


def _known(
    kept: dict[Tokens, T],
    place: str,
    read: Callable[[list[Sequence_]], Iterator[tuple[int, T]]],
    sequences: Sequence[Sequence_],
) -> list[T]:
    """The answer of a server for each sequence. Those that are not kept yet are read."""
    tokens: list[Tokens] = [(place, sequence.prompt, sequence.response) for sequence in sequences]
    unread = [sequence for sequence, own in zip(sequences, tokens, strict=True) if own not in kept]
    kept.update({(place, unread[k].prompt, unread[k].response): own for k, own in read(unread)})
    return [kept[own] for own in tokens]


Judge = ModelJudge | ServerJudge
"""A reader of tokens under alternatives."""
