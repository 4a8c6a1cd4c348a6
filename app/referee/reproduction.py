"""--try: reads a few sequences under every alternative, and finds the one under which a recorded column is reproduced.

Findings of --try as events of the run, where the diagnosis, charts and the report find them.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ratioscope import layout
from ratioscope.arrays import Floats
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import SourceError, not_writable
from ratioscope.metrics.diagnosis.evidence import distances
from ratioscope.record import POLICIES

from ..presentation.json_values import jsonable
from .answer import BOUND, ROUNDING, WHO
from .changed_weights import ADAPTER, Perturbation, computed_in, in_fp8, quantised
from .engines import Engine
from .hypotheses import PLAIN, Hypothesis, combined, damaged, hypotheses, in_turn, read_under, template_hypotheses
from .inputs import Sequence_
from .model import Referee, model_in
from .scoring import Logprobs, scores_under

IN_PART = 3.0
"""An alternative explains a column in part if mean |x| falls by this factor. A convention."""
SCREENED = 256
"""Response tokens of a sequence that are read while alternatives are chosen."""
FIRST_KEPT, KEPT, PAIRED = 24, 4, 2
"""Alternatives of a column that are kept after its first sequence, are read on all, and are combined with every other."""
ROUNDS = 5
"""Times that a value is searched between the neighbours of the best one."""
OnTried = Callable[[int, int, str], None]
"""A function of (alternatives tried, alternatives of this stage, name of the next)."""
PRECISIONS: Mapping[str, tuple[Perturbation, ...]] = {
    "float32": (),
    "bfloat16": (computed_in(torch.bfloat16),),
    "float16": (computed_in(torch.float16),),
    "float8": (in_fp8(per_row=True), computed_in(torch.bfloat16)),
    "int8": (quantised(127), computed_in(torch.bfloat16)),
    "int4": (quantised(7, 128), computed_in(torch.bfloat16)),
}
"""Precision on record -> the changes that make a model compute in it."""
ASSUMED = "bfloat16"
"""The precision in which the referee's own distance is told where none is on record. Then nothing is proof."""


@dataclass(frozen=True)
class Best:
    """The alternative that is nearest to a column at some steps."""

    policy: str
    hypothesis: str
    """The name of the alternative."""
    meaning: str
    """The alternative in words."""
    steps: tuple[int, ...]
    mean: float
    """mean |x| under the alternative, nats/token."""
    plain: float
    """mean |x| under the referee as it is."""
    share: float
    """Share of tokens within ROUNDING under the alternative."""
    code: str = ""
    """The codes of the causes that it shows, one for each of its changes."""
    floor: float = float("nan")
    """mean |x| of the alternative from itself at the column's precision."""
    plain_floor: float = float("nan")
    """The same of the referee as it is."""
    precision: str = ""
    """The precision of the column on record; empty if it is not."""
    others: tuple[str, ...] = ()
    """Names of other alternatives that reproduce the column as well."""
    other_codes: tuple[str, ...] = ()
    """Their codes, as far as they are others."""
    k3: float = float("nan")
    """Mean clipped K3 under the alternative, nats/token."""
    k3_plain: float = float("nan")
    """The same under the referee as it is."""

    @property
    def verdict(self) -> str:
        """reproduced (proof), fits best (it would be proof, were the precision on record), in part, or no."""
        if self.mean <= ROUNDING:
            return "reproduced"
        is_plain, beside = self.hypothesis == PLAIN.name, self.mean <= BOUND * self.floor
        if beside and (is_plain or self.plain > BOUND * self.plain_floor):
            return "reproduced" if self.precision else "no" if is_plain else "fits best"
        return "in part" if self.mean * IN_PART <= self.plain else "no"

    @property
    def sentence(self) -> str:
        """The finding in words."""
        where = f"step {self.steps[0]}" if len(self.steps) == 1 else f"steps {self.steps[0]} to {self.steps[-1]}"
        who = f"{self.policy} (the {WHO[self.policy]}'s)"
        size, other = f"{self.mean:.1g}", "".join(f", or {name}" for name in self.others)
        if self.mean > ROUNDING and self.floor == self.floor:
            beside = f"{self.precision or ASSUMED} alone gives {self.floor:.2g}"
            size, where = f"{self.mean:.2g}", f"{where}; {beside}"
        match self.verdict:
            case "reproduced":
                return f"{who} is reproduced to {size} nats/token by {self.hypothesis}{other} ({where}): {self.meaning}"
            case "fits best":
                fits = f"{who} fits best to {self.hypothesis}{other} ({where}; mean |x| falls from {self.plain:.2g} to {size})"
                return f"{fits}: {self.meaning}. It is no proof, because the precision of this side is not on record"
            case "in part":
                fall = f"mean |x| falls from {self.plain:.2g} to {self.mean:.2g}"
                return f"{who} is explained in part by {self.hypothesis} ({where}; {fall}): {self.meaning}"
        return f"{who} is not reproduced ({where}): mean |x| is {self.mean:.2g} at best, under {self.hypothesis}"


