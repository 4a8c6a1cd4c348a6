"""What pages share: made once, bounded in bytes, and gone with the revisions nobody looks at."""

import threading

import plotly.graph_objects as go
import polars as pl
import pytest

from ratioscope.app.dashboard.model.revision_cache import RevisionCache, size_of
from ratioscope.app.pages import running_scripts


def frame(megabytes: int = 1) -> pl.DataFrame:
    return pl.DataFrame({"x": pl.zeros(megabytes << 17, eager=True)})


def test_a_thing_is_made_once_however_many_ask_at_the_same_time() -> None:
    cache, made, together = RevisionCache(), [], threading.Barrier(4)

    def make() -> int:
        made.append(1)
        return 7

    def ask() -> None:
        together.wait()
        assert cache.of(("run", 0, "f", ()), make) == 7

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_work_in_advance_does_not_wait_for_a_page_that_waits_for_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_scripts, "PATIENCE", 30)
    cache, begun, waits = RevisionCache(), threading.Event(), threading.Event()

    def make() -> bool:
        begun.set()
        waits.wait()
        running_scripts.wait_for_pages()
        return True

    def page() -> None:
        with running_scripts.at_work():
            begun.wait()
            waits.set()
            assert cache.of(("run", 0, "f", ()), make) and running_scripts.SCRIPTS
        assert not running_scripts.SCRIPTS

    threads = [threading.Thread(target=work) for work in (page, lambda: cache.of(("run", 0, "f", ()), make))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


def test_what_takes_more_than_the_bound_lets_go_of_the_longest_unused() -> None:
    cache = RevisionCache(most_bytes=3 << 20)
    for number in range(10):
        cache.of(("run", 0, "f", (number,)), frame)
        cache.of(("run", 0, "f", (0,)), frame)  # in use all the time
    assert cache.bytes <= (3 << 20) + (1 << 17)
    made: list[int] = []
    cache.of(("run", 0, "f", (0,)), lambda: made.append(1))
    assert not made


def test_a_growing_run_leaves_its_old_revisions() -> None:
    cache = RevisionCache()
    for revision in range(50):
        for name in "abc":
            cache.of(("run", revision, name, ()), frame)
    assert cache.bytes < 7 << 20
    cache.of(("other", 0, "a", ()), frame)
    assert cache.bytes < 8 << 20


def test_a_thing_larger_than_the_bound_is_given_all_the_same() -> None:
    cache = RevisionCache(most_bytes=1 << 10)
    assert len(cache.of(("run", 0, "f", ()), frame)) == 1 << 17  # type: ignore[arg-type]


def test_figures_are_counted_too() -> None:
    assert size_of((go.Figure(), "words")) > 1 << 20


def test_what_raises_leaves_nothing() -> None:
    cache = RevisionCache()

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.of(("run", 0, "f", ()), fails)
    assert cache.of(("run", 0, "f", ()), lambda: 1) == 1


def test_sizes_are_those_of_the_frames_inside() -> None:
    assert size_of({"a": frame(2), "b": (frame(1),)}) >= 3 << 20
    assert size_of("text") < 1 << 20


def test_what_is_on_show_is_kept_as_long_as_somebody_looks_at_it() -> None:
    cache = RevisionCache()
    cache.of(("run", 0, "f", ()), lambda: "as it was")
    shown = cache.show("run", 0)
    for revision in range(1, 9):
        cache.of(("run", revision, "f", ()), lambda: "newer")
    assert cache.of(("run", 0, "f", ()), lambda: "newer") == "as it was"
    cache.note_late("run", 0)
    del shown
    cache.of(("run", 9, "f", ()), lambda: "newer")
    assert cache.of(("run", 0, "f", ()), lambda: "newer") == "newer" and cache.late == set()
