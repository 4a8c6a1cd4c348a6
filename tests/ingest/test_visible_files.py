"""The files that a reader shows: while it follows a run they grow by what is new, and are those that a fresh reader shows."""

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.run_folders import FakeWriter, committed
from support.sizes import examples

from ratioscope import layout
from ratioscope.ingest.commits import visible_files as module
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.commits.visible_files import next_visible_files, visible_files
from ratioscope.ingest.files.parquet_files import ParquetFiles


class Ranks:
    """Two ranks, which may be started again, and a verb. What they record are files of a few bytes: a catalog opens none."""

    def __init__(self, root: Path) -> None:
        self.root, self.step, self.starts = root, 0, 0
        self.verb = FakeWriter(root, "offline-host-1-abcdef")
        self.start_again()

    def start_again(self) -> None:
        self.ranks = [self._opened(rank) for rank in range(2)]
        self.began = self.step = max(0, self.step - 2)
        self.starts += 1

    def _opened(self, rank: int, **more: object) -> FakeWriter:
        fake = FakeWriter(self.root, f"r{rank:05d}-host-{self.starts}-{self.step:06x}", rank, self.starts).open()
        return fake.say(kind=layout.OPEN, writer=fake.writer, rank=rank, attempt=self.starts, **more) if more else fake

    def record(self, ranks: Iterable[int] = (0, 1)) -> None:
        for fake in (self.ranks[rank] for rank in ranks):
            self.commit_rows(fake, self.step)
            place, first = self.step // 4, max(self.began, self.step // 4 * 4)
            self.commit(fake, layout.statistics_file(fake.writer, place), steps=list(range(first, self.step + 1)))
        self.step += 1

    def record_again(self) -> None:
        self.commit_rows(self.ranks[0], max(0, self.step - 1), b"other rows")

    def one_rank_alone(self) -> None:
        self.record([1])

    def record_earlier(self) -> None:
        self.commit_rows(self.ranks[1], max(0, self.step - 4))

    def take_over(self) -> None:
        self.ranks[1], before = self._opened(1, takes_over=[self.ranks[1].writer]), self.ranks[1]
        before.clock += 1

    def close(self) -> None:
        self.ranks[0].close()

    def note(self) -> None:
        self.ranks[0].event("weight_sync", self.step)

    def refuse(self) -> None:
        self.ranks[0].say(kind=layout.COMMIT, file=self._rows_of(self.ranks[0], 0), step=1)

    def prune(self) -> None:
        path = self._rows_of(self.ranks[0], 0)
        (self.root / path).unlink(missing_ok=True)
        self.verb.say(kind=layout.PRUNED, files=[path], steps=[0, 0])

    def merge(self) -> None:
        origin = {"file": self._rows_of(self.ranks[0], 0), "sha256": "", "writer": self.ranks[0].writer}
        self.commit_rows(self.verb, 0, b"merged", replaces=[origin])

    def commit_rows(self, fake: FakeWriter, step: int, data: bytes = b"rows", **more: object) -> None:
        policies = {"policies": ["rollout", "old"], "gaps": ["mismatch"]}
        path = layout.token_file(step, fake.writer, 0)
        self.commit(fake, path, data, step=step, rows=1, tokens=1, offered=1, dropped=0, **policies, **more)

    def commit(self, fake: FakeWriter, path: Path, data: bytes = b"rows", **more: object) -> None:
        fake.put(path, data)
        fake.say(**committed(path, data), **more)

    def _rows_of(self, fake: FakeWriter, step: int) -> str:
        return layout.token_file(step, fake.writer, 0).as_posix()


ACTS: tuple[Callable[[Ranks], None], ...] = (
    Ranks.record, Ranks.record, Ranks.record, Ranks.record_again, Ranks.record_earlier, Ranks.one_rank_alone,
    Ranks.start_again, Ranks.take_over, Ranks.close, Ranks.note, Ranks.refuse, Ranks.prune, Ranks.merge,
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(ACTS), st.booleans()), min_size=3, max_size=14))
@example([(Ranks.start_again, False), (Ranks.record, True), (Ranks.record_earlier, True)])
@example([(Ranks.record, True), (Ranks.take_over, True), (Ranks.record, True), (Ranks.record, True)])
@examples(60)
def test_a_reader_that_follows_shows_what_a_fresh_one_shows(acts: list[tuple[Callable[[Ranks], None], bool]]) -> None:
    """After some of the acts it looks; between two looks it may miss several."""
    with TemporaryDirectory() as folder:
        ranks, root = Ranks(Path(folder)), Path(folder)
        for _ in range(4):
            ranks.record()
        catalog = Catalog(root, ParquetFiles(root))
        catalog.refresh()
        known, version = visible_files(catalog), catalog.version
        for act, looks in acts:
            act(ranks)
            if looks:
                catalog.refresh()
                known, version = next_visible_files(catalog, version, known), catalog.version
                assert known == visible_files(catalog) and list(known.token_files) == sorted(known.token_files)
        fresh = Catalog(root, ParquetFiles(root))
        fresh.refresh()
        catalog.refresh()
        if not fresh.set_aside:  # a catalog looks once for files that are missing
            assert next_visible_files(catalog, version, known) == visible_files(fresh)


def test_a_reader_that_follows_takes_new_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(tmp_path)
    ranks.record()
    ranks.start_again()
    ranks.record()
    catalog = Catalog(tmp_path, ParquetFiles(tmp_path))
    catalog.refresh()
    known, version = visible_files(catalog), catalog.version
    monkeypatch.setattr(module, "visible_files", None)
    for _ in range(3):
        ranks.record()
        ranks.note()
        catalog.refresh()
    grown = next_visible_files(catalog, version, known)
    assert len(grown.steps) == len(known.steps) + 3
    assert grown.token_files[0] is known.token_files[0]
