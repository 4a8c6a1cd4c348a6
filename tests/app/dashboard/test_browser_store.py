"""The dashboard of a run on a store: it follows what is pushed, and shows the known state while the store fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import real_runs, run_folders, swift
from support.browser import Chromium, chromium
from support.relay import relaying
from support.run_folders import FakeWriter
from support.serving import serving

from ratioscope.ingest.maintenance.push import push

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")

NEWEST = """() => Math.max(...[...document.querySelectorAll('.js-plotly-plot')]
  .flatMap(plot => plot._fullData ?? []).flatMap(d => Array.from(d.x ?? [])).filter(Number.isFinite))"""
BEHIND = "document.body.innerText.includes('ago is shown, because')"


def test_pages_follow_a_run_on_a_store(tmp_path: Path, browser: Chromium, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4))
    steps = [step["step"][0].as_py() for step in rows]
    writer = FakeWriter(tmp_path / "run", segment_steps=4).open()
    with swift.serving_bucket("runs") as store, relaying(store.port) as relay:
        own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "RATIOSCOPE_STORE_SECONDS": "5"}
        for name, value in {**own, **swift.environment(relay.port)}.items():
            monkeypatch.setenv(name, value)
        url = "s3://runs/tonight"
        for step in rows[:2]:
            writer.step(step)
        push(tmp_path / "run", url)
        with serving(url) as dashboard:
            opened = browser.visit(dashboard.url)
            opened.page.wait_for_function(f"() => ({NEWEST})() === {steps[1]}")
            writer.step(rows[2])
            push(tmp_path / "run", url)
            opened.page.wait_for_function(f"() => ({NEWEST})() === {steps[2]}")
            relay.mode = "503"
            opened.page.wait_for_function(f"() => {BEHIND}")
            assert swift.SECRET not in opened.page.inner_text("body")
            relay.mode = "pass"
            opened.page.wait_for_function(f"() => !{BEHIND}")
            assert opened.errors == [] and opened.exceptions == 0
