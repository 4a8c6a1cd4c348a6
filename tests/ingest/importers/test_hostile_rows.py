"""Whatever stands in a row, each row of a file is imported or listed with its reason, and nothing else happens."""

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile_dumps import SHAPES, Shape, altered
from support.imported import DUMPS
from support.no_wall import no_wall  # noqa: F401
from support.sizes import FULL

from ratioscope.app.upkeep.importing import write
from ratioscope.errors import SourceError
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.formats import FORMATS
from ratioscope.ingest.importers.reading import read
from ratioscope.ingest.importers.samples import RecordedRow, Rejected
from ratioscope.ingest.importers.source_files import Options, opened
from ratioscope.ingest.importers.wall import apart

OPTIONS = Options(limits=FileLimits(nbytes=1 << 28))
pytestmark = pytest.mark.usefixtures("no_wall")


def outcomes(path: Path, options: Options = OPTIONS) -> list[RecordedRow | Rejected]:
    try:
        return list(read(opened(path, options), options))
    except SourceError as error:  # a file of no kind that is read
        return [Rejected(path.name, None, None, str(error))]


def demand_written(found: list[RecordedRow | Rejected], folder: Path) -> None:
    """Every outcome is a row of the run, or a line of its list of rejected rows."""
    done = write(folder / "run", found, name="x", trainer=None, config={}, strict=False)
    assert done.rows + done.rejected == len(found)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_sound_row_is_imported(shape: Shape, tmp_path: Path) -> None:
    shape.write(tmp_path / shape.file, [shape.row])
    found = outcomes(tmp_path / shape.file)
    assert found and all(isinstance(one, RecordedRow) for one in found), found


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@settings(max_examples=4 if FULL else 2)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=18))
def test_every_altered_row_is_imported_or_listed(shape: Shape, seeds: list[int]) -> None:
    made = [*(altered(shape.row, random.Random(seed)) for seed in seeds), shape.row]
    rows = [_with_own_id(row, at) for at, row in enumerate(made)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run").mkdir()
        shape.write(Path(folder, shape.file), rows)
        found = outcomes(Path(folder, shape.file))
        assert all(one.reason for one in found if isinstance(one, Rejected))
        named = {one.row for one in found}
        whole = any(isinstance(one, Rejected) and one.row is None for one in found)
        assert whole or shape.write.__name__ == "one_object" or named == set(range(len(rows))), "a row is lost"
        demand_written(found, Path(folder))


def _with_own_id(row: Any, at: int) -> Any:
    """The row with an id of its own, if it has one in words: a response that a log holds twice counts once."""
    if not isinstance(row, dict):
        return row
    own = {"id": f"{row['id']}-{at}"} if isinstance(row.get("id"), str) else {}
    return row | own | {key: _with_own_id(row[key], at) for key in ("meta_info", "response") if key in row}


SOUND = b'{"step": 1, "sequence_id": "s", "rollout_logprobs": [-1.0]}'
LINES: dict[str, tuple[bytes, int, int]] = {
    "byte order mark": (b"\xef\xbb\xbf" + SOUND + b"\n", 1, 0),
    "CRLF": (SOUND + b"\r\n" + SOUND.replace(b'"s"', b'"t"') + b"\r\n", 2, 0),
    "no end": (SOUND, 1, 0),
    "cut off": (SOUND + b"\n" + SOUND[:-9], 1, 1),
    "a name twice": (b'{"step": 1, "rollout_logprobs": [-1.0], "rollout_logprobs": [-2.0]}\n' + SOUND + b"\n", 1, 1),
    "UTF-16": (SOUND.decode().encode("utf-16"), 1, 0),
    "latin-1": (SOUND + b'\n{"step": 1, "rollout_logprobs": [-1.0], "sequence_id": "\xe9"}\n', 1, 1),
    "a NUL": (SOUND + b"\n\x00\n", 1, 1),
    "digits without end": (SOUND + b'\n{"step": ' + b"9" * 5000 + b', "rollout_logprobs": [-1]}\n', 1, 1),
}


@pytest.mark.parametrize("kind", LINES)
def test_lines_as_other_programs_end_and_encode_them(kind: str, tmp_path: Path) -> None:
    data, samples, rejected = LINES[kind]
    (tmp_path / "rows.jsonl").write_bytes(data)
    found = outcomes(tmp_path / "rows.jsonl")
    assert [isinstance(one, RecordedRow) for one in found].count(True) == samples, found
    assert [isinstance(one, Rejected) for one in found].count(True) == rejected, found


ROWS = f"{SOUND.decode()}\r\n{SOUND.decode()}\r\n"
TABLE = "step,rollout_logprobs\r\n1,[-1.0]\r\n"


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [("rows.jsonl", ROWS, "utf-16-le"), ("rows.csv", TABLE, "utf-16-le"), ("rows.csv", TABLE, "utf-16-be")],
)
def test_lines_of_utf_16_are_named_as_such(name: str, text: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(f"\ufeff{text}".encode(encoding))
    (found,) = outcomes(tmp_path / name)
    assert isinstance(found, Rejected) and "it is text in UTF-16" in found.reason


@pytest.mark.parametrize("known", [*FORMATS], ids=lambda known: known.name)
def test_an_empty_file_of_each_format_is_named(known: Any, tmp_path: Path) -> None:
    endings = {
        "json lines": "jsonl",
        "parquet": "parquet",
        "torch": "pt",
        "pickle": "pkl",
        "inspect": "eval",
        "json object": "json",
    }
    for container in {part.container for part in known.parts}:
        ending = endings.get(container, "db")
        path = tmp_path / f"train_data_step1.{ending}"
        path.write_bytes(b"")
        (one,) = outcomes(path, Options(format=known))
        assert isinstance(one, Rejected) and one.reason


def test_a_row_with_an_empty_prompt_spoils_none_beside_it(tmp_path: Path) -> None:
    """An empty list of JSON has no type: beside whole numbers it made a column of floats, and the import failed as a whole."""
    shape = next(shape for shape in SHAPES if shape.name == "table")
    rows = [shape.row | {"sequence_id": str(n), "prompt_ids": [] if n % 2 else [1]} for n in range(4)]
    shape.write(tmp_path / shape.file, rows)
    (tmp_path / "run").mkdir()
    demand_written(found := outcomes(tmp_path / shape.file), tmp_path)
    assert all(isinstance(one, RecordedRow) for one in found)


FILES = sorted(path for path in DUMPS.rglob("*") if path.is_file() and path.name != "expected.json")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
@settings(max_examples=8 if FULL else 3)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_gives_rows_and_reasons_alone(path: Path, seed: int) -> None:
    """Behind the wall: a byte of a pickle can ask for gigabytes."""
    rng = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data))
        data[at] = rng.choice((rng.randrange(256), data[at] ^ 1 << rng.randrange(8), 0, 255))
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("ratioscope.ingest.importers.reading.apart", apart)
        (Path(folder) / "run").mkdir()
        Path(folder, path.name).write_bytes(data)
        found = outcomes(Path(folder, path.name))
        assert all(isinstance(one, RecordedRow | Rejected) for one in found)
        demand_written(found, Path(folder))