@dataclass
class ReproductionAttempt:
    """The result of every alternative."""

    best: list[Best] = field(default_factory=list)
    means: dict[str, dict[str, float]] = field(default_factory=dict)
    """Policy -> alternative -> mean |x| over all tokens, nats/token, of those that were read on all sequences."""
    sequences: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """Alternative -> why it could not be tried."""
    screened: dict[str, dict[str, float]] = field(default_factory=dict)
    """Policy -> alternative -> mean |x| over the few sequences by which alternatives were chosen."""


@dataclass(frozen=True)
class Trial:
    """Facts on record about the alternatives to try."""

    checkpoints: Sequence[Path] = ()
    """Folders of other weights or adapters."""
    tokenizer: Any = None
    """The model's tokenizer; None without templates to try."""
    precisions: Mapping[str, str] = field(default_factory=dict)
    """Policy -> its precision on record, of those in PRECISIONS."""
    recorded: Mapping[str, float] = field(default_factory=dict)
    """Name of a setting -> its value on record."""
    codes: Sequence[str] = ()
    """Codes of causes, the likeliest first: their alternatives are tried first."""


def tried(
    judge: Referee | Engine,
    sequences: Sequence[Sequence_],
    trial: Trial | None = None,
    *,
    progress: OnTried | None = None,
) -> ReproductionAttempt:
    """Names the best alternative of each column and step.

    A column that the referee as it is reproduces is left alone. For each other one, all alternatives are read on one sequence,
    the best on up to two others, at other steps, and few on all. If none reproduces it, damaged tensors are tried, and then
    the best alternatives together with each of the other groups.

    A server tries what changes its input, one at a time: prompts, packing and shifts.
    """
    trial = trial or Trial()
    whole = _Readings(judge, sequences, trial.precisions, progress)
    whole.read([PLAIN], floors=True)
    screens = {policy: _screen(whole, policy) for policy in whole.policies if whole.is_off(policy)}
    results = ReproductionAttempt(sequences=len(sequences))
    if screens:
        few = _Readings(judge, sequences, trial.precisions, progress, most=SCREENED)
        model = _Unseen(trial.tokenizer) if isinstance(judge, Engine) else judge.model
        own = hypotheses(
            sequences, model=model, checkpoints=trial.checkpoints, recorded=trial.recorded,
            marks=getattr(trial.tokenizer, "all_special_ids", ()),
        )  # fmt: skip
        every = in_turn(
            [*template_hypotheses(sequences, trial.tokenizer), *own], trial.codes
        )  # a tie is the template's
        if isinstance(judge, Engine):
            every = [each for each in every if each.is_of_input]
        for policy, screen in screens.items():
            _narrowed(few, whole, policy, screen, every)
        results.skipped = few.skipped
        results.screened = {policy: few.means(policy) for policy in screens}
    for policy in whole.policies:
        results.means[policy] = whole.means(policy)
        results.best += _best(whole, policy)
    return results


