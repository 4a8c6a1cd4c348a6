"""The report beside the pinned run: how many times its gap, which settings differ, and its line in the charts."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from support.edge_runs import made
from support.real_runs import records
from support.recorded import recorded
from support.run_folders import FakeWriter, only

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.figures.drawing.faint_run import FaintRun
from ratioscope.app.figures.over_steps import metric_over_steps
from ratioscope.app.pages.baseline import words_of
from ratioscope.app.presentation.escape import visible
from ratioscope.ingest.files.reference_file import REFERENCE_FILE, Pinned, pin
from ratioscope.metrics.analysis.comparison import Compared, Estimate
from ratioscope.metrics.definitions.registry import BY_NAME

KL = BY_NAME["kl_k3"]


def configured(folder: Path, config: dict[str, Any]) -> Path:
    """The run with this configuration, as software that removes no secrets writes it."""
    info = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**info, "config": config, "attempts": []}))
    return folder


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"lr": 1e-6, "args": {"api_key": "hunter2hunter2", "note": "/home/ann/x hf_abcdefghijklmnopqrst"}}
    return configured(recorded("trl_vllm_base", tmp_path_factory.mktemp("runs") / "good", name="good"), config)


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = {"lr": 2e-6, "args": {"api_key": "letmeinletmein", "note": "/home/bob/y"}, "only": "here"}
    return configured(recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "stale"), config)


@pytest.fixture(scope="module")
def data(stale: Path, good: Path) -> Material:
    return material(open_run(stale), good=open_run(good))


@pytest.fixture(scope="module")
def html(data: Material) -> str:
    return html_report(data)


def sides(a: float, b: float, error: float = 0.001) -> Compared:
    return Compared("kl_k3", Estimate(a, error, 1), Estimate(b, error, 1))


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (sides(0.01, 0.07), "7 times your pinned run nice: KL 0.07 ± 0.001 nats/token against 0.01 ± 0.001"),
        (sides(0.07, 0.01), "7 times smaller than your pinned run nice"),
        (sides(0.1, 0.12), "20% larger than your pinned run nice"),
        (sides(0.1, 0.09), "10% smaller than your pinned run nice"),
        (sides(0.01, 0.011), "cannot be told apart from your pinned run nice"),
        (sides(0.0, 0.3), "unlike your pinned run nice"),
        (sides(0.01, 0.07, math.nan), "7 times your pinned run nice: KL 0.07 nats/token against 0.01"),
        (None, "not comparable with your pinned run nice, because"),
    ],
)
def test_the_size_beside_the_pinned_run_in_words(size: Compared | None, said: str) -> None:
    assert words_of(size, "nice").startswith(said)


def test_the_head_begins_with_the_pinned_run_in_every_format(data: Material, html: str) -> None:
    label, words = data.head.facts[0]
    assert label == "pinned run"
    times = re.match(r"([\d.,]+) times your pinned run good: KL ", words)
    found = data.baseline
    assert times and found is not None
    size = next(row for row in found.plain["metrics"] if row["metric"] == "kl_k3")
    assert float(times[1]) == pytest.approx(size["b"] / size["a"], rel=0.06)
    markdown, twin = markdown_report(data), json.loads(json_report(data))
    assert "Compared with good" in html and "## Compared with good" in markdown
    assert visible(words).split(":")[0] in html and visible(words).split(":")[0] in markdown.replace("\\", "")
    assert twin["head"]["facts"]["known-good run"] == words
    assert twin["comparison"]["direction"] == "worse" and twin["comparison"]["known_good"] == "good"
    assert twin["comparison"]["digest"] == found.digest


def test_settings_that_differ_are_listed_without_secrets(data: Material, html: str) -> None:
    found = data.baseline
    assert found is not None
    rows = {key: (good, own) for key, good, own in found.settings}
    assert rows["config.lr"] == ("0.000001", "0.000002")
    assert rows["config.only"][1] == "here"
    assert "config.lr 0.000001 → 0.000002" in dict(data.head.facts)["settings"]
    for document in (html, markdown_report(data), json_report(data)):
        assert not [
            secret for secret in ("hunter2", "letmein", "hf_abcdef", "/home/ann", "/home/bob") if secret in document
        ]


def test_charts_show_the_other_run_faint_and_say_so(html: str, stale: Path) -> None:
    alone = html_report(material(open_run(stale)))
    chart = re.search(r'data-figure="mismatch-kl_k3">(.*?)</div>', html, re.DOTALL)
    assert chart and "good" in chart[1] and 'stroke-dasharray="6 4"' in chart[1]
    faint = 'stroke="var(--muted)" stroke-width="1.2" stroke-opacity="0.75"'
    assert html.count(faint) > 20 and faint not in alone


def test_the_other_run_is_drawn_at_steps_of_this_one_only(data: Material) -> None:
    steps = data.steps.filter(data.steps["step"] >= 6)
    assert data.scope.good is not None
    figure: Any = metric_over_steps(steps, KL, "mismatch", beside=FaintRun("good", data.scope.good.metrics()))
    faint = next(trace for trace in figure.data if trace.name == "good")
    assert min(x for x in faint.x if not math.isnan(x)) >= 6
    later = data.scope.good.metrics().with_columns(step=data.scope.good.metrics()["step"] + 1000)
    none: Any = metric_over_steps(steps, KL, "mismatch", beside=FaintRun("good", later))
    assert "good has no value at these steps" in none.layout.title.subtitle.text


def test_a_hostile_name_of_the_other_run_stays_text(stale: Path, tmp_path: Path) -> None:
    odd = recorded("trl_vllm_base", tmp_path / "odd", steps=2, name="<script>alert(1)</script> %{x}")
    html = html_report(material(open_run(stale), good=open_run(odd)))
    assert "<script" not in html and "&lt;script&gt;alert(1)" in html


def test_a_long_name_leaves_room_for_the_answer(stale: Path, tmp_path: Path) -> None:
    odd = recorded("trl_vllm_base", tmp_path / "odd", steps=2, name="WithoutAnySpace" * 20)
    found = material(open_run(stale), good=open_run(odd))
    assert len(found.head.facts[0][1]) < 160 and "…" in found.head.facts[0][1]
    assert "WithoutAnySpace" * 20 in html_report(found)


def test_what_cannot_be_compared_is_refused_with_a_reason(
    stale: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = FakeWriter(tmp_path / "one").open()
    writer.step(only(records("lcpp_q4_1").slice(0, 32), ["rollout"]))
    writer.close()
    for other, said in (
        (stale, "wanted another run"),
        (tmp_path / "one", "no gap in common"),
        (tmp_path / "none", "none"),
    ):
        assert main(["report", str(stale), "--compare", str(other), "-o", str(tmp_path / "x.md")]) != 0
        assert said in capsys.readouterr().err
    assert not (tmp_path / "x.md").exists()


def test_the_command_of_the_reproduction_names_the_other_run(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    own = made(runs, "one_step")
    assert main(["report", str(own), "--compare", str(good), "-o", "x.json", "--no-text"]) == 0
    twin = json.loads((tmp_path / "x.json").read_text())
    assert twin["reproduction"]["command"] == f"ratioscope report {own.name} -o x.json --no-text --compare good"


def test_a_report_without_a_choice_compares_with_what_the_folder_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale, good = made(tmp_path, "stale"), made(tmp_path, "healthy")
    monkeypatch.chdir(tmp_path)
    pin(tmp_path, Pinned("run", "healthy"))
    assert main(["report", str(stale), "-o", "pinned.json"]) == 0
    assert main(["report", str(stale), "-o", "asked.json", "--compare", str(good)]) == 0
    pinned, asked = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("pinned", "asked"))
    assert pinned["comparison"] == asked["comparison"] is not None
    assert main(["report", str(good), "-o", "itself.json"]) == 0
    assert json.loads((tmp_path / "itself.json").read_text())["comparison"] is None, "not with itself"
    (tmp_path / REFERENCE_FILE).write_text("{")
    assert main(["report", str(stale), "-o", "damaged.json"]) == 0
    assert json.loads((tmp_path / "damaged.json").read_text())["comparison"] is None
