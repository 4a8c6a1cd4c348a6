"""A hundred names of ten trainers and more, as their trackers hold them, read in the trainer's source: `explain` answers each.

The first seven of a trainer were chosen while the table was made, the others were drawn by lot from the names in its source. Each
one's meaning was written down before `explain` was asked.

Sixty more were drawn by lot later, from names about the gap alone, at the commits of their column `read`. The first 40 got
30 right cards then, 5 without a meaning, 3 wrong ones and 2 none. Of the 20 that were drawn after the mending none was missed
or wrong.

A stranger drew more at the same commits and found 7 wrong cards, one name without any, and 16 cards that gave only the kind
of number. These, mended, are the 38 rows after the first 60, with names beside them in the source.

A third draw, of 30 names, found 11 wrong cards: whole families that one sentence of a kind was written for. Every card of the
trainers was then read against the source. The rows after the first 98 are of that draw and of the families that it showed.

Strangers then called most cards of rewards, lengths, timings and counts vague: no weighting, denominator, content or unit. The
last 57 rows are names of fourteen trainers whose cards got these from the source, with what decides the meaning of each.
"""

import csv
from collections import Counter

import pytest
from support.paths import ROOT

from ratioscope.errors import ConfigError
from ratioscope.metrics.explanation import entries


def _rows(name: str) -> list[dict[str, str]]:
    with (ROOT / "tests" / "data" / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


ROWS, DRAWN = _rows("hundred_names.csv"), _rows("drawn_names.csv")
"""trainer; logged, the name; quantity, "=" and the metric of ours that it is, "~" and the nearest, or none; words of the card."""


def test_they_are_a_hundred_of_ten_trainers() -> None:
    counts = Counter(row["trainer"] for row in ROWS)
    assert (
        len(counts) == 10
        and min(counts.values()) >= 10
        and len({(row["trainer"], row["logged"]) for row in ROWS}) == 160
    )
    assert all(row["source"].endswith(".py") for row in ROWS)


def test_the_drawn_are_of_twelve_trainers_and_more_each_at_a_commit_or_version() -> None:
    assert len({row["trainer"] for row in DRAWN}) >= 12
    assert len({(row["trainer"], row["logged"]) for row in DRAWN}) == len(DRAWN) >= 98
    assert all(row["source"].endswith(".py") and len(row["read"].split()) == 2 and row["words"] for row in DRAWN)


@pytest.mark.parametrize("row", [*ROWS, *DRAWN], ids=lambda row: f"{row['logged']}@{row['trainer']}")
def test_explain_says_which_metric_a_logged_number_is_or_why_none(row: dict[str, str]) -> None:
    ((name, card),) = entries(f"{row['logged']}@{row['trainer']}")
    shown, metric = dict(card), row["quantity"][1:]
    assert name == row["logged"] and shown["trainer"].startswith(row["trainer"])
    assert row["words"] in " ".join(text for _, text in card)
    if row["quantity"].startswith("="):
        assert shown["is"].split(",")[0] == metric
    elif metric:
        assert shown["is"] == f"no metric of ours; it comes close to {metric}" and shown["note"]
    else:
        assert shown["is"] == "no metric of ours has its definition" and shown["note"] and "measures" not in shown


def test_a_name_that_its_trainer_no_longer_logs_has_no_card_of_it() -> None:
    """open-instruct logs no policy/approxkl_avg at e6c3044; TRL's PPOTrainer does."""
    with pytest.raises(ConfigError, match="open_instruct has no number 'policy/approxkl_avg'"):
        entries("policy/approxkl_avg@open_instruct")
    assert dict(entries("policy/approxkl_avg@trl")[0][1])["is"].endswith("drift/kl_k2")


def test_a_trainer_without_a_table_gets_no_card_of_another() -> None:
    with pytest.raises(
        ConfigError, match="the names that torchtitan_rl logs are in no table; known are those of areal"
    ):
        entries("loss/ratio_mean@torchtitan_rl")
    assert entries("val-core/math/reward/mean@8") and entries("actor/kl_loss@sum"), "these endings are of names"
