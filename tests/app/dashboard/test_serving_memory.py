"""What the server does about memory: few heaps for many threads, and nothing that stays for good in a garbage collection."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from ratioscope.app.dashboard.server.memory import leave_out_of_collections

HEAPS = """
import ctypes, sys, threading
from ratioscope.app.dashboard.server.memory import share_heaps
if sys.argv[1] == "shared":
    share_heaps()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
together = threading.Barrier(12)
heaps = set()
def allocate():
    together.wait()
    for _ in range(1000):
        heaps.add(malloc(4000) >> 26)
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(heaps))
"""
"""Twelve threads allocate at the same time; glibc's heaps lie 64 MB apart."""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="told by Linux' own numbers")
def test_threads_share_a_few_heaps() -> None:
    found = {
        how: int(subprocess.run([sys.executable, "-c", HEAPS, how], capture_output=True, check=True, text=True).stdout)
        for how in ("own", "shared")
    }
    if found["own"] < 8:
        pytest.skip(f"the C library took {found['own']} heaps for 12 threads by itself")
    assert found["shared"] <= 4


def test_what_stays_for_good_is_left_out_of_collections() -> None:
    kept: list[object] = [[]]
    gc.unfreeze()  # what conftest.py left out
    leave_out_of_collections()  # and it stays so, as the rest of the tests have it
    assert gc.get_freeze_count() > 10_000
    assert not any(found is kept for found in gc.get_objects())
