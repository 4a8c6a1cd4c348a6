"""The chaos suite, small: every scenario of tests/chaos at a size for every change. `make chaos` runs them at full size."""

from pathlib import Path

import pytest
from chaos.flips import flipped
from chaos.kills import killed
from chaos.truncation import truncated

SEED = 5


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_what_was_acknowledged_survives_a_kill_at_any_instant_and_nothing_half_is_read(tmp_path: Path) -> None:
    figures = killed(tmp_path, kills=20, seed=SEED, is_synced=False)
    assert not figures.wrong
    assert figures.counts["kills"] == 20 and figures.counts["acknowledged"] and figures.counts["left_uncommitted"]


def test_a_flipped_bit_anywhere_gives_equal_data_or_is_named(tmp_path: Path) -> None:
    figures = flipped(tmp_path, flips=60, seed=SEED)
    assert not figures.wrong
    assert figures.counts["named"] > 40


def test_a_commit_log_cut_at_any_length_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    figures = truncated(tmp_path, seed=SEED, stride=500)
    assert not figures.wrong
    assert figures.counts["lengths"] > 2000
