"""Runs in a dataset of the Hugging Face Hub, read by huggingface_hub's own filesystem from a stand-in on the loopback."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from support.file_servers import hub
from support.store_checks import demand_followed

from ratioscope import open_run
from ratioscope.errors import SourceError
from ratioscope.ingest.remote import opening

constants: Any = import_module("huggingface_hub.constants")  # Any: mypy would read 150 files for it
TOKEN = "hf_" + "secret" * 5


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(opening, "_MIRRORS", {})


def test_a_run_in_a_dataset_is_followed_with_the_user_s_own_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    url = "hf://datasets/team/runs/tonight"
    with hub(tmp_path / "data") as served:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # other tests of this process may have set it
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
        monkeypatch.setattr(constants, "ENDPOINT", served.address)  # $HF_ENDPOINT is read once, at the import
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", served.address + template)
        monkeypatch.setenv("HF_ENDPOINT", served.address)  # the process that lists the store reads it there
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        demand_followed(tmp_path / "data" / "tonight", url, lambda: None, tmp_path / "r.html")
        with pytest.raises(SourceError, match="runs/other") as failed:
            open_run("hf://datasets/team/runs/other")
    assert served.logins == {f"Bearer {TOKEN}"}
    assert any(not asked.startswith("bytes=0-") for _, _, asked in served.asked if asked), "no part was asked for"
    printed = capsys.readouterr()
    assert TOKEN not in printed.out + printed.err + str(failed.value)
    assert not any(TOKEN.encode() in path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
