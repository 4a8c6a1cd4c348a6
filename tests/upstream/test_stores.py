"""Runs on web servers and on Google's store, read by the packages that fsspec names for them, against servers on the loopback.

Needs aiohttp; gcsfs and gcp-storage-emulator. Skipped where they are not installed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.file_servers import web
from support.store_checks import demand_followed

from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.remote import opening

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "_MIRRORS", {})


@pytest.mark.parametrize("ranges", [True, False])
def test_a_run_on_a_web_server_is_followed(ranges: bool, tmp_path: Path) -> None:
    """Python's own server knows no ranges, and sends whole files."""
    pytest.importorskip("aiohttp", reason="fsspec's filesystem of web servers needs aiohttp")
    (tmp_path / "www").mkdir()
    with web(tmp_path / "www", ranges=ranges) as served:
        demand_followed(tmp_path / "www" / "tonight", f"{served.address}/tonight", lambda: None, tmp_path / "r.html")
    if ranges:
        assert any(not asked.startswith("bytes=0-") for _, _, asked in served.asked if asked), "no part was asked for"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("gcsfs", reason="gs:// needs gcsfs")
    emulator = pytest.importorskip(
        "gcp_storage_emulator.server", reason="an emulator of Google's store is not installed"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = emulator.create_server("127.0.0.1", port, in_memory=True, default_bucket="runs")
    server.start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{port}")
    yield "gs://runs"
    server.stop()


def test_a_run_on_google_s_store_is_pushed_and_followed(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/tonight"

    def publish() -> None:
        push(tmp_path / "run", url)

    demand_followed(tmp_path / "run", url, publish, tmp_path / "r.html")
