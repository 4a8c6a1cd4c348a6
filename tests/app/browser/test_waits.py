"""A wait of the tests ends: with what was awaited, or with an error that names it."""

import subprocess
import sys

import pytest
from support.browser import Chromium, Opened, chromium
from support.serving import killed_after


@pytest.mark.skipif(chromium() is None, reason="no chromium: install it with the system's packages")
def test_a_wait_in_vain_says_what_was_awaited_and_what_is_there(browser: Chromium) -> None:
    opened = Opened(browser.tab())
    opened.page.set_content("<p>a chart that waits</p><p data-waits></p>")
    opened.page.set_default_timeout(100)
    with pytest.raises(AssertionError, match=r"its script has run, all is drawn .* 'waiting': 1"):
        opened.settled()
    with pytest.raises(AssertionError, match="the page Record"):
        opened.awaits("the page Record", "document.title === given", "Record")


def test_a_process_that_says_nothing_is_not_waited_for_for_ever() -> None:
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with killed_after(0.05, process):
            assert process.stdout.readline() == ""
    assert process.returncode == -9
