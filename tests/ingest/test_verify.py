"""`ratioscope verify`: a sound run is called sound, and every kind of damage is named with its file and what to do."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs, run_folders
from support.flipped import flip_a_bit
from support.recorded import recorded
from support.run_folders import FakeWriter
from support.sizes import examples

from ratioscope import layout, open_run
from ratioscope.app.cli import FINDINGS, OK, UNREADABLE, main
from ratioscope.app.cli.commands.verify import committed_files
from ratioscope.app.upkeep.maintenance import repair
from ratioscope.ingest.maintenance.verify import Verification, verify
from ratioscope.metrics.definitions.registry import LATER
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.record import SCHEMA_VERSION

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_folders.write_run(tmp_path_factory.mktemp("sound") / "run", SMALL, segment_steps=1)


@pytest.fixture
def root(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "run"))


def files_of(found: Verification) -> list[str]:
    return [trouble.file for trouble in found.troubles]


def first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


def test_a_run_that_the_collector_wrote_is_sound_and_its_statistics_are_those_of_its_rows(tmp_path: Path) -> None:
    root = recorded("trl_vllm_stale4", tmp_path / "run", steps=4)
    found = verify(root, deep=True)
    assert found.sound and (found.logs, found.token_files, found.segments) == (1, 4, 1)
    assert found.compared == 4 and not found.alone
    assert found.bytes == sum(path.stat().st_size for path in root.rglob("*.parquet"))
    assert found.lines == sum(len(path.read_bytes().splitlines()) for path in root.glob("commits/*"))


@examples(30)
@given(st.data())
def test_every_flipped_bit_of_a_committed_file_is_found(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flip") / "run"
    shutil.copytree(sound, root)
    victim = data.draw(st.sampled_from(sorted(root.rglob("*.parquet"))))
    flip_a_bit(victim, data)
    found = verify(root)
    assert files_of(found) == [victim.relative_to(root).as_posix()]
    assert "sha256" in found.troubles[0].found and found.troubles[0].advice


@examples(30)
@given(st.data())
def test_every_altered_byte_of_a_log_is_found(
    sound: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flip") / "run"
    shutil.copytree(sound, root)
    log = first(root, "commits/*")
    flip_a_bit(log, data)
    assert log.relative_to(root).as_posix() in files_of(verify(root))


DAMAGE: dict[str, tuple[Callable[[Path], Path], str]] = {}


def damage(reason: str) -> Callable[[Callable[[Path], Path]], Callable[[Path], Path]]:
    """Registers a damage that returns the path that must be named, for this reason."""

    def kept(act: Callable[[Path], Path]) -> Callable[[Path], Path]:
        DAMAGE[act.__name__] = act, reason
        return act

    return kept


@damage("bytes, its commit states")
def a_truncated_file(root: Path) -> Path:
    file = first(root, "tokens/*/*")
    file.write_bytes(file.read_bytes()[:-10])
    return file


@damage("it is not there")
def a_missing_file(root: Path) -> Path:
    file = first(root, "tokens/*/*")
    file.unlink()
    return file


@damage("a symbolic link")
def a_linked_file(root: Path) -> Path:
    file = first(root, "statistics/*")
    other = file.rename(root / "elsewhere")
    file.symlink_to(other)
    return file


@damage("wanted a name that ends in .parquet")
def a_foreign_file(root: Path) -> Path:
    file = first(root, "tokens/*") / "notes.txt"
    file.write_text("hello")
    return file


@damage("bytes of an unfinished line")
def a_torn_log(root: Path) -> Path:
    log = first(root, "commits/*")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1])[:-5])
    return log


@damage("no commit names it")
def a_file_without_a_commit(root: Path) -> Path:
    writer = FakeWriter(root, "r00001-host-1-bbbbbb", 1).open()
    return root / writer.step(run_folders.by_step(SMALL)[0], commit=False, with_statistics=False)


@damage("cannot be read")
def a_broken_run_file(root: Path) -> Path:
    (root / layout.RUN_FILE).write_text("{")
    return root / layout.RUN_FILE


@damage("it is committed as step")
def a_commit_of_another_step(root: Path) -> Path:
    file = first(root, "tokens/*/*")
    entry = run_folders.committed(file.relative_to(root), file.read_bytes())
    FakeWriter(root).say(**{**entry, **run_folders.token_facts(SMALL), "step": 7})
    return file


@damage("this ratioscope reads up to")
def a_file_of_a_newer_schema(root: Path) -> Path:
    file = first(root, "tokens/*/*")
    entry = run_folders.committed(file.relative_to(root), file.read_bytes())
    FakeWriter(root).say(**{**entry, **run_folders.token_facts(SMALL), "schema": SCHEMA_VERSION + 1})
    return file


def test_statistics_of_an_older_version_are_read_without_the_sums_that_it_did_not_have(root: Path) -> None:
    rows = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)
    assert (
        rows["advantages"].null_count == 0
    )  # so that a reader with the rows would find other sums than those on record
    for file in sorted(root.glob("statistics/*")):
        recommitted(root, pq.read_table(file).drop([*LATER]), file)
    found, run = verify(root, deep=True), open_run(root)
    assert found.sound and found.compared == 3
    known = run.metrics(by=(), names=("kl_k3", "advantage_excess"))
    assert run.quarantined == () and known["mismatch/kl_k3"][0] > 0
    assert known["mismatch/advantage_excess"].to_list() == [None]


@damage("another version wrote it")
def a_segment_of_another_version(root: Path) -> Path:
    file = first(root, "statistics/*")
    recommitted(root, pq.read_table(file).drop(["tokens"]), file)
    return file


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_with_its_file_its_reason_and_what_to_do(root: Path, name: str) -> None:
    act, reason = DAMAGE[name]
    victim = act(root).relative_to(root).as_posix()
    trouble = next(trouble for trouble in verify(root).troubles if trouble.file == victim)
    assert reason in trouble.found and trouble.wanted and trouble.advice


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_said_of_repair_is_what_repair_does(root: Path, name: str) -> None:
    victim = DAMAGE[name][0](root)
    advice = {trouble.file: trouble.advice for trouble in verify(root).troubles}[victim.relative_to(root).as_posix()]
    was_there = os.path.lexists(victim)
    repair(root, dry_run=False, writers_ended=True)
    assert os.path.lexists(victim) is (was_there and "moves it" not in advice)
    left = [trouble.advice for trouble in verify(root).troubles if root / trouble.file == victim]
    assert all("`ratioscope repair RUN`" not in again for again in left)


def recommitted(root: Path, table: pa.Table, path: Path) -> None:
    """The file replaced by another one that is just as sound, and committed so."""
    data = run_folders.parquet_bytes(table)
    path.write_bytes(data)
    steps = pc.unique(table["step"]).to_pylist()
    FakeWriter(root).say(**run_folders.committed(path.relative_to(root), data), steps=steps)


def test_statistics_that_are_not_those_of_the_rows_are_found_by_the_deep_look_alone(root: Path) -> None:
    segment = first(root, "statistics/*")
    table = pq.read_table(segment)
    place = table.schema.get_field_index("sum_x") if "sum_x" in table.column_names else 6
    name = table.schema.field(place).name
    values = [None if value is None else value * 1.01 + 1 for value in table[name].to_pylist()]
    recommitted(root, table.set_column(place, table.schema.field(place), pa.array(values, pa.float64())), segment)
    assert verify(root).sound
    found = verify(root, deep=True)
    assert files_of(found) == [segment.relative_to(root).as_posix()] and name in found.troubles[0].found
    assert found.compared == 3


@pytest.mark.parametrize("name", ["token_counts", "geometric_log_sum_weights", "sequence_tail"])
def test_distributions_and_tails_that_are_not_those_of_the_rows_are_found_by_the_deep_look(
    root: Path, name: str
) -> None:
    segment = first(root, "statistics/*")
    table = pq.read_table(segment)
    field = table.schema.field(name)
    values = [None if row is None else [value + 1 for value in row] for row in table[name].to_pylist()]
    place = table.schema.get_field_index(name)
    recommitted(root, table.set_column(place, field, pa.array(values, field.type)), segment)
    assert verify(root).sound
    (trouble,) = verify(root, deep=True).troubles
    assert name in trouble.found and "its rows give" in trouble.found and "within 1e-09" in trouble.wanted


def test_rows_whose_lists_disagree_are_found_by_the_deep_look(root: Path) -> None:
    file = first(root, "tokens/*/*")
    table = pq.read_table(file, partitioning=None)
    short = [None if row is None else row[:-1] for row in table["old_logprobs"].to_pylist()]
    changed = run_folders.replaced(table, "old_logprobs", pa.array(short, table.schema.field("old_logprobs").type))
    data = run_folders.parquet_bytes(changed)
    file.write_bytes(data)
    FakeWriter(root).say(**run_folders.committed(file.relative_to(root), data), **run_folders.token_facts(changed))
    assert verify(root).sound
    assert any("old_logprobs" in trouble.found for trouble in verify(root, deep=True).troubles)


def test_steps_whose_rows_cannot_tell_are_counted_with_the_reason(tmp_path: Path) -> None:
    root = tmp_path / "run"
    sampler, trainer = (
        FakeWriter(root, "r00000-host-1-aaaaaa").open(),
        FakeWriter(root, "r00001-host-1-bbbbbb", 1).open(),
    )
    one, two, three = run_folders.by_step(SMALL)
    sampler.step(run_folders.only(one, ("rollout",)))
    trainer.step(run_folders.only(one, ("old",)))
    sampler.step(two)
    sampler.drop(two["step"][0].as_py(), 1, 10, "queue full")
    sampler.step(three, with_statistics=False)
    found = verify(root, deep=True)
    assert found.compared == 0 and sum(found.alone.values()) == 3
    assert set(found.alone) == {
        "different processes recorded their two sides",
        "rows were dropped",
        "no statistics of them are on record",
    }


def test_the_command_says_it_in_lines_and_in_json_and_by_its_exit_code(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(root), "--deep"]) == OK and ": sound" in capsys.readouterr().out
    victim = a_truncated_file(root).relative_to(root).as_posix()
    assert main(["verify", str(root)]) == FINDINGS
    out = capsys.readouterr().out
    assert "1 finding" in out and victim in out and "do      its statistics stand" in out
    assert main(["verify", str(root), "--json"]) == FINDINGS
    plain = json.loads(capsys.readouterr().out)
    assert plain["sound"] is False and plain["troubles"][0]["file"] == victim and plain["token_files"] == 2
    assert main(["verify", str(root / "absent")]) == UNREADABLE


def test_what_is_counted_once_is_said_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folders.write_run(tmp_path / "run", run_folders.few(SMALL, steps=1, rows=2))
    assert main(["verify", str(tmp_path / "run"), "--deep"]) == OK
    out = capsys.readouterr().out
    assert "1 commit log of 4 lines; 1 token file and 1 statistics segment are as committed (2 rows" in out
    assert "the statistics of 1 step were recomputed" in out


@pytest.mark.parametrize(
    ("token_files", "segments", "words"),
    [
        (0, 0, "no token file or statistics segment is committed"),
        (1, 0, "1 token file is as committed"),
        (0, 1, "1 statistics segment is as committed"),
        (0, 2, "2 statistics segments are as committed"),
        (2, 1, "2 token files and 1 statistics segment are as committed"),
    ],
)
def test_only_kinds_of_files_that_the_run_has_are_named(token_files: int, segments: int, words: str) -> None:
    found = Verification(deep=False, token_files=token_files, segments=segments)
    assert committed_files(found) == words


@pytest.mark.parametrize("with_bounds", [True, False])
def test_rows_of_another_step_are_found_by_the_footer_or_where_it_does_not_tell_by_the_rows(
    root: Path, with_bounds: bool
) -> None:
    file = first(root, "tokens/*/*")
    table = pq.read_table(file, partitioning=None)
    other = run_folders.replaced(table, "step", pa.array([7] * len(table), pa.int64()))
    pq.write_table(other, file, write_statistics=with_bounds)
    FakeWriter(root).say(
        **{**run_folders.committed(file.relative_to(root), file.read_bytes()), **run_folders.token_facts(table)}
    )
    (trouble,) = verify(root).troubles
    assert root / trouble.file == file and "its rows have step [7]" in trouble.found


def test_a_run_that_is_being_written_is_sound(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL, writers=2, close=False)
    assert verify(root, deep=True).sound
