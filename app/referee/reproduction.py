"""--try: reads a few sequences under every alternative, and finds the one under which a recorded column is reproduced.

Findings of --try as events of the run, where the diagnosis, charts and the report find them.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import not_writable

from .answer import ROUNDING, WHO
from .changed_weights import ADAPTER
from .hypotheses import PLAIN, Hypothesis, combined, hypotheses, read_under, template_hypotheses
from .inputs import Sequence_
from .model import Referee, referee
from .scoring import Logprobs, Scoring, scores

IN_PART = 3.0
"""An alternative explains a column in part if mean |x| falls by this factor. A convention."""
OnTried = Callable[[int, int, str], None]
"""A function of (alternatives tried, alternatives, name of the next)."""


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
    """mean |x| under the alternative, nats/token: the largest of these steps."""
    plain: float
    """mean |x| under the referee as it is."""
    share: float
    """Share of tokens within ROUNDING under the alternative."""

    @property
    def verdict(self) -> str:
        """reproduced, in part, or no."""
        if self.mean <= ROUNDING:
            return "reproduced"
        return "in part" if self.mean * IN_PART <= self.plain else "no"

    @property
    def sentence(self) -> str:
        """The finding in words."""
        where = f"step {self.steps[0]}" if len(self.steps) == 1 else f"steps {self.steps[0]} to {self.steps[-1]}"
        who = f"{self.policy} (the {WHO[self.policy]}'s)"
        if self.verdict == "reproduced":
            return f"{who} is reproduced to {self.mean:.1g} nats/token by {self.hypothesis} ({where}): {self.meaning}"
        if self.verdict == "in part":
            fall = f"mean |x| falls from {self.plain:.2g} to {self.mean:.2g}"
            return f"{who} is explained in part by {self.hypothesis} ({where}; {fall}): {self.meaning}"
        return f"{who} is not reproduced ({where}): mean |x| is {self.mean:.2g} at best, under {self.hypothesis}"


@dataclass
class ReproductionAttempt:
    """The result of every alternative."""

    best: list[Best] = field(default_factory=list)
    means: dict[str, dict[str, float]] = field(default_factory=dict)
    """Policy -> alternative -> mean |x| over all tokens, nats/token."""
    sequences: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    """Alternative -> why it could not be tried."""


def tried(
    judge: Referee,
    sequences: Sequence[Sequence_],
    *,
    checkpoints: Sequence[Path] = (),
    tokenizer: Any = None,
    progress: OnTried | None = None,
) -> ReproductionAttempt:
    """Scores the sequences under the referee and all alternatives, and names the best of each column and step.

    A column that no single alternative reproduces is read under the best one together with each of the other groups.
    """
    bos = getattr(judge.model.config, "bos_token_id", None)
    every = list(hypotheses(sequences, bos=bos if isinstance(bos, int) else None, checkpoints=checkpoints))
    every += template_hypotheses(sequences, tokenizer)
    table = _Distances(judge, sequences, progress)
    table.add(every)
    pairs = [pair for policy in table.distances for pair in _pairs(table.best(policy), table.known)]
    table.add(list({pair.name: pair for pair in pairs}.values()))
    results = ReproductionAttempt(sequences=len(sequences), skipped=table.skipped)
    for policy, by_name in table.distances.items():
        results.means[policy] = {
            name: _mean([x for own in steps.values() for x in own]) for name, steps in by_name.items()
        }
        results.best += table.best(policy)
    return results


def _pairs(best: Sequence[Best], known: Mapping[str, Hypothesis]) -> list[Hypothesis]:
    """The best single alternative of the most steps that are not reproduced, with each alternative of another group."""
    missed = [each for each in best if each.verdict != "reproduced" and each.hypothesis != PLAIN.name]
    if not missed:
        return []
    first = known[max(missed, key=lambda each: len(each.steps)).hypothesis]
    others = [each for each in known.values() if each.group and each.group != first.group]
    return [combined(first, other) for other in others]


class _Distances:
    """|x| of every column under every alternative that was tried."""

    def __init__(self, judge: Referee, sequences: Sequence[Sequence_], progress: OnTried | None) -> None:
        self._judge, self._sequences, self._progress = judge, sequences, progress
        self.known: dict[str, Hypothesis] = {}
        self.distances: dict[str, dict[str, dict[int, list[np.ndarray[Any, Any]]]]] = {}
        """Policy -> alternative -> step -> |x| of its sequences."""
        self.skipped: dict[str, str] = {}

    def add(self, every: Sequence[Hypothesis]) -> None:
        """Reads all sequences under each of these alternatives."""
        for place, hypothesis in enumerate(every):
            if self._progress is not None:
                self._progress(place, len(every), hypothesis.name)
            try:
                scored = _scored(self._judge, hypothesis, self._sequences)
            except Exception as error:  # a dtype that this device lacks, a checkpoint that cannot be loaded, ...
                self.skipped[hypothesis.name] = f"{type(error).__name__}: {str(error)[:200]}"
                continue
            self.known[hypothesis.name] = hypothesis
            for sequence, logprobs in zip(self._sequences, scored, strict=True):
                for policy in sequence.recorded:
                    steps = self.distances.setdefault(policy, {}).setdefault(hypothesis.name, {})
                    steps.setdefault(sequence.step, []).append(_apart(sequence, policy, logprobs, hypothesis.shift))

    def best(self, policy: str) -> list[Best]:
        """The best alternatives of this column so far."""
        return _best(policy, self.distances[policy], self.known)


def _scored(judge: Referee, hypothesis: Hypothesis, sequences: Sequence[Sequence_]) -> list[Logprobs]:
    """The log-probs of each sequence under the alternative, in their order."""
    model = judge.model
    if hypothesis.checkpoint is not None:
        model = referee(hypothesis.checkpoint, device=judge.made_of["device"], dtype=judge.made_of["dtype"]).model
    if hypothesis.weights is not None:
        model = hypothesis.weights(model)
    how = replace(Scoring(), **hypothesis.scoring)
    logprobs = dict(scores(model, read_under(hypothesis, sequences), how))
    return [logprobs[index] for index in range(len(sequences))]


def _apart(sequence: Sequence_, policy: str, ours: Logprobs, shift: int) -> "np.ndarray[Any, Any]":
    """|x| of the sampled tokens."""
    recorded = np.asarray(sequence.recorded[policy], np.float64)
    sampled = np.ones(len(recorded), bool) if sequence.mask is None else np.asarray(sequence.mask, bool)
    if shift:
        kept = slice(0, len(recorded) - shift) if shift > 0 else slice(-shift, None)
        other = slice(shift, None) if shift > 0 else slice(0, len(recorded) + shift)
        recorded, ours, sampled = recorded[kept], ours[other], sampled[kept]
    apart = np.abs(recorded - ours)[sampled]
    finite: np.ndarray[Any, Any] = apart[np.isfinite(apart)]
    return finite


def _best(
    policy: str, by_name: Mapping[str, Mapping[int, list["np.ndarray[Any, Any]"]]], known: Mapping[str, Hypothesis]
) -> list[Best]:
    """The best alternative of each step, adjacent steps with the same one together. The simpler one wins a tie."""
    steps = sorted({step for own in by_name.values() for step in own})
    pairs = {name for name, hypothesis in known.items() if hypothesis.is_pair}
    winners = [
        (step, _winner({name: _mean(own[step]) for name, own in by_name.items() if step in own}, pairs))
        for step in steps
    ]
    results = []
    for name, group in groupby(winners, key=lambda item: item[1]):
        own = tuple(step for step, _ in group)
        apart = np.concatenate([x for step in own for x in by_name[name][step]])
        plain = _mean([x for step in own for x in by_name[PLAIN.name][step]])
        largest = max(_mean(by_name[name][step]) for step in own)
        share = float((apart <= ROUNDING).mean()) if len(apart) else float("nan")
        results.append(Best(policy, name, known[name].meaning, own, largest, plain, share))
    return results


def _winner(means: Mapping[str, float], pairs: set[str]) -> str:
    """The plain reading if it reproduces; a pair only if it says clearly more than the best single alternative."""
    known = {name: mean for name, mean in means.items() if mean == mean}
    single = _least({name: mean for name, mean in known.items() if name not in pairs})
    best, plain = known.get(single, float("inf")), known.get(PLAIN.name, float("inf"))
    if plain <= ROUNDING and plain <= IN_PART * best:
        return PLAIN.name
    pair = _least({name: mean for name, mean in known.items() if name in pairs})
    says_more = best > ROUNDING and known.get(pair, float("inf")) * IN_PART <= best
    return pair if says_more else single


def _least(means: Mapping[str, float]) -> str:
    return min(means, key=lambda name: means[name], default=PLAIN.name)


def _mean(parts: "list[np.ndarray[Any, Any]]") -> float:
    every = np.concatenate(parts) if parts else np.zeros(0)
    return float(every.mean()) if len(every) else float("nan")


def checkpoints_in(folder: Path) -> list[Path]:
    """Folders with a checkpoint or a PEFT adapter in this one, by the number in their names, then by name."""
    from ratioscope.errors import SourceError

    wanted = ("config.json", ADAPTER)
    every = list(folder.iterdir()) if folder.is_dir() else []
    folders = [path for path in every if any((path / name).is_file() for name in wanted)]
    if not folders:
        raise SourceError(
            f"{folder} holds no checkpoint: wanted folders with config.json or {ADAPTER}, such as {folder}/step-20"
        )
    return sorted(folders, key=lambda path: (int("".join(filter(str.isdigit, path.name)) or 0), path.name))


def write_proofs(path: str | os.PathLike[str], results: Sequence[Best]) -> None:
    """Writes an event for each column that is reproduced by an alternative. The plain reading proves no fault."""
    proofs = [best for best in results if best.verdict == "reproduced" and best.hypothesis != PLAIN.name]
    if not proofs:
        return
    events = (
        {"kind": layout.EVENT, "event": layout.REPRODUCED, "step": best.steps[0], "note": best.sentence}
        for best in proofs
    )
    try:
        OfflineWriter(Path(path), "rescore").say(*events)
    except OSError as error:
        raise not_writable(path, error) from error
