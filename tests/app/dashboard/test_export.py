"""What a reader takes away from a page, read back: numbers as they are, no formula, no network."""

import csv
import io
import json
import re
import zipfile
from datetime import date

import plotly.graph_objects as go
import polars as pl
import pytest
from support.frames import hostile_texts

from ratioscope.app.dashboard.model.export import PageContents, csv_of, html_of, json_of, zip_of
from ratioscope.app.presentation.theme import DARK, LIGHT

FRAME = pl.DataFrame(
    {
        "step": [1, 2, 3],
        "mismatch/kl_k3": [0.1, float("inf"), None],
        "name": ["=1+1", "plain", None],
        "list": [[1.5, float("nan")], [], None],
        "day": [date(2026, 1, 2), None, None],
    }
)


def test_csv_holds_the_numbers_as_they_are() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_of(FRAME).decode())))
    assert [row["step"] for row in rows] == ["1", "2", "3"] and float(rows[1]["mismatch/kl_k3"]) == float("inf")
    assert rows[2]["mismatch/kl_k3"] == "" and rows[0]["list"] == '[1.5, "NaN"]' and rows[0]["day"] == "2026-01-02"


def test_no_text_of_a_run_is_a_formula_in_a_spreadsheet() -> None:
    texts = [
        *(text for text in hostile_texts() if len(text) < 9999),
        "=cmd|' /C calc'!A0",
        "+1",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =1",
        '"=1',
        "＝1",
    ]
    frame = pl.DataFrame(
        {"=HYPERLINK(1)": pl.Series(texts, dtype=pl.String), "lists": [[text] for text in texts]}, strict=False
    )
    for row in csv.reader(io.StringIO(csv_of(frame).decode("utf-8"), newline="")):
        for cell in row:
            assert not re.match(r"[\s\"']*[=+\-@＝＋－＠\t\r]", cell) or cell.startswith("'")


def test_json_and_archive_hold_every_table_of_the_page() -> None:
    tables = {"a": lambda: FRAME, "b": lambda: FRAME.head(0)}
    found = json.loads(json_of(tables))
    assert found["a"][1] == {"step": 2, "mismatch/kl_k3": "Infinity", "name": "plain", "list": [], "day": None}
    assert found["b"] == []
    packed = zip_of(tables, PageContents("run", "page").file)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist() == ["run-page-a.csv", "run-page-b.csv"] and archive.read("run-page-a.csv") == csv_of(
            FRAME
        )
    assert packed == zip_of(tables, PageContents("run", "page").file)


@pytest.mark.parametrize("run", ["../../etc/passwd", "a\x00b", "C:\\x", "..", "‮evil", "=1", "x" * 400, ""])
def test_a_file_name_leads_nowhere_whatever_the_run_is_called(run: str) -> None:
    name = PageContents(run, "tokens").file("strip", ".csv")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name) and name.endswith("tokens-strip.csv") and len(name) < 100


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_charts_are_one_file_that_loads_nothing(theme: object) -> None:
    figure = go.Figure(layout={"title": "</script><script>alert(1)</script>"})
    page = html_of("</title><script>", [('" onload="x', figure)], LIGHT if theme is LIGHT else DARK).decode()
    own = page.replace(
        page[page.index("<script>") : page.index("</script>")], "", 1
    )  # plotly.js names many URLs and asks for none
    assert "script-src 'sha256-" in page and "script-src 'unsafe" not in page
    assert "default-src 'none'" in page and "alert(1)</script>" not in own and '" onload' not in own
    assert (
        "<link" not in own
        and "<iframe" not in own
        and "src=" not in own.replace("img-src", "").replace("default-src", "")
    )