def _screen(whole: "_Readings", policy: str) -> list[int]:
    """The sequences by which alternatives are chosen: the farthest of the last, the first and the middle step that is off."""
    off = [step for step in whole.steps if whole.is_off(policy, [step])]
    apart = {index: float(np.abs(own[:SCREENED]).sum()) for index, own in whole.x[policy][PLAIN.name].items()}
    steps = dict.fromkeys((off[-1], off[0], off[len(off) // 2]))
    at = {step: [index for index in apart if whole.sequences[index].step == step] for step in steps}
    return [max(own, key=lambda index: apart[index]) for own in at.values()]


def _narrowed(
    few: "_Readings", whole: "_Readings", policy: str, screen: list[int], every: Sequence[Hypothesis]
) -> None:
    """Reads the alternatives of a column that are worth it on all sequences: none of another precision than that on record."""
    if few.told(policy) not in ("", "float32"):
        every = [own for own in every if own.group != "precision"]
    few.read([PLAIN], screen)
    few.read(every, screen[:1])
    few.read([*few.best(policy, screen[:1], FIRST_KEPT), *few.best(policy, screen[:1], KEPT, pairs=True)], screen[1:])
    _searched(few, policy, screen)
    near = few.mean(policy, PLAIN.name, screen) <= few.reach(policy, PLAIN.name, screen)
    if _is_settled(few, whole, policy, screen) or near or isinstance(few.judge, Engine):  # the rest is below rounding
        return
    few.read(list(damaged(few.judge.model)), screen[:1])
    few.read(few.best(policy, screen[:1], KEPT), screen[1:])
    if _is_settled(few, whole, policy, screen):
        return
    for first in _different(few.best(policy, screen, FIRST_KEPT)):
        others = [other for other in every if other.group and other.group != first.group and not other.is_pair]
        few.read([combined(first, other) for other in others], screen[:1])
    few.read(few.best(policy, screen[:1], FIRST_KEPT // 2, pairs=True), screen[1:])
    _searched(few, policy, screen, pairs=True)
    _is_settled(few, whole, policy, screen)


def _is_settled(few: "_Readings", whole: "_Readings", policy: str, screen: list[int]) -> bool:
    """Reads the best alternatives on all sequences. True if one of them reproduces each step that is off."""
    parts = (*([index] for index in screen), screen)
    best = {
        own.name: own for pairs in (False, True) for part in parts for own in few.best(policy, part, KEPT, pairs=pairs)
    }
    whole.read(list(best.values()), floors=True)
    off = [whole.at([step]) for step in whole.steps if whole.is_off(policy, [step])]
    winners = [(_winner(whole, policy, places), places) for places in off]
    return all(whole.mean(policy, name, places) <= whole.reach(policy, name, places) for name, places in winners)


def _different(best: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The first alternatives of different groups, and the second ones: few sequences do not order neighbours."""
    groups: dict[str, list[Hypothesis]] = {}
    for own in best:
        groups.setdefault(own.group, []).append(own)
    return [own for group in list(groups.values())[:PAIRED] for own in group[:2]]


def _searched(few: "_Readings", policy: str, screen: list[int], *, pairs: bool = False) -> None:
    """Reads values between the best ones of the settings that are nearest to the column."""
    for _ in range(ROUNDS):
        best = few.best(policy, screen, KEPT, pairs=pairs)
        if pairs:  # the first of a pair is searched too
            best += [own.swapped for own in best if own.swapped is not None]
        new: dict[str, Hypothesis] = {}
        for own in best:
            if own.knob is not None:
                known = [other.value for other in few.known.values() if other.line == own.line]
                new |= {each.name: each for each in map(own.knob.at, own.knob.between(own.value, known))}
        unread = [own for name, own in new.items() if name not in few.known]
        if not unread or _is_solved(few, policy, screen):
            return
        few.read(unread, screen)


def _is_solved(few: "_Readings", policy: str, screen: list[int]) -> bool:
    """True if alternatives, one for each sequence of the screen, reproduce it as well as the true ones do."""
    left = allowed = 0.0
    for index in screen:
        best = [own for pairs in (False, True) for own in few.best(policy, [index], PAIRED, pairs=pairs)]
        few.read(best, [index], floors=True)
        if not best:
            return False
        sizes = [(few.mean(policy, own.name, [index]), few.reach(policy, own.name, [index])) for own in best]
        mean, reach = min(sizes, key=lambda size: size[0] / size[1])
        tokens = len(few.log_ratios(policy, best[0].name, [index]))
        left, allowed = left + tokens * mean, allowed + tokens * reach
    return left <= allowed / BOUND


class TooLong(SourceError):
    """An alternative makes a sequence longer than a server takes."""


class _Unseen:
    """A server's model as far as alternatives ask for it: the special tokens of its tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        names = [f"{kind}_token_id" for kind in ("bos", "eos", "pad")]
        self.config = SimpleNamespace(**{name: getattr(tokenizer, name, None) for name in names})

    def named_buffers(self) -> Iterator[Any]:
        """None is known."""
        return iter(())


class _Readings:
    """The log-ratios of every column under the alternatives that were tried, by sequence."""

    def __init__(
        self,
        judge: Referee | Engine,
        sequences: Sequence[Sequence_],
        precisions: Mapping[str, str],
        progress: OnTried | None,
        most: int | None = None,
    ) -> None:
        """most: response tokens of a sequence that are read; None: all."""
        self.judge, self._progress = judge, progress
        self.sequences = [_beginning(sequence, most) for sequence in sequences]
        self.policies = list(dict.fromkeys(policy for sequence in sequences for policy in sequence.recorded))
        self.steps = sorted({sequence.step for sequence in sequences})
        self.known: dict[str, Hypothesis] = {}
        self.x: dict[str, dict[str, dict[int, Floats]]] = {policy: {} for policy in self.policies}
        """Policy -> alternative -> sequence -> column minus ours, nats, at sampled tokens."""
        self.skipped: dict[str, str] = {}
        self._told = {policy: own for policy, own in precisions.items() if own in PRECISIONS}
        self._precision = {policy: self._told.get(policy, ASSUMED) for policy in self.policies}
        self._read: dict[tuple[str, str], dict[int, Logprobs]] = {}
        """(alternative, precision or "") -> sequence -> its log-probs."""

    def read(self, every: Sequence[Hypothesis], places: Sequence[int] | None = None, *, floors: bool = False) -> None:
        """Reads the sequences at these places (None: all) under each alternative. floors: at the columns' precisions too."""
        wanted = list(range(len(self.sequences)) if places is None else places)
        floors = floors and not isinstance(self.judge, Engine)
        lower = [name for name in dict.fromkeys(self._precision.values()) if floors and PRECISIONS[name]]
        groups: dict[tuple[Any, ...], list[tuple[Hypothesis, str]]] = {}
        for precision, own in product(("", *lower), every):
            if own.name not in self.skipped and not set(wanted) <= self._read.get((own.name, precision), {}).keys():
                key = own.tokens, own.weights, own.checkpoint, own.how.forward, precision
                groups.setdefault(key, []).append((own, precision))
        for place, group in enumerate(groups.values()):
            if self._progress is not None:
                self._progress(place, len(groups), group[0][0].name)
            try:
                scored = self._scored(group, wanted)
            except Exception as error:  # a dtype that this device lacks, a checkpoint that cannot be loaded, ...
                if isinstance(self.judge, Engine) and not isinstance(error, TooLong):
                    raise
                self.skipped |= {own.name: f"{type(error).__name__}: {str(error)[:200]}" for own, _ in group}
                continue
            for (own, precision), logprobs in zip(group, scored, strict=True):
                self._read.setdefault((own.name, precision), {}).update(logprobs)
                if not precision:
                    self._compare(own, logprobs)

    def _scored(self, group: Sequence[tuple[Hypothesis, str]], wanted: Sequence[int]) -> list[dict[int, Logprobs]]:
        first, precision = group[0]
        read = read_under(first, [self.sequences[index] for index in wanted])
        if isinstance(self.judge, Engine):
            most = self.judge.room.positions
            if most is not None and max(sequence.length for sequence in read) > most:
                raise TooLong(f"it is longer than the {most} positions of {self.judge.room.name}")
            own_scores = {wanted[place]: logprobs for place, logprobs in self.judge.scores(read)}
            return [own_scores for _ in group]
        model, changes = self.judge.model, PRECISIONS.get(precision, ())
        if first.checkpoint is not None:
            model = model_in(first.checkpoint, model)
        for change in (*filter(None, [first.weights]), *changes):
            model = change(model)
        hows = [replace(own.how, head_float32=own.how.head_float32 and not changes) for own, _ in group]
        scored: list[dict[int, Logprobs]] = [{} for _ in group]
        for place, each in scores_under(model, read, hows):
            for own, logprobs in zip(scored, each, strict=True):
                own[wanted[place]] = logprobs
        return scored

    def _compare(self, hypothesis: Hypothesis, scored: Mapping[int, Logprobs]) -> None:
        self.known[hypothesis.name] = hypothesis
        for index, logprobs in scored.items():
            for policy in self.sequences[index].recorded:
                own = _apart(self.sequences[index], policy, logprobs, hypothesis.shift)
                if PLAIN in hypothesis.parts:
                    own = _switched(own, self.x[policy][PLAIN.name][index])
                self.x[policy].setdefault(hypothesis.name, {})[index] = own

    def at(self, steps: Sequence[int]) -> list[int]:
        """The sequences of these steps."""
        return [index for index, sequence in enumerate(self.sequences) if sequence.step in steps]

    def log_ratios(self, policy: str, name: str, places: Sequence[int] | None = None) -> Floats:
        """Column minus alternative at the finite sampled tokens of these sequences; None: of all that were read."""
        own = self.x[policy].get(name, {})
        parts = [own[index] for index in (own if places is None else places) if index in own]
        every = np.concatenate(parts) if parts else np.zeros(0)
        finite: Floats = every[np.isfinite(every)]
        return finite

    def mean(self, policy: str, name: str, places: Sequence[int] | None = None) -> float:
        """mean |x|, nats/token; NaN without a token."""
        return _mean(self.log_ratios(policy, name, places))

    def means(self, policy: str) -> dict[str, float]:
        """Alternative -> mean |x| over the sequences that were read under it."""
        return {name: self.mean(policy, name) for name in self.x[policy]}

    def floor(self, policy: str, name: str, places: Sequence[int]) -> float:
        """mean |x| of the alternative from itself at the column's precision; 0 in float32, NaN if it was not read."""
        if not PRECISIONS[self._precision[policy]]:
            return 0.0
        one, two = (self._read.get((name, precision), {}) for precision in ("", self._precision[policy]))
        both = [index for index in places if index in one and index in two]
        parts = [(one[index] - two[index])[_sampled(self.sequences[index])] for index in both]
        return _mean(np.concatenate(parts).astype(np.float64)) if parts else float("nan")

    def reach(self, policy: str, name: str, places: Sequence[int]) -> float:
        """mean |x| up to which the alternative reproduces the column."""
        floor = self.floor(policy, name, places)
        return max(ROUNDING, BOUND * floor) if floor == floor else ROUNDING

    def told(self, policy: str) -> str:
        """The precision of the column on record; empty if it is not."""
        return self._told.get(policy, "")

    def is_off(self, policy: str, steps: Sequence[int] | None = None) -> bool:
        """True if the referee as it is does not reproduce the column at some of these steps."""
        own, is_told = (policy, PLAIN.name), bool(self.told(policy))
        every = [self.at([step]) for step in steps or self.steps]
        return any(self.mean(*own, places) > (self.reach(*own, places) if is_told else ROUNDING) for places in every)

    def best(self, policy: str, places: Sequence[int], most: int, *, pairs: bool = False) -> list[Hypothesis]:
        """The alternatives that are nearest to the column at these sequences, among those that are nearer than the plain reading.

        One for each setting that was searched. pairs: the pairs instead of the single ones.
        """
        plain = self.mean(policy, PLAIN.name, places)
        means = {
            name: self.mean(policy, name, places)
            for name, own in self.x[policy].items()
            if self.known[name].is_pair == pairs and name != PLAIN.name and set(places) <= own.keys()
        }
        nearest: dict[Any, Hypothesis] = {}
        for name in sorted(means, key=lambda name: means[name]):
            if means[name] < plain:
                nearest.setdefault(self.known[name].search, self.known[name])
        return list(nearest.values())[:most]


def _beginning(sequence: Sequence_, most: int | None) -> Sequence_:
    """The sequence with so many response tokens. Attention is causal, so their log-probs stay what they are."""
    mask = None if sequence.mask is None else sequence.mask[:most]
    recorded = {policy: own[:most] for policy, own in sequence.recorded.items()}
    return replace(sequence, response=sequence.response[:most], mask=mask, recorded=recorded)


def _sampled(sequence: Sequence_) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    return np.ones(len(sequence.response), bool) if sequence.mask is None else np.asarray(sequence.mask, bool)


def _apart(sequence: Sequence_, policy: str, ours: Logprobs, shift: int) -> Floats:
    """The column minus ours at the sampled tokens."""
    recorded, sampled = np.asarray(sequence.recorded[policy], np.float64), _sampled(sequence)
    kept, other = (
        slice(max(0, -shift), len(recorded) - max(0, shift)),
        slice(max(0, shift), len(recorded) + min(0, shift)),
    )
    apart: Floats = (recorded[kept] - ours[other])[sampled[kept]]
    return apart


def _switched(one: Floats, other: Floats) -> Floats:
    """The log-ratios of a sequence that begins as one reading and goes on as the other, at the token that fits best."""
    both = []
    for first, second in ((one, other), (other, one)):
        place = int(np.concatenate([[0.0], np.nancumsum(np.abs(first)) - np.nancumsum(np.abs(second))]).argmin())
        both.append(np.concatenate([first[:place], second[place:]]))
    return min(both, key=lambda own: float(np.nansum(np.abs(own))))


def _mean(x: Floats) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.mean()) if len(finite) else float("nan")


def _best(whole: _Readings, policy: str) -> list[Best]:
    """The best alternative of each step, adjacent steps with the same one together. The simpler one wins a tie."""
    steps = [step for step in whole.steps if len(whole.log_ratios(policy, PLAIN.name, whole.at([step])))]
    winners = [(step, _winner(whole, policy, whole.at([step]))) for step in steps]
    found = []
    for _, group in groupby(winners, key=lambda item: whole.known[item[1]].search):
        own = list(group)
        places = whole.at([step for step, _ in own])
        name = min(dict(own).values(), key=lambda name: whole.mean(policy, name, places))  # values may differ by step
        found.append(_told(whole, policy, name, tuple(step for step, _ in own)))
    return found


def _winner(whole: _Readings, policy: str, places: Sequence[int]) -> str:
    """The plain reading if it reproduces; a pair only if it says clearly more than the best single alternative."""
    plain = whole.mean(policy, PLAIN.name, places)
    if not whole.is_off(policy, sorted({whole.sequences[index].step for index in places})):
        return PLAIN.name
    single, pair = (
        min(((whole.mean(policy, own.name, places), own.name) for own in whole.best(policy, places, KEPT, pairs=pairs)),
            default=(plain, PLAIN.name), key=lambda found: found[0])
        for pairs in (False, True)
    )  # fmt: skip
    if plain <= whole.reach(policy, PLAIN.name, places) and single[0] * IN_PART > plain:
        return PLAIN.name
    reaches = {own[1]: own[0] <= whole.reach(policy, own[1], places) for own in (single, pair)}
    says_more = reaches[pair[1]] and pair[0] * BOUND <= single[0] or pair[0] * IN_PART <= single[0]
    return pair[1] if says_more and not reaches[single[1]] else single[1]


def _told(whole: _Readings, policy: str, name: str, steps: tuple[int, ...]) -> Best:
    places, own = whole.at(steps), whole.known[name]
    sign = -1 if policy == POLICIES[0] else 1  # a log-ratio is that of the later policy, and the sampler is the first
    x, plain = (sign * whole.log_ratios(policy, each, places) for each in (name, PLAIN.name))
    mean, floors = _mean(x), {each: whole.floor(policy, each, places) for each in (name, PLAIN.name)}
    best = Best(
        policy, name, own.meaning, steps, mean, _mean(plain), float((np.abs(x) <= ROUNDING).mean()) if len(x) else float("nan"),
        own.code, floors[name], floors[PLAIN.name], whole.told(policy), k3=_mean(distances(x)), k3_plain=_mean(distances(plain)),
    )  # fmt: skip
    if best.verdict not in ("reproduced", "fits best") or name == PLAIN.name:
        return best
    others = [
        other for other in whole.best(policy, places, FIRST_KEPT)
        if other.name != name and other.search != own.search and not own.is_pair
        and whole.mean(policy, other.name, places) <= min(max(ROUNDING, BOUND * mean), whole.reach(policy, other.name, places))
    ]  # fmt: skip
    codes = dict.fromkeys(other.code for other in others if other.code != own.code)
    return replace(best, others=tuple(other.name for other in others), other_codes=tuple(codes))


def checkpoints_in(folder: Path) -> list[Path]:
    """Folders with a checkpoint or a PEFT adapter in this one, by the number in their names, then by name."""
    wanted = ("config.json", ADAPTER)
    every = list(folder.iterdir()) if folder.is_dir() else []
    folders = [path for path in every if any((path / name).is_file() for name in wanted)]
    if not folders:
        raise SourceError(
            f"{folder} holds no checkpoint: wanted folders with config.json or {ADAPTER}, such as {folder}/step-20"
        )
    return sorted(folders, key=lambda path: (int("".join(filter(str.isdigit, path.name)) or 0), path.name))


def own_floors(judge: Referee, sequences: Sequence[Sequence_], precisions: Mapping[str, str]) -> dict[str, Any]:
    """Policy -> its precision, whether that is on record, and the referee's own mean |x| there, nats/token."""
    readings = _Readings(judge, sequences, precisions, None)
    readings.read([PLAIN], floors=True)
    every = range(len(sequences))
    return {
        policy: {
            "precision": readings.told(policy) or ASSUMED,
            "is_recorded": bool(readings.told(policy)),
            "mean": readings.floor(policy, PLAIN.name, every),
        }
        for policy in readings.policies
    }


def write_proofs(path: str | os.PathLike[str], results: Sequence[Best]) -> None:
    """Writes what was found into the run: the findings as data, and an event for each column that an alternative reproduces."""
    proofs = [best for best in results if best.verdict == "reproduced" and best.hypothesis != PLAIN.name]
    notes = [asdict(best) | {"verdict": best.verdict, "sentence": best.sentence} for best in results]
    say(path, {"found": notes}, min((step for best in results for step in best.steps), default=0), *(
        {"kind": layout.EVENT, "event": layout.REPRODUCED, "step": best.steps[0], "note": best.sentence}
        for best in proofs
    ))  # fmt: skip


def say(path: str | os.PathLike[str], told: Mapping[str, Any], step: int, *events: Mapping[str, Any]) -> None:
    """Writes data of the referee, and events, into the run."""
    own = {"kind": layout.EVENT, "event": layout.REFEREE, "step": step, "note": json.dumps(jsonable(told))}
    try:
        OfflineWriter(Path(path), "rescore").say(own, *events)
    except OSError as error:
        raise not_writable(path, error) from error
