"""Sentinels of a run: their counts by an oracle of plain loops, the sentences for planted patterns, and silence without one."""

import html
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.pages_read import Read

from ratioscope.app.cli import main
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.sentinels import sentinels_of
from ratioscope.ingest.run import open_run
from ratioscope.metrics.diagnosis.sentinels import Sentinels, plain_sentinels

STEPS, ROWS = 8, 24
Fault = Callable[[int, int, np.ndarray, str, np.random.Generator], np.ndarray]
"""(step, row, position, finish reason, draws) -> True for each token of a response that gets the sentinel."""


def made(
    folder: Path, fault: Fault, fill: float, *, side: int = 0, left_out: bool = False, noise: float = 1.0, seed: int = 0
) -> Path:
    """A run of 8 steps of 24 responses at 4 replicas. side: 0 for the sampler, 1 for the trainer.

    left_out: the loss mask leaves the sentinels out. noise: the gap of the other tokens of a response with one, of usual ones.
    """
    draws = np.random.default_rng(seed)
    with Collector(folder, trainer="trl", writer="thread", when_full="wait") as collector:
        for step in range(STEPS):
            sides: tuple[list[Any], list[Any]] = ([], [])
            masks, finish = [], np.where(draws.random(ROWS) < 0.4, "stop", "length").tolist()
            for row in range(ROWS):
                size = int(draws.integers(30, 90))
                old = -draws.exponential(1.0, size) - 0.01
                bad = fault(step, row, np.arange(size), finish[row], draws)
                scale = 0.01 * (noise if bad.any() else 1.0)
                both = [old + np.minimum(scale * draws.standard_normal(size), 0.009), old]
                both[side] = np.where(bad, fill, both[side])
                for own, values in zip(sides, both, strict=True):
                    own.append(values.astype(np.float32))
                masks.append(~bad | (not left_out))
            collector.log(
                step=step, rollout_logprobs=sides[0], old_logprobs=sides[1], loss_mask=masks, finish_reasons=finish,
                replica=[f"engine-{row % 4}" for row in range(ROWS)], sequence_ids=[f"{step}-{row}" for row in range(ROWS)],
            )  # fmt: skip
    return folder


def found(folder: Path) -> Sentinels | None:
    run = open_run(folder)
    return sentinels_of(run, diagnosis_of(run))


