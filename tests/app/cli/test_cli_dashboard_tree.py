"""`ratioscope dashboard ROOT` on a folder with runs below, or with none yet."""

from pathlib import Path

import pytest
from support.run_folders import write_run_file

from ratioscope.app import cli
from ratioscope.app.dashboard.server import server


def test_a_folder_of_runs_is_served_and_what_lies_in_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[Path]] = []
    monkeypatch.setattr(server, "serve", lambda runs, *_, **__: asked.append(list(runs)))
    for name in ("a", "sweep/b"):
        write_run_file(tmp_path / "full" / name)
    (tmp_path / "none").mkdir()
    assert cli.main(["dashboard", str(tmp_path / "full"), str(tmp_path / "none")]) == cli.OK
    said = capsys.readouterr().out
    assert asked == [[tmp_path / "full", tmp_path / "none"]]
    assert f"{tmp_path / 'full'}: 2 runs" in said and f"{tmp_path / 'none'}: no run yet" in said
