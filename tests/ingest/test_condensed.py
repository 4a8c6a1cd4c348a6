"""Short forms of commit logs: a reader that takes them reads the same run, and goes back to the logs wherever these say more."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs, run_folders
from support.flipped import flip_a_bit
from support.run_folders import FakeWriter, by_step
from support.sizes import examples
from support.upkeep import demand_equal, killed_at, told

from ratioscope import layout, open_run
from ratioscope.app.cli import OK, main
from ratioscope.app.upkeep.maintenance import compact, prune
from ratioscope.ingest.commits import history_lines
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.commits.commit_log import Link
from ratioscope.ingest.commits.entries import Segment, TokenFile, committed
from ratioscope.ingest.commits.short_form import OmittedFiles, ShortForm, short_form_lines, short_form_of_lines
from ratioscope.ingest.commits.visible_files import leftovers, uncommitted_files
from ratioscope.ingest.files.parquet_files import ParquetFiles
from ratioscope.ingest.maintenance.verify import verify

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def written(root: Path) -> Path:
    """Two attempts, of which the second writes the last step again and was killed; events, drops, a file no commit names."""
    steps = by_step(SMALL)
    for attempt, own in ((0, steps), (1, steps[2:])):
        for rank in range(2):
            writer = FakeWriter(root, f"r{rank:05d}-gone-{attempt}-aaaaaa", rank, attempt, segment_steps=2).open()
            for rows in own:
                writer.step(rows.take(list(range(rank, len(rows), 2))))
            writer.event("weight_sync", 14).drop(16, 2, 30, "queue full")
            if not attempt:
                writer.close()
    return root


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written(tmp_path_factory.mktemp("condensed") / "run")
    compact(root)
    return root


@pytest.fixture
def root(compacted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compacted, tmp_path / "run"))


def catalogs(root: Path) -> tuple[Catalog, Catalog]:
    """The run as a reader takes it, and as its logs say."""
    short, whole = Catalog(root, ParquetFiles(root), use_short_forms=True), Catalog(root, ParquetFiles(root))
    short.refresh()
    whole.refresh()
    return short, whole


def left(catalog: Catalog) -> list[int]:
    return [history.omitted.files for history in catalog.writers]


def demand_alike(root: Path) -> Catalog:
    """Whatever is asked of a run, its short forms answer as its logs do; the catalog that read them."""
    short, whole = catalogs(root)
    assert short.token_files() == whole.token_files() and short.segments() == whole.segments()
    assert short.steps_of_attempts() == whole.steps_of_attempts() and short.shadows() == whole.shadows()
    assert (short.set_aside, short.notes, uncommitted_files(short)) == (
        whole.set_aside,
        whole.notes,
        uncommitted_files(whole),
    )
    assert leftovers(short) == leftovers(whole)
    run, other = open_run(root), open_run(root)
    other._catalog.use_short_forms = False
    other._catalog.histories.clear()
    other._catalog.refresh()
    for name in ("conservation", "digest", "steps", "attempts", "unsettled", "dropped"):
        assert getattr(run, name) == getattr(other, name), name
    for name in ("writers", "events", "drops", "times"):
        assert getattr(run, name).equals(getattr(other, name)), name
    return short


def test_a_condensed_run_reads_the_same_without_its_lines(root: Path) -> None:
    assert all(left(demand_alike(root)))
    prune(root, yes=True)
    assert all(left(demand_alike(root)))


def test_what_a_run_tells_is_the_same_before_and_after(tmp_path: Path) -> None:
    root = written(tmp_path / "run")
    before = told(root)
    assert compact(root).condensed == 4
    prune(root, yes=True)
    demand_equal(told(root), before)
    assert not compact(root).condensed


def test_a_log_in_short_is_not_parsed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    def noted(entry: Mapping[str, Any], writer: str, attempt: int) -> TokenFile | Segment:
        taken.append(writer)
        return committed(entry, writer, attempt)

    monkeypatch.setattr(history_lines, "committed", noted)
    open_run(root)
    assert taken and all(writer.startswith("offline-") for writer in taken)


def test_verify_says_that_the_short_forms_agree_with_the_logs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(root, deep=True).condensed == 4
    assert main(["verify", str(root)]) == OK
    assert "4 of them also in a short form, which agrees with the log" in capsys.readouterr().out


def test_a_short_form_that_says_otherwise_is_found_and_condensed_anew(root: Path) -> None:
    wrong = [entry for entry in offline_lines(root) if entry["kind"] == layout.CONDENSED][-1]
    forger = FakeWriter(root, layout.offline_writer("z"), clock=run_folders.TIME + 1e8)
    forger.say(kind=layout.OFFLINE, verb="compact").say(**{**wrong, "rows": wrong["rows"] + 1})
    (trouble,) = verify(root).troubles
    assert wrong["log"] in trouble.found and "`ratioscope compact RUN`" in trouble.advice
    assert not compact(root).condensed  # the true one is on record


@pytest.mark.parametrize(
    "wrong",
    [
        {"parts": 1 << 62, "part": (1 << 62) - 1},
        {"parts": "many"},
        {"bytes": -1},
        {"bytes": 1 << 62},
        {"sha256": 7},
        {"entries": {}},
        {"entries": [7]},
        {"times": [[1, 2, 3]]},
        {"times": [[None, 5.0]]},
        {"times": [[1, 1e400]]},
        {"newest": [1, 2]},
        {"newest": ["a", "b", "c"]},
        {"files": None},
        {"log": "commits/../../etc/passwd"},
    ],
    ids=str,
)
def test_a_short_form_that_cannot_be_is_not_believed(root: Path, wrong: dict[str, Any]) -> None:
    true = [entry for entry in offline_lines(root) if entry["kind"] == layout.CONDENSED][-1]
    forger = FakeWriter(root, layout.offline_writer("z"), clock=run_folders.TIME + 1e8)
    forger.say(kind=layout.OFFLINE, verb="compact").say(**{**true, **wrong})
    short, whole = catalogs(root)
    assert left(short) == left(catalogs(root)[0]) and all(left(short))
    assert short.token_files() == whole.token_files() and verify(root).condensed >= 4


@examples(40)
@given(st.data())
def test_whatever_byte_of_a_log_is_altered_its_short_form_is_not_believed(
    compacted: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flip") / "run"
    shutil.copytree(compacted, root)
    log = sorted(root.glob("commits/r*"))[0]
    flip_a_bit(log, data)
    assert left(catalogs(root)[0])[0] == 0


@examples(40)
@given(st.data())
def test_whatever_length_the_verbs_log_is_cut_to_a_reader_reads_what_the_logs_say(
    compacted: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("cut") / "run"
    shutil.copytree(compacted, root)
    (log,) = root.glob("commits/offline-*")
    log.write_bytes(log.read_bytes()[: data.draw(st.integers(0, log.stat().st_size))])
    demand_alike(root)


@pytest.mark.parametrize("pattern", ["tokens/*/offline-*", "statistics/offline-*"])
def test_a_merged_file_that_is_gone_or_damaged_brings_the_logs_back(root: Path, pattern: str) -> None:
    run = open_run(root)
    victim = sorted(root.glob(pattern))[0]
    victim.write_bytes(b"no longer")
    run._catalog.quarantine(victim.relative_to(root).as_posix(), "damaged")
    assert left(run._catalog).count(0) == 2  # the two writers whose files it stood for
    assert {file.writer for file in run._catalog.token_files()} | {s.writer for s in run._catalog.segments()} > {
        "r00000-gone-0-aaaaaa",
        "r00001-gone-0-aaaaaa",
    }
    victim.unlink()
    assert left(demand_alike(root)).count(0) == 2


def test_lines_that_follow_are_read_on(root: Path) -> None:
    writer = FakeWriter(root, "r00000-gone-1-aaaaaa", 0, 1, clock=run_folders.TIME + 100)
    writer.segment = 5
    writer.step(by_step(SMALL)[0])
    assert all(left(demand_alike(root)))
    assert verify(root).condensed == 4


def test_killed_while_it_condenses_the_next_call_ends_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path
) -> None:
    (log,) = root.glob("commits/offline-*")
    uncondensed = b"".join(line for line in log.read_bytes().splitlines(keepends=True) if b'"condensed"' not in line)
    log.write_bytes(uncondensed)
    digest, call, made = open_run(root).digest, 0, [0]
    while made[0] >= call:
        call += 1
        killed = tmp_path / "killed"
        shutil.copytree(root, killed)
        with killed_at(call, monkeypatch) as made:
            compact(killed)
        demand_alike(killed)
        assert open_run(killed).digest == digest
        compact(killed)
        assert all(left(catalogs(killed)[0])) and not compact(killed).condensed
        shutil.rmtree(killed)
    assert call > 8


@given(
    st.lists(st.integers(0, 9), max_size=700),
    st.dictionaries(st.integers(0, 1 << 40), st.floats(0, 2e9), max_size=60),
    st.none() | st.tuples(*[st.integers(0, 1 << 40)] * 3),
)
def test_a_short_form_is_what_its_lines_say_and_nothing_where_one_is_missing(
    numbers: list[int], times: dict[int, float], newest: tuple[int, int, int] | None
) -> None:
    entries = tuple({"kind": "event", "step": number} for number in numbers)
    form = ShortForm(
        "commits/r.jsonl", 7, "ab", entries, times, OmittedFiles(3, 2, 1, newest, None, 5.0), Link(7, "ab")
    )
    said = [layout.decode_line(layout.encode_line(line)) or {} for line in short_form_lines(form)]
    assert short_form_of_lines(said) == form
    assert len(said) < 2 or short_form_of_lines(said[:-1]) is None


def offline_lines(root: Path) -> list[dict[str, Any]]:
    """What a verb's log says, without the place of each line in it."""
    (log,) = root.glob("commits/offline-*")
    found = [entry for line in log.read_bytes().splitlines() if (entry := layout.decode_line(line)) is not None]
    return [{name: value for name, value in entry.items() if name not in ("line", "chain")} for entry in found]