def at_end(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray((position == len(position) - 1) & (finish == "stop"))


def at_replica(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray((row % 4 == 2) & (draws.random(len(position)) < 0.05))


def late(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray((step >= 3) & (draws.random(len(position)) < 0.02))


def beyond(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray(position >= 75)


def strewn(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray(draws.random(len(position)) < 0.02)


def single(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.asarray((position == 5) & (step == 2) & (row == 7))


def never(step: int, row: int, position: np.ndarray, finish: str, draws: np.random.Generator) -> np.ndarray:
    return np.zeros(len(position), np.bool_)


def oracle(folder: Path, fill: float) -> dict[str, Any]:
    """Counts and means by loops over the rows, one token after the other."""
    tokens, hit, kept, sums = 0, 0, 0, {True: [0.0, 0], False: [0.0, 0]}
    rows = open_run(folder).records().collect().to_dicts()
    steps = {row["step"] for row in rows if _bad(row, fill)}
    for row in rows:
        bad = _bad(row, fill)
        tokens, hit, kept = tokens + len(bad), hit + bool(bad), kept + sum(row["loss_mask"][at] for at in bad)
        for at, (one, two) in enumerate(zip(row["rollout_logprobs"], row["old_logprobs"], strict=True)):
            if at not in bad and row["step"] in steps:
                sums[bool(bad)][0] += math.expm1(two - one) - (two - one)
                sums[bool(bad)][1] += 1
    return {
        "tokens": tokens,
        "hit": hit,
        "of": len(rows),
        "kept": kept,
        "k3": {k: s / n for k, (s, n) in sums.items() if n},
    }


def _bad(row: dict[str, Any], fill: float) -> set[int]:
    pairs = enumerate(zip(row["rollout_logprobs"], row["old_logprobs"], strict=True))
    return {at for at, pair in pairs if any(math.isnan(x) if math.isnan(fill) else x == np.float32(fill) for x in pair)}


@pytest.mark.parametrize(
    ("fill", "side"),
    [(math.nan, 0), (-math.inf, 1), (math.inf, 0), (1.0, 1), (-100.0, 0), (-9999.0, 0), (1e9, 1), (-1e30, 0)],
)
def test_every_sentinel_is_counted_as_an_oracle_counts_it_and_strewn_ones_have_no_pattern(
    tmp_path: Path, fill: float, side: int
) -> None:
    folder = made(tmp_path / "run", strewn, fill, side=side, left_out=True)
    own, wanted = found(folder), oracle(folder, fill)
    assert own is not None
    plain = plain_sentinels(own)
    assert (plain["tokens"], plain["sequences"], plain["of_sequences"]) == (
        wanted["tokens"],
        wanted["hit"],
        wanted["of"],
    )
    assert plain["loss_mask"] == {"known": wanted["tokens"], "in_loss": wanted["kept"]} and wanted["kept"] == 0
    assert sum(plain["kinds"].values()) == wanted["tokens"] and ("trainer" in next(iter(plain["kinds"]))) == (side == 1)
    for is_hit, tokens in ((True, own.seen.found.hit), (False, ~own.seen.found.hit)):
        mean = own.seen.distance[tokens].sum() / own.seen.others[tokens].sum()
        assert mean == pytest.approx(wanted["k3"][is_hit], rel=1e-5)
    assert plain["places"] == [] and "They have no pattern in position, length, step" in own.words
    assert (
        "finish reason" in own.words
        and "replica" in own.words
        and "places looked at; not on record: minibatch, packed row)" in own.words
    )


@pytest.mark.parametrize(
    ("fault", "fill", "side", "said"),
    [
        (at_end, math.nan, 1, "The sampler has one log-prob too many in every response that ended by “stop” ("),
        (at_end, -9999.0, 0, "The sampler has one log-prob too few in every response that ended by “stop” ("),
        (at_replica, math.nan, 0, "; 0 of the other 144)"),
        (late, -100.0, 0, "looked at): since step 3 ("),
        (beyond, 0.0, 0, "looked at): at positions from 75 on ("),
    ],
    ids=["too many", "too few", "replica", "since", "beyond"],
)
def test_a_planted_pattern_is_told(tmp_path: Path, fault: Fault, fill: float, side: int, said: str) -> None:
    own = found(made(tmp_path / "run", fault, fill, side=side))
    assert own is not None and said in own.words and "beyond chance (p " in own.words
    assert ("at replica engine-2 (" in own.words) == (fault is at_replica)
    assert own.since == ("since step 3" if fault is late else "at every step")
    known = own.seen.masked[0]
    assert (
        f"The loss mask leaves {known:,} of {known:,} in the loss." in own.effect
        and known == own.seen.found.count.sum()
    )


def test_a_list_that_is_one_longer_in_each_response_of_a_stop_word_is_told(tmp_path: Path) -> None:
    draws = np.random.default_rng(3)
    with Collector(tmp_path / "run", writer="thread", when_full="wait") as collector:
        for step in range(4):
            old = [-draws.exponential(1.0, int(size)) - 0.1 for size in draws.integers(20, 60, ROWS)]
            finish = np.where(draws.random(ROWS) < 0.4, "stop", "length").tolist()
            rollout = [
                np.append(own, -0.5) if end == "stop" else own + 0.01 for own, end in zip(old, finish, strict=True)
            ]
            ids = [f"{step}-{row}" for row in range(ROWS)]
            collector.log(step=step, rollout_logprobs=rollout, sequence_ids=ids, finish_reasons=finish)
            collector.log(step=step, old_logprobs=old, sequence_ids=ids)
    own = found(tmp_path / "run")
    assert own is not None and set(own.seen.kinds) == {"lists of unequal length"}
    hit = int(own.seen.found.hit.sum())
    told = (
        f"The sampler has one log-prob too many in every response that ended by “stop” ({hit} of {hit}; 0 of the other"
    )
    assert told in own.words and 0 < hit < 4 * ROWS and "These sequences have no other token." in own.effect


@pytest.mark.parametrize("noise", [1.0, 6.0])
def test_other_tokens_of_these_sequences_are_suspect_if_they_are_further_apart(tmp_path: Path, noise: float) -> None:
    own = found(made(tmp_path / "run", beyond, math.nan, noise=noise))
    assert own is not None
    first = own.effect.partition("they are suspect, too")
    assert ("The other tokens of these sequences" in first[0] and bool(first[1])) == (noise > 1)


def test_one_sentinel_that_the_diagnosis_does_not_name_is_found_where_statistics_point(tmp_path: Path) -> None:
    own = found(made(tmp_path / "run", single, -9999.0))
    assert own is not None and own.words.startswith(
        "In place of log-probs stand -9999 on the sampler's side: 1 token in 1 of 192 sequences, at step 2 alone."
    )


def test_a_run_without_one_shows_nothing_and_no_further_row_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(tmp_path / "run", never, math.nan)
    monkeypatch.setattr("ratioscope.ingest.analysis.sentinels.columns_of", None)
    assert found(folder) is None
    assert main(["diagnose", str(folder), "--json"]) == 0 and "sentinels" not in json.loads(capsys.readouterr().out)
    assert main(["diagnose", str(folder)]) == 0 and "sentinel" not in capsys.readouterr().out


@pytest.mark.slow
def test_every_face_tells_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], read: Read) -> None:
    folder = made(tmp_path / "run", at_end, math.nan, side=1)
    own = found(folder)
    assert own is not None
    assert main(["diagnose", str(folder), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["sentinels"]["words"] == own.words and plain["likely"][0]["code"] == "non_finite"
    assert {place["fact"] for place in plain["sentinels"]["places"]} == {"position", "finish reason"}
    assert main(["diagnose", str(folder)]) == 0
    assert own.words[:60] in " ".join(capsys.readouterr().out.split())
    for page in ("why", "record"):
        shown = read(page, folder)
        assert own.words in html.unescape("".join(part.value for part in (*shown.html, *shown.markdown))), page


@pytest.mark.slow
@pytest.mark.parametrize("fill", [0.0, math.nan], ids=["zero", "nan"])
def test_a_sentinel_beyond_48k_tokens_of_context_is_located(tmp_path: Path, fill: float) -> None:
    """The settings of a public report: of each of 3 steps, 2 of 16 responses of 49,152 tokens end in 64 to 400 sentinels."""
    draws = np.random.default_rng(6)
    with Collector(tmp_path / "run", trainer="nemo_rl", writer="thread", when_full="wait") as collector:
        for step in range(4):
            sizes = [49_152 if row < 2 and step else int(draws.integers(800, 3000)) for row in range(16)]
            rollout = [
                np.where(draws.random(size) < 0.7, -draws.exponential(0.02, size), -draws.exponential(1.2, size))
                for size in sizes
            ]
            old = [
                np.minimum(own + 0.01 * draws.standard_normal(len(own)) * np.minimum(1, -3 * own), -1e-7)
                for own in rollout
            ]
            for values in rollout[:2] if step else ():
                values[-int(draws.integers(64, 400)) :] = fill
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
    own = found(tmp_path / "run")
    assert own is not None and "6 of 64 sequences, since step 1. They go with a place beyond chance" in own.words
    assert "in responses of 49,152 tokens and more (6 of 6; 0 of the other 58)" in own.words
    first = int(own.words.partition("at positions from ")[2].partition(" ")[0].replace(",", ""))
    assert 49_152 - 400 <= first <= 49_152 - 64 and "nothing on record makes them suspect" in own.effect
