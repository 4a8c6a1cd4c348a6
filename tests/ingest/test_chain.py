"""Nothing of the record vanishes unseen: lines, logs and files that are removed, moved or replaced are told of."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sizes import examples
from support.written_run import commit_lines

from ratioscope import Collector, layout, open_run
from ratioscope.app.cli import OK, main
from ratioscope.app.upkeep.maintenance import compact, prune, repair
from ratioscope.ingest.commits.commit_log import Chain
from ratioscope.ingest.maintenance.pruning import Old
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.metrics.engines.arrow_columns import pc

STEPS, ROWS = 6, 5


def write(root: Path, *, rank: int = 0, steps: int = STEPS, close: bool = True) -> None:
    """One rank, which flushes every step."""
    collector = Collector(root, rank=rank, attempt=0)
    for step in range(steps):
        random = np.random.default_rng([rank, step])
        rollout = -random.exponential(size=(ROWS, 4)).astype(np.float32)
        old = rollout + random.normal(0, 0.1, rollout.shape).astype(np.float32)
        collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
        assert collector.flush()
    if close:
        assert collector.close()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("chain") / "run"
    for rank in range(2):
        write(root, rank=rank)
    return root


@pytest.fixture
def root(two_ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(two_ranks, tmp_path / "run"))


def log_of(root: Path, rank: int) -> Path:
    return next((root / "commits").glob(f"r{rank:05d}-*"))


def lines_of(log: Path) -> list[bytes]:
    return log.read_bytes().splitlines(keepends=True)


def told(root: Path) -> str:
    """All that a reader and `verify` say of the run."""
    run = open_run(root)
    run.metrics()
    named = [*run.notes, *(str(item) for item in run.quarantined)]
    return " | ".join(named + [f"{trouble.file}: {trouble.found}" for trouble in verify(root).troubles])


def test_a_run_that_nobody_touched_holds_together(root: Path) -> None:
    found = verify(root, deep=True)
    assert found.sound and not found.unnumbered and not open_run(root).notes
    run_id = json.loads((root / "run.json").read_text())["id"]
    openings = commit_lines(root, "open")
    assert {line["run"] for line in openings} == {run_id}
    assert sorted(len(line["beside"]) for line in openings) == [0, 1]
    for rank in range(2):
        entries = [layout.decode_line(line) for line in lines_of(log_of(root, rank))]
        assert [entry and entry["line"] for entry in entries] == list(range(len(entries)))


@examples(60)
@given(st.lists(st.integers(0, 99), min_size=2, max_size=8), st.data())
def test_lines_that_are_removed_repeated_moved_or_replaced_break_the_chain(
    words: list[int], data: st.DataObject
) -> None:
    lines, chain = list[bytes](), ""
    for number, word in enumerate(words):
        line, chain = layout.chained_line({"kind": "event", "word": word}, number, chain)
        lines.append(line.rstrip(b"\n"))
    other, _ = layout.chained_line({"kind": "event", "word": -1}, 0, "")
    place = data.draw(st.integers(0, len(lines) - 2))
    act = data.draw(st.sampled_from(["remove", "repeat", "swap", "replace", "renumber", "nothing", "retell"]))
    changed = list(lines)
    match act:
        case "remove":
            del changed[place]
        case "repeat":
            changed.insert(place, lines[place])
        case "swap":
            changed[place], changed[place + 1] = lines[place + 1], lines[place]
        case "replace":
            changed[place] = layout.chained_line({"kind": "event", "word": -1}, place, "ab" * 16)[0].rstrip(b"\n")
        case "renumber":
            changed[place] = other.rstrip(b"\n") if place else changed[place + 1]
        case "retell":  # the same in another form: a line is what it says
            entry = layout.decode_line(lines[place])
            assert entry is not None
            changed[place] = json.dumps({**dict(reversed(entry.items())), "crc32": layout.checksum(entry)}).encode()
    found = Chain()
    for line in changed:
        found.take(line)
    assert bool(found.breaks) is (act not in ("nothing", "retell")), (act, place, found.descriptions)


def test_a_log_that_is_emptied_is_told_of_and_its_files_are_read(root: Path) -> None:
    whole = open_run(root).metrics()
    log_of(root, 1).write_bytes(b"")
    run = open_run(root)
    assert run.metrics()["mismatch/sequences"].to_list() == whole["mismatch/sequences"].to_list()
    assert any("emptied" in note for note in run.notes)
    assert [trouble for trouble in verify(root).troubles if trouble.file == f"commits/{log_of(root, 1).name}"]


def test_a_log_that_is_gone_with_its_files_is_missed_by_the_others(root: Path) -> None:
    gone = log_of(root, 0).stem  # rank 1 opened, and closed, beside it
    for path in [log_of(root, 0), *root.rglob(f"{gone}.*.parquet")]:
        path.unlink()
    assert f"the log of {gone} is missing" in told(root)


def test_the_log_of_another_run_is_told_of(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "other", rank=2)
    shutil.copytree(tmp_path / "other", root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("run.json"))
    assert "is of another run" in told(root)


def test_a_line_that_is_removed_together_with_its_file_is_told_of(root: Path) -> None:
    log = log_of(root, 0)
    entries = [layout.decode_line(line) for line in lines_of(log)]
    place = next(n for n, entry in enumerate(entries) if entry and str(entry.get("file", "")).startswith("tokens/"))
    entry = entries[place]
    assert entry is not None
    (root / entry["file"]).unlink()
    log.write_bytes(b"".join(line for number, line in enumerate(lines_of(log)) if number != place))
    assert f"line {place} is missing" in " ".join(open_run(root).notes)
    assert any(f"line {place} is missing" in trouble.found for trouble in verify(root).troubles)


def test_totals_that_do_not_agree_with_the_rows_are_told_of_where_lines_have_no_numbers(root: Path) -> None:
    log = log_of(root, 0)
    entries = [entry for line in lines_of(log) if (entry := layout.decode_line(line)) is not None]
    kept = [e for e in entries if not (str(e.get("file", "")).startswith("tokens/") and e["step"] == 2)]
    bare = [{name: value for name, value in e.items() if name not in ("line", "chain")} for e in kept]
    log.write_bytes(b"".join(map(layout.encode_line, bare)))
    for file in root.glob(f"tokens/step=000000002/{log.stem}*"):
        file.unlink()
    assert f"closes with {STEPS * ROWS} sequences written, its commits name {(STEPS - 1) * ROWS}" in told(root)


def rewritten(segment: Path) -> None:
    """Other numbers, in a file of another size that is a sound segment of the same steps."""
    table = pq.read_table(segment)
    numbers = next(
        n for n in table.column_names if n.startswith("sum_") and pa.types.is_floating(table.schema.field(n).type)
    )
    place = table.schema.get_field_index(numbers)
    table = table.set_column(place, table.schema.field(place), pc.multiply(table[numbers], pa.scalar(3.0)))
    target = io.BytesIO()
    pq.write_table(table, target, compression="none", write_page_checksum=True)
    segment.write_bytes(target.getvalue())


@pytest.mark.parametrize("pruned", [False, True], ids=["with rows", "rows pruned"])
def test_a_segment_that_was_rewritten_is_set_aside_and_told_of(root: Path, pruned: bool) -> None:
    if pruned:
        prune(root, Old(keep_steps=0), yes=True)
    whole = open_run(root).metrics()
    rewritten(segment := next(root.glob("statistics/r00000-*")))
    run = open_run(root)
    shown = run.metrics()
    assert [item.path for item in run.quarantined] == [f"statistics/{segment.name}"]
    assert f"statistics/{segment.name}" in [trouble.file for trouble in verify(root).troubles]
    assert pruned or np.allclose(shown["mismatch/kl_k3"].to_list(), whole["mismatch/kl_k3"].to_list(), rtol=1e-9)


def test_a_segment_that_was_replaced_just_before_its_writer_died_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    write(root, close=False)
    log = next((root / "commits").iterdir())
    kinds = [(layout.decode_line(line) or {}).get("kind") for line in lines_of(log)]
    last = len(kinds) - 1 - kinds[::-1].index("announced")
    log.write_bytes(b"".join(lines_of(log)[: last + 1]))  # as if it had been killed between the file and its commit
    run = open_run(root)
    assert run.metrics()["step"].to_list() == list(range(STEPS - 1)) and not run.quarantined
    assert not [trouble for trouble in verify(root).troubles if trouble.file.startswith("statistics/")]
    rewritten(next(root.glob("statistics/*")))
    assert "statistics/" in told(root) and "its commit states" in told(root)


def test_a_reader_whose_last_look_at_the_log_is_old_reads_the_newer_segment(tmp_path: Path) -> None:
    root = tmp_path / "run"
    with Collector(root) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
        assert collector.flush()
        run = open_run(root)
        for step in (1, 2):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
            assert collector.flush()
        assert run.metrics()["step"].to_list() == [0] and not run.quarantined
        assert run.refresh() and run.metrics()["step"].to_list() == [0, 1, 2] and not run.quarantined


def test_a_repair_of_a_broken_log_settles_it(root: Path) -> None:
    log = log_of(root, 0)
    entries = [layout.decode_line(line) for line in lines_of(log)]
    place = next(n for n, entry in enumerate(entries) if entry and str(entry.get("file", "")).startswith("tokens/"))
    log.write_bytes(b"".join(line for number, line in enumerate(lines_of(log)) if number != place))
    assert not verify(root).sound
    whole = len(open_run(root).sequences())
    repair(root, dry_run=False, writers_ended=True)
    assert verify(root).sound and len(open_run(root).sequences()) == whole == 2 * STEPS * ROWS


def test_a_log_that_was_condensed_is_still_checked_behind_its_short_form(root: Path) -> None:
    compact(root)
    assert verify(root).sound and verify(root).condensed == 2
    log = log_of(root, 0)
    lines = lines_of(log)
    log.write_bytes(b"".join([*lines, *lines[3:4]]))
    assert "stands again" in told(root)


def test_runs_of_before_numbered_lines_read_as_they_did_and_verify_says_so(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = open_run(root)
    metrics, notes = clean.metrics(), clean.notes
    older(root)
    run = open_run(root)
    assert run.metrics().equals(metrics) and run.notes == notes
    assert verify(root).sound and verify(root).unnumbered == 2
    assert main(["verify", str(root)]) == OK and "2 of 2 commit logs predate numbered lines" in capsys.readouterr().out


def older(root: Path) -> None:
    """The run as a ratioscope of before wrote it."""
    for log in (root / "commits").iterdir():
        entries = [entry for line in lines_of(log) if (entry := layout.decode_line(line)) is not None]
        bare = [{n: v for n, v in e.items() if n not in ("line", "chain", "run", "beside")} for e in entries]
        log.write_bytes(b"".join(layout.encode_line(e) for e in bare if e["kind"] != "announced"))
    info = json.loads((root / "run.json").read_text())
    del info["id"], info["crc32"]
    (root / "run.json").write_text(json.dumps(info))
