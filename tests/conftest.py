"""What every test shares: in CI a skipped test is a failed one, so that a missing part cannot go unseen."""

import os
from collections.abc import Generator

import pytest

from ratioscope.collectors.environment import VARIABLES

MAY_SKIP = ("upstream", "device")
"""Markers of tests that may skip even in CI: they need a package or a device that CI does not have."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    wanted = "RATIOSCOPE_NO_SKIP" in os.environ and not any(item.get_closest_marker(name) for name in MAY_SKIP)
    if wanted and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may skip: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _of_no_recorded_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test before this one, or the shell, left in the environment makes no test a process of a recorded job."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
