"""The page Compare of scalar logs: the answer, numbers and settings of `ratioscope diff`, on every face."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest
from support.pages_open import Open, charts, opener, plain
from support.pages_read import PageRead, Read
from support.paths import ROOT

from ratioscope.app.cli import OK, main
from ratioscope.app.documents.document import folder_of
from ratioscope.app.documents.material import material
from ratioscope.ingest.run import open_run

WEEKS = ROOT / "tests" / "data" / "scalars" / "settings" / "wandb"
TOKENS = ROOT / "sample_data" / "runs" / "trl-vllm-healthy"
TRL = "sampling/sampling_logp_difference/mean"
Captured = pytest.CaptureFixture[str]
Shown = AppTest | PageRead


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    runs = tmp_path_factory.mktemp("weeks") / "runs"
    assert main(["import", str(WEEKS), "-o", str(runs), "--dialect", "verl@0.9.1"]) == OK
    return [runs / "good-week", runs / "bad-week"]


@pytest.fixture(scope="module")
def gapless(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two logs of TRL, whose numbers come close to a metric of ours and are none."""
    folder = tmp_path_factory.mktemp("gapless")
    for name, factor in {"a": 1, "b": 3}.items():
        rows = (
            {"step": step, TRL: factor * (0.01 + 0.0001 * (step * step % 13)), "reward": step % 5}
            for step in range(1, 31)
        )
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        assert main(["import", str(folder / f"{name}.jsonl"), "-o", str(folder / name)]) == OK
    return [folder / "a", folder / "b"]


def said(capsys: Captured, *options: object) -> tuple[str, dict[str, Any]]:
    """The words of `ratioscope diff` in one line, and its answer as data."""
    capsys.readouterr()
    told = []
    for more in ((), ("--json",)):
        assert main(["diff", *map(str, options), *more]) == OK
        told.append(capsys.readouterr().out)
    return " ".join(told[0].split()), json.loads(told[1])


def agrees(page: Shown, words: str, found: dict[str, Any]) -> None:
    """The page has the sentences of diff, its rows, and its settings in its order."""
    on_page = plain(page).replace("**", "")
    assert found["sentence"] in on_page and found["sentence"] in words
    for begins in ("Not paired by prompt", "Since which step"):
        (line,) = re.findall(rf"{begins}.*?(?= “differs”|$)", on_page, re.MULTILINE)
        assert " ".join(line.split()) in words
    rows = page.dataframe[0].value
    assert [*rows["metric"]] == [row["metric"] for row in found["metrics"]]
    for row in rows.itertuples(index=False):
        assert " ".join(map(str, row)) in words
    for setting in found["settings"][:8] if any(row["known"] for row in found["settings"]) else ():
        line = f"{setting['setting']} {setting['A']} → {setting['B']}"
        line += f": {setting['effect']}" if setting["effect"] else ""
        assert line in words and line in on_page


@pytest.mark.parametrize("turned", [False, True])
def test_two_logs_have_the_answer_of_diff(read: Read, weeks: list[Path], capsys: Captured, turned: bool) -> None:
    sides = weeks[::-1] if turned else weeks
    words, found = said(capsys, *sides)
    page = read("compare", sides)
    agrees(page, words, found)
    assert found["direction"] == ("better" if turned else "worse") and "in common" not in plain(page)
    assert found["settings"][0]["known"] == "known fault" and found["settings"][0]["effect"] in plain(page)


@pytest.mark.parametrize("is_log_first", [True, False])
def test_a_log_beside_a_run_with_tokens_has_the_answer_of_diff(
    read: Read, weeks: list[Path], capsys: Captured, is_log_first: bool
) -> None:
    sides = [weeks[0], TOKENS] if is_log_first else [TOKENS, weeks[0]]
    page = read("compare", sides)
    agrees(page, *said(capsys, *sides))
    assert f"All {len(said(capsys, *sides)[1]['settings'])} settings" in page.subheader[-1].value
    assert "Errors are clustered by sequence" not in plain(page)


def test_logs_without_a_metric_of_ours_open_the_page(
    read: Read, runs: Path, monkeypatch: pytest.MonkeyPatch, gapless: list[Path], capsys: Captured
) -> None:
    words, found = said(capsys, *gapless)
    assert f"B's {TRL} is 3 times higher" in found["sentence"] and found["settings"] == []
    faces: tuple[Callable[..., Shown], ...] = (read, opener(runs, monkeypatch))
    for face in faces:
        page = face("compare", gapless)
        agrees(page, words, found)
        assert "No setting on record differs" in plain(page) and TRL in str(json.loads(charts(page)[0]))


def test_streamlit_draws_what_the_page_is_made_of(opened: Open, weeks: list[Path], capsys: Captured) -> None:
    app = opened("compare", weeks, course="critic/score/mean")
    agrees(app, *said(capsys, *weeks))
    chart = str(json.loads(*charts(app)))
    assert "critic/score/mean" in chart and "A good-week" in chart and "B bad-week" in chart


@pytest.mark.parametrize("kind", ["weeks", "gapless"])
def test_the_static_pages_of_several_logs_have_the_answer_of_diff(
    request: pytest.FixtureRequest, capsys: Captured, kind: str
) -> None:
    sides: list[Path] = request.getfixturevalue(kind)
    words, found = said(capsys, *sides)
    made = dict(folder_of([material(open_run(run)) for run in sides]))
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", made[f"{sides[0].name}.html"])).split())
    assert found["sentence"] in text
    for setting in (row for row in found["settings"] if row["effect"]):
        assert f"{setting['A']} → {setting['B']}: {setting['effect']}" in text and setting["effect"] in words


def test_ranges_of_steps_of_logs_are_compared(read: Read, weeks: list[Path]) -> None:
    page = read("compare", weeks, a_steps="1:10", b_steps="1:20")
    assert "means over 10 steps that both have" in plain(page)
    own = open_run(weeks[1]).metrics().filter(step=5)["mismatch/kl_k3"][0]
    one = read("compare", weeks, a_steps="5", b_steps="5")
    (rows,) = [part.value() for part in one.expander if part.key == "compared_numbers"]
    assert rows.filter(metric="mismatch/kl_k3")["b"][0] == pytest.approx(own)
    halves = plain(read("compare", weeks[:1]))
    assert "steps :15" in halves and "steps 16:" in halves and "all steps of each" in halves
    assert "A and B share 11 steps" in plain(read("compare", weeks[:1], a_steps=":20", b_steps="10:"))


def test_several_logs_of_a_side_are_refused_in_words(read: Read, weeks: list[Path]) -> None:
    page = read("compare", weeks, a=["good-week", "bad-week"], b="bad-week")
    assert "Choose one run for A and one for B" in plain(page) and not page.dataframe


def test_numbers_of_one_log_alone_are_no_comparison(read: Read, weeks: list[Path], gapless: list[Path]) -> None:
    page = read("compare", [weeks[0], gapless[0]])
    assert "Nothing is compared, because A and B have no number in common." in plain(page) and not page.charts
