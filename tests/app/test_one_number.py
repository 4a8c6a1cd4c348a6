"""One fact, one number: the size of the gap, the first cause's share, ESS and clipped shares are equal on every face.

The values come from `Run.metrics`; the faces are drawn without a browser. A K3 that stands without its steps fails, too.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import pages_read
from support.one_value import FACTS, OF_SIZE, values_of
from support.pages_open import plain
from support.pages_read import PageRead, Read
from support.paths import ROOT

from ratioscope.app.cli import main
from ratioscope.app.documents import material as of_material
from ratioscope.app.documents.document import files
from ratioscope.app.documents.drawings import Drawing
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.notebook import notebook_html
from ratioscope.app.documents.report import markdown_report
from ratioscope.app.presentation.digits import percent, plus_minus
from ratioscope.app.presentation.value_text import value_words
from ratioscope.collectors.collector import Collector
from ratioscope.ingest import run as of_run
from ratioscope.ingest.analysis import diagnosis as of_diagnosis
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.definitions.registry import BY_NAME

SHIPPED = ROOT / "sample_data/runs"
PAGES = ("overview", "why", "where", "staleness", "fix", "distributions", "alerts", "runs", "compare")
VERBS = ("info", "diagnose", "check", "watch", "metrics")
HEADS = ("overview", "info", "diagnose", "check", "watch", "notebook")
"""Faces without tables that have the step in a column of its own."""
BARE = re.compile(
    r"K3 (?:is )?[\d.]+ nats/token"
    r"(?! (?:at |over all |\(step |when the run began)|, the (?:highest of|mean weight)|, [\d.]+ times)"
)
"""A K3 whose steps do not follow it. Causes that are ruled out have theirs above the list."""
NOTHING = re.compile(r"every weight is 1 [\d,]+ tokens .*?truncate token")
"""The row of no correction, which removes no mass."""
FEWEST = {
    "K3 now": 10, "K3 at worst": 9, "K3 over all steps": 13, "K3 at the calm level": 9,
    "ESS over all steps": 2, "ESS over all steps in %": 2,
}  # fmt: skip
"""Fact -> texts that must tell it, so that a pattern that matches nothing fails."""
CALM = {"stale": range(1, 21), "agentic": range(8)}
"""The steps before the fault of each sick run, by the way it was made."""
K3, ESS, LOG_CHI2 = "mismatch/kl_k3", "mismatch/ess_token", "log_mean_square_weight_sequence"


def agentic(folder: Path) -> Path:
    """Conversations in three turns on two replicas, one of which has other weights from step 8 on; more steps than are read."""
    draws = np.random.default_rng(3)
    with Collector(folder, name="agentic") as collector:
        for step in range(20):
            rollout = -draws.exponential(1.0, (8, 30))
            stuck = np.where(np.arange(8)[:, None] % 2, 0.3 if step >= 8 else 0.01, 0.01)
            collector.log(
                step=step,
                rollout_logprobs=rollout,
                old_logprobs=np.minimum(rollout + draws.normal(0, 1, rollout.shape) * stuck, -1e-4),
                turns=[np.repeat([0, 1, 2], 10)] * 8,
                replica=[f"replica-{row % 2}" for row in range(8)],
                trainer_version=step,
                rollout_versions=[step - 2 * (step > 8) * (row % 2) for row in range(8)],
            )
    return folder


RUNS: Mapping[str, Callable[[Path], Path]] = {
    "stale": lambda _: SHIPPED / "trl-vllm-stale",
    "healthy": lambda _: SHIPPED / "trl-vllm-healthy",
    "agentic": agentic,
}


@pytest.mark.parametrize("name", RUNS)
def test_each_fact_has_one_number_and_its_steps_on_every_face(
    name: str, read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, open_run = RUNS[name](tmp_path / "run"), cache(of_run.open_run)
    for module in (of_run, pages_read):  # read and diagnosed once for all faces, and no chart is drawn
        monkeypatch.setattr(module, "open_run", lambda path, **_: open_run(Path(path)))
    monkeypatch.setattr(of_diagnosis, "diagnosis_of", cache(of_diagnosis.diagnosis_of))
    empty: dict[str, Any] = {"data": [], "layout": {"height": 100, "xaxis": {}, "yaxis": {}}}
    monkeypatch.setattr(of_material, "drawing", lambda name, chart: Drawing(name, empty, None))
    monkeypatch.setattr(PageRead, "_chart", lambda *_: None)
    run = open_run(path)
    told, expected, whole = _faces(path, run, read, capsys), _expected(run, CALM.get(name)), run.metrics(by=())[K3][0]
    for fact, pattern in (FACTS | OF_SIZE).items():
        found = values_of(pattern, told)
        values = set().union(*found.values())
        assert len(values) <= 1, (fact, found)
        assert fact not in expected or (values == {expected[fact]} and len(found) >= FEWEST[fact]), (fact, found)
    assert not {face: bare for face in HEADS if (bare := BARE.findall(told[face]))}, "a K3 without its steps"
    assert not {face: zeros for face, text in told.items() if (zeros := re.findall(r"−0(?:\.0+)?%?(?![\d.·])", text))}
    worst, _ = worst_step(BY_NAME[LOG_CHI2], run.metrics(), "mismatch")
    assert worst is not None and worst >= run.metrics(by=())[f"mismatch/{LOG_CHI2}"][0], (
        "the worst is on the side of the whole"
    )
    assert NOTHING.findall(told["fix"])[0].count("–") == 2, "no correction removes no mass and no sequence"
    plain_ = json.loads(told["info --json"])
    assert plain_["size"]["whole"]["value"] == plain_["diagnosis"]["kl_k3"] == whole
    assert (
        ("at the 12 steps read" in told["diagnose"])
        == ("at the 12 steps read" in told["report.md"])
        == (len(run.steps) > 12)
    )


def _expected(run: Run, calm: range | None) -> dict[str, str]:
    """Fact -> its value in words, from the metric frames."""
    steps, whole = run.metrics().sort("step"), run.metrics(by=())
    _, worst = worst_step(BY_NAME["kl_k3"], steps, "mismatch")
    rows = {"K3 now": steps.tail(1), "K3 at worst": steps.filter(step=worst), "K3 over all steps": whole}
    if calm is not None:
        rows["K3 at the calm level"] = run.metrics(by=(), steps=calm)
    ess, words = whole[ESS][0], value_words("ess_token", whole[ESS][0], whole[f"{ESS}_se"][0])
    of_ess = {"ESS over all steps": words, "ESS over all steps in %": f"{'≤ ' * words.startswith('≤')}{percent(ess)}"}
    return of_ess | {fact: value_words("kl_k3", row[K3][0], row[f"{K3}_se"][0]) for fact, row in rows.items()}


def _faces(path: Path, run: Run, read: Read, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Name of a face -> its words, without tags."""
    itself = {"a": path.name, "b": path.name, "a_steps": ":", "b_steps": ":"}
    told = {page: _words(read(page, [path], **(itself if page == "compare" else {}))) for page in PAGES}
    for verb in (*VERBS, "info --json"):
        main([*verb.split(), str(path)])
        told[verb] = capsys.readouterr().out
    made = of_material.material(run)
    told |= {f"bundle {name}": _flat(text) for name, text in files(made).items()}
    head = json.loads(json_report(made))["head"]["facts"]
    report = {"report.md": _flat(markdown_report(made).replace("\\", "")), "report.json": "; ".join(head.values())}
    return told | report | {"notebook": _flat(notebook_html(run))}


def _words(said: PageRead) -> str:
    tables = [part.value.to_csv(index=False) for part in said.dataframe]
    rows = [row for part in said.dataframe for row in part.value.to_dict("records") if "whole run" in row]
    tables += [f"newest KL {plus_minus(row['kl_k3'], row['± se'])}; whole KL {row['whole run']}" for row in rows]
    links = [part.label for part in said.button]
    return _flat("\n".join((plain(said), *links, *(part.value for part in said.html), *tables)))


def _flat(text: str) -> str:
    """The words of a page on one line."""
    bare = re.sub(r"<(script|style)\b.*?</\1>|<[^>]*>", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(bare))
