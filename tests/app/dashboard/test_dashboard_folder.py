"""`cd` into a stranger's folder and `ratioscope dashboard .`: nothing that lies in the folder is read but runs."""

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from support.edge_runs import made
from support.serving import DEADLINE, serving

MODULES = (
    "sitecustomize", "usercustomize", "streamlit", "numpy", "polars", "pyarrow", "pandas", "plotly", "orjson", "uvicorn",
    "starlette", "webbrowser", "matplotlib", "git", "dotenv", "toml", "rich", "typer", "entry", "torch", "ray", "wandb",
)  # fmt: skip
"""What the command imports, or would where it found it."""
MAIN = """
import os, sys
from ratioscope.app import cli
from ratioscope.app.cli.commands import dashboard
said = dashboard.say
dashboard.say = lambda words, *more: said(f"{words} folder={os.getcwd()} stranger={os.environ.get('STRANGER')}", *more)
sys.exit(cli.main())
"""
"""The command, which tells besides in which folder it works and what a stranger's secrets have put into its environment."""


@pytest.fixture
def hostile(runs: Path, tmp_path: Path) -> Path:
    """A folder with a run, and with all that programs like to find where they are started. Whatever is run leaves a mark."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    shutil.copytree(made(runs, "stale"), folder / "run")
    for name in MODULES:
        (folder / f"{name}.py").write_text(
            f"open({str(tmp_path / f'mark-{name}')!r}, 'w').close()\nraise SystemExit(9)\n"
        )
    for name in ("pages/entry.py", "static/index.html", ".env", "matplotlibrc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("STRANGER = 1\n")
    return folder


def test_no_settings_secrets_or_modules_of_the_folder_it_is_started_in_are_read(hostile: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        for folder in (hostile, hostile / "run", tmp_path / "home"):
            _settings(folder, f"http://127.0.0.1:{stranger.getsockname()[1]}")
        with serving(
            ".", environment={"HOME": str(tmp_path / "home")}, folder=hostile, program=("-P", "-c", MAIN)
        ) as started:
            assert "stranger=None" in started.said and f"folder={hostile}" not in started.said
            with urllib.request.urlopen(f"{started.root}/_stcore/host-config", timeout=DEADLINE) as answer:
                assert answer.status == 200
        stranger.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert list(tmp_path.glob("mark-*")) == []


def test_python_started_with_m_takes_no_module_from_the_folder_either(hostile: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ratioscope", "info", "run", "--json"]
    ended = subprocess.run(command, cwd=hostile, capture_output=True, text=True, timeout=DEADLINE, env=os.environ)
    assert ended.returncode == 0 and ended.stdout.startswith("{"), ended.stderr
    assert list(tmp_path.glob("mark-*")) == []


def _settings(folder: Path, stranger: str) -> None:
    """Streamlit's own files, as a stranger would fill them."""
    (folder / ".streamlit").mkdir(parents=True)
    (folder / ".streamlit" / "secrets.toml").write_text('STRANGER = "1"\nBROWSER = "touch mark %s"\n')
    (folder / ".streamlit" / "config.toml").write_text(
        f'[theme]\nbase = "{stranger}/theme.toml"\nfont = "F:{stranger}/font.css"\n[server]\nsslCertFile = "no.pem"\n'
        'sslKeyFile = "no.pem"\nport = 8501\n[logger]\nlevel = "debug"\n[secrets]\nfiles = [".streamlit/secrets.toml"]\n'
    )
