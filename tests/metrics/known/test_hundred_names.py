"""A hundred names of ten trainers and more, as their trackers hold them, read in the trainer's source: `explain` answers each.

The first seven of a trainer were chosen while the table was made, the others were drawn by lot from the names in its source. Each
one's meaning was written down before `explain` was asked.
"""

import csv
from collections import Counter

import pytest
from support.paths import ROOT

from ratioscope.metrics.explanation import entries

with (ROOT / "tests" / "data" / "hundred_names.csv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))
"""trainer; logged, the name; quantity, "=" and the metric of ours that it is, "~" and the nearest, or none; words of the card."""


def test_they_are_a_hundred_of_ten_trainers() -> None:
    counts = Counter(row["trainer"] for row in ROWS)
    assert (
        len(counts) == 10
        and min(counts.values()) >= 10
        and len({(row["trainer"], row["logged"]) for row in ROWS}) == 160
    )
    assert all(row["source"].endswith(".py") for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['logged']}@{row['trainer']}")
def test_explain_says_which_metric_a_logged_number_is_or_why_none(row: dict[str, str]) -> None:
    ((name, card),) = entries(f"{row['logged']}@{row['trainer']}")
    shown, metric = dict(card), row["quantity"][1:]
    assert name == row["logged"] and shown["trainer"].startswith(row["trainer"]) and shown["source"]
    assert row["words"] in " ".join(text for _, text in card)
    if row["quantity"].startswith("="):
        assert shown["is"].split(",")[0] == metric
    elif metric:
        assert shown["is"] == f"no metric of ours; it comes close to {metric}" and shown["note"]
    else:
        assert shown["is"] == "no metric of ours has its definition" and shown["note"] and "measures" not in shown
