"""docs/collapse.md is of the kept runs, and two of them come out again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT


@pytest.fixture
def collapse(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import collapse  # type: ignore[import-not-found]  # of docs/

    return collapse


def test_the_page_is_of_the_kept_runs(collapse: Any) -> None:
    runs = json.loads(Path(collapse.KEPT).read_text())
    assert Path(collapse.PAGE).read_text() == collapse.page(runs)
    assert len(runs) == len(collapse.CASES) * len(collapse.ALGORITHMS) * len(collapse.SEEDS)
    assert {name for run in runs for name in run["numbers"]} == set(collapse.NAMED)


def test_a_hotter_sampler_ruins_reinforce_and_not_grpo(collapse: Any) -> None:
    hot = next(case for case in collapse.CASES if case.strength == -0.3)
    kept = {run["algorithm"]: run for run in json.loads(Path(collapse.KEPT).read_text()) if run["seed"] == 0 and
            (run["kind"], run["strength"]) == (hot.kind, hot.strength)}  # fmt: skip
    for algorithm, falls in (("REINFORCE", True), ("GRPO", False)):
        rewards = np.array([own.mean() for _, own, _ in collapse.trained(hot, algorithm, 0)])
        first, last = rewards[:40].mean(), rewards[-40:].mean()
        assert collapse.collapsed({"first": first, "last": last}) == falls
        assert (first, last) == pytest.approx((kept[algorithm]["first"], kept[algorithm]["last"]))


def test_the_area_counts_pairs_in_the_right_order(collapse: Any) -> None:
    falls = np.array([True, False, True, False])
    assert collapse.auc(np.array([3.0, 1.0, 2.0, 2.0]), falls) == 0.875
    assert collapse.auc(-np.array([3.0, 1.0, 2.0, 2.0]), falls) == 0.125
