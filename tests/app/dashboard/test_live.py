"""The looks at a run on a page: how many a page takes, and which selection holds it."""

import pytest
import streamlit as st
from support.pages_open import Open, well

from ratioscope.app.dashboard.model import live, looks
from ratioscope.ingest.commits.liveness import Sizes, sizes


def test_a_page_lists_the_commit_logs_of_a_run_twice(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the run is read, and for the line of its state. On a disk of a network each list takes milliseconds."""
    app = opened("overview", ["stale"])
    listed: list[object] = []

    def counted(*given: object) -> Sizes:
        listed.append(given)
        return sizes(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(looks, "sizes", counted)
    well(app.run())
    assert len(listed) == 2


def test_a_selection_holds_the_page_under_the_newest_key_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"selection": {"rows": [], "cells": [[1, 0]]}}
    state: dict[str, object] = {}
    monkeypatch.setattr(st, "session_state", state)
    former = live.selectable("rows", [1, 2])
    state[former] = chosen
    assert live.selected()
    newest = live.selectable("rows", [1, 2, 3])
    state["another_table"] = chosen
    assert not live.selected()
    state[newest] = chosen
    assert live.selected()
