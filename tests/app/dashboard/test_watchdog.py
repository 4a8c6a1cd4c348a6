"""A server that will never answer again is ended and says so; one that answers, or that its reader has stopped, is left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE

SERVER = """
import asyncio, ctypes, threading
from ratioscope.app.pages.running_scripts import at_work
from ratioscope.app.dashboard.server import watchdog
watchdog.SILENT, watchdog.EVERY = 1.0, 0.1
def stuck():  # holds Python's lock and waits, as a thread does that waits for a pool whose threads wait for the lock
    ctypes.PyDLL(None).pause()
def waiting():
    with at_work():
        ctypes.CDLL(None).pause()
async def main():
    async with watchdog.watched():
        await asyncio.sleep(0.3)
        print("ready", flush=True)
        {what}
        print("ended", flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("what", "ends"),
    [("threading.Thread(target=stuck).start(); await asyncio.sleep(30)", False), ("await asyncio.sleep(2.5)", True)],
    ids=["stuck", "idle"],
)
def test_a_server_that_is_stuck_is_ended_with_words_and_another_is_not(what: str, ends: bool, tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", SERVER.replace("{what}", what)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    kept = tmp_path / "ratioscope" / "dashboard-hang.txt"
    if ends:
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ready\nended\n", "") and not kept.exists()
        return
    assert ended.returncode == -signal.SIGKILL and ended.stdout == "ready\n"
    assert "start it again with the same command" in ended.stderr and str(kept) in ended.stderr
    assert ended.stderr.strip().count("\n") == 0 and "in stuck" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_of_a_page_that_waits_for_what_does_not_come_it_is_said_once(tmp_path: Path) -> None:
    what = "threading.Thread(target=waiting, daemon=True).start(); await asyncio.sleep(5)"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", SERVER.replace("{what}", what)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert (ended.returncode, ended.stdout) == (0, "ready\nended\n")
    assert ended.stderr.count("a page has not come for") == 1
    assert "in waiting" in (tmp_path / "ratioscope" / "dashboard-hang.txt").read_text()


def test_a_server_that_its_reader_has_stopped_goes_on_when_it_is_let_go(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", SERVER.replace("{what}", "await asyncio.sleep(2.5)")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        server.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(2.5)
        server.send_signal(signal.SIGCONT)
        assert server.communicate(timeout=PATIENCE) == ("ended\n", "")
