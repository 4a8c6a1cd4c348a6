"""--try: reads a few sequences under every alternative, and finds the one under which a recorded column is reproduced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.errors import SourceError
from ratioscope.metrics.diagnosis.evidence import distances
from ratioscope.record import POLICIES

from .answer import BOUND, ROUNDING
from .changed_weights import ADAPTER
from .findings import IN_PART, Best, ReproductionAttempt
from .hypotheses import PLAIN, Hypothesis, combined, hypotheses, in_turn, template_hypotheses
from .inputs import Sequence_
from .judges import ASSUMED, Judge, ModelJudge
from .model import Referee
from .readings_under import OnTried, Readings, mean_size

SCREENED = 256
"""Response tokens of a sequence that are read while alternatives are chosen."""
FIRST_KEPT, KEPT, PAIRED = 24, 4, 2
"""Alternatives of a column that are kept after its first sequence, are read on all, and are combined with every other."""
ROUNDS = 5
"""Times that a value is searched between the neighbours of the best one."""


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
    reader: Referee | Judge,
    sequences: Sequence[Sequence_],
    trial: Trial | None = None,
    *,
    progress: OnTried | None = None,
) -> ReproductionAttempt:
    """Names the best alternative of each column and step.

    A column that the referee as it is reproduces is left alone. For each other one, all alternatives are read on one sequence,
    the best on up to two others, at other steps, and few on all. If none reproduces it, damaged tensors are tried, and then
    the best alternatives together with each of the other groups.

    A server tries what it can change, one at a time: prompts, packing, shifts, and settings of its sampler.
    """
    judge, trial = _judge(reader), trial or Trial()
    whole = Readings(judge, sequences, trial.precisions, progress)
    whole.read([PLAIN], floors=True)
    screens = {policy: _screen(whole, policy) for policy in whole.policies if whole.is_off(policy)}
    results = ReproductionAttempt(sequences=len(sequences))
    if screens:
        few = Readings(judge, sequences, trial.precisions, progress, most=SCREENED)
        own = hypotheses(
            sequences, model=judge.about(trial.tokenizer), checkpoints=trial.checkpoints,
            recorded={**trial.recorded, **judge.settings},
            marks=getattr(trial.tokenizer, "all_special_ids", ()),
        )  # fmt: skip
        templates = template_hypotheses(sequences, trial.tokenizer)  # first: a tie is the template's
        every = in_turn(filter(judge.can, (*templates, *judge.served(), *own)), trial.codes)
        for policy, screen in screens.items():
            _narrowed(few, whole, policy, screen, every)
        results.skipped = few.skipped
        results.screened = {policy: few.means(policy) for policy in screens}
    for policy in whole.policies:
        results.means[policy] = whole.means(policy)
        results.best += _best(whole, policy)
        why = whole.floor(policy, PLAIN.name, range(len(sequences))).why
        results.skipped |= {"the server's decode beside its prefill": why} if why else {}
    return results


def _screen(whole: Readings, policy: str) -> list[int]:
    """The sequences by which alternatives are chosen: the farthest of the last, the first and the middle step that is off."""
    off = [step for step in whole.steps if whole.is_off(policy, [step])]
    apart = {index: float(np.abs(own[:SCREENED]).sum()) for index, own in whole.x[policy][PLAIN.name].items()}
    steps = dict.fromkeys((off[-1], off[0], off[len(off) // 2]))
    at = {step: [index for index in apart if whole.sequences[index].step == step] for step in steps}
    return [max(own, key=lambda index: apart[index]) for own in at.values()]


def _narrowed(few: Readings, whole: Readings, policy: str, screen: list[int], every: Sequence[Hypothesis]) -> None:
    """Reads the alternatives of a column that are worth it on all sequences: none of another precision than that on record."""
    if few.told(policy) not in ("", "float32"):
        every = [own for own in every if own.group != "precision"]
    few.read([PLAIN], screen)
    few.read(every, screen[:1])
    few.read([*few.best(policy, screen[:1], FIRST_KEPT), *few.best(policy, screen[:1], KEPT, pairs=True)], screen[1:])
    _searched(few, policy, screen)
    near = few.mean(policy, PLAIN.name, screen) <= few.reach(policy, PLAIN.name, screen)
    if _is_settled(few, whole, policy, screen) or near:  # the rest is below rounding
        return
    if (damages := few.judge.damages()) is None:
        return
    few.read(damages, screen[:1])
    few.read(few.best(policy, screen[:1], KEPT), screen[1:])
    if _is_settled(few, whole, policy, screen):
        return
    for first in _different(few.best(policy, screen, FIRST_KEPT)):
        others = [other for other in every if other.group and other.group != first.group and not other.is_pair]
        few.read([combined(first, other) for other in others], screen[:1])
    few.read(few.best(policy, screen[:1], FIRST_KEPT // 2, pairs=True), screen[1:])
    _searched(few, policy, screen, pairs=True)
    _is_settled(few, whole, policy, screen)


def _is_settled(few: Readings, whole: Readings, policy: str, screen: list[int]) -> bool:
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


def _searched(few: Readings, policy: str, screen: list[int], *, pairs: bool = False) -> None:
    """Reads values between the best ones of the settings that are nearest to the column."""
    for _ in range(ROUNDS):
        best = few.best(policy, screen, KEPT, pairs=pairs)
        if pairs:  # the first of a pair is searched too
            best += [own.swapped for own in best if own.swapped is not None]
        new: dict[str, Hypothesis] = {}
        for own in best:
            if own.knob is not None:
                known = [other.value for other in few.known.values() if other.line == own.line]
                values = own.knob.between(own.value, known)
                if few.judge.measures_itself and own.setting is not None:  # its bounds do not tell finer values apart
                    is_temperature = own.setting[0] == "temperature"
                    rough = {round(each * 20) / 20 if is_temperature else float(f"{each:.2g}") for each in values}
                    values = sorted(rough - {own.value, 0.0})
                new |= {each.name: each for each in map(own.knob.at, values)}
        unread = [own for name, own in new.items() if name not in few.known]
        if not unread or _is_solved(few, policy, screen):
            return
        few.read(unread, screen)


def _is_solved(few: Readings, policy: str, screen: list[int]) -> bool:
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


def _best(whole: Readings, policy: str) -> list[Best]:
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


def _winner(whole: Readings, policy: str, places: Sequence[int]) -> str:
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


def _told(whole: Readings, policy: str, name: str, steps: tuple[int, ...]) -> Best:
    places, own = whole.at(steps), whole.known[name]
    sign = -1 if policy == POLICIES[0] else 1  # a log-ratio is that of the later policy, and the sampler is the first
    x, plain = (sign * whole.log_ratios(policy, each, places) for each in (name, PLAIN.name))
    mean, floors = mean_size(x), {each: whole.floor(policy, each, places) for each in (name, PLAIN.name)}
    best = Best(
        policy, name, own.meaning, steps, mean, mean_size(plain), mean_size((np.abs(x) <= ROUNDING).astype(np.float64)),
        own.code, floors[name].mean, floors[PLAIN.name].mean, whole.told(policy), k3=mean_size(distances(x)),
        k3_plain=mean_size(distances(plain)), floor_error=floors[name].error,
    )  # fmt: skip
    if best.verdict not in ("reproduced", "fits best") or name == PLAIN.name:
        return best
    others = [
        other for other in whole.best(policy, places, FIRST_KEPT)
        if other.name != name and other.search != own.search and not own.is_pair
        and whole.mean(policy, other.name, places) <= max(ROUNDING, BOUND * mean)
        and whole.mean(policy, other.name, places) <= whole.reach(policy, other.name, places)
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


def _judge(reader: Referee | Judge) -> Judge:
    return ModelJudge(reader) if isinstance(reader, Referee) else reader


def own_floors(judge: Referee, sequences: Sequence[Sequence_], precisions: Mapping[str, str]) -> dict[str, Any]:
    """Policy -> its precision, whether that is on record, and the referee's own mean |x| there, nats/token."""
    readings = Readings(ModelJudge(judge), sequences, precisions, None)
    readings.read([PLAIN], floors=True)
    every = range(len(sequences))
    return {
        policy: {
            "precision": readings.told(policy) or ASSUMED,
            "is_recorded": bool(readings.told(policy)),
            "mean": readings.floor(policy, PLAIN.name, every).mean,
        }
        for policy in readings.policies
    }
