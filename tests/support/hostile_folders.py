"""Run folders as a stranger may have made them: a small sound run, and one thing in it that is meant to do harm.

Each is a few KB on disk. By name: what is done to the run in a folder, given chances of its own; `elsewhere` beside it is
somebody's, and must stay as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.metrics.engines.statistics_table import schema
from support import hostile_parquet as made
from support import real_runs, run_folders
from support.hostile_parquet import Leaf, Page, alike, levels, parquet
from support.run_folders import FakeWriter

Shape = Callable[[Path, Random], None]
STEP = 77
TOKENS = f"tokens/step={STEP:09d}/evil.0000.parquet"
SEGMENT = "statistics/evil.000000.parquet"
MANY = 1 << 28
PARTS = ("tokens", "statistics", "commits", "quarantine")


def elsewhere_of(root: Path) -> Path:
    return root.parent / "elsewhere"


def elsewhere(root: Path) -> Path:
    """What lies beside the run: a folder with what verbs would move, delete or replace in a run."""
    place = elsewhere_of(root)
    for part in (*PARTS, f"tokens/step={STEP:09d}"):
        (place / part).mkdir(parents=True, exist_ok=True)
        (place / part / ".r00000.0000.parquet.1-2").write_bytes(b"being written")
        (place / part / "victim.parquet").write_bytes(b"theirs")
    return place


def _stranger(root: Path, name: str = "evil") -> FakeWriter:
    return FakeWriter(root, name).open()


def _tokens(root: Path, data: bytes, place: int = 0, **changes: Any) -> None:
    """Token rows that are committed with the digest they have."""
    path = Path(f"tokens/step={STEP + place:09d}/evil.{place:04d}.parquet")
    writer = FakeWriter(root, "evil")
    writer.put(path, data)
    facts = {"step": STEP + place, "rows": 1, "tokens": 1, "policies": ["rollout", "old"], "gaps": ["mismatch"]}
    if not writer.log.exists():
        writer.open()
    writer.say(**run_folders.committed(path, data), **{**facts, **changes})


def _columns(tokens: int, *, rows: int = 1, claimed: int | None = None) -> list[Leaf]:
    """A row of so many tokens, all alike."""
    key = {"attempt": (made.INT32, b"\0" * 4), "step": (made.INT64, STEP.to_bytes(8, "little"))}
    flat = [Leaf(name, kind, alike(rows, word=word), rows) for name, (kind, word) in key.items()]
    flat.append(Leaf("sequence_id", made.BYTE_ARRAY, alike(rows, word=b"\1\0\0\0a"), rows, is_text=True))
    sides = ("rollout_logprobs", "old_logprobs")
    value = b"\0\0\x80\xbf"
    return flat + [
        Leaf(name, made.FLOAT, alike(tokens, is_list=True, word=value), claimed or tokens, is_list=True)
        for name in sides
    ]


def _a_step(tokens: int, **how: Any) -> bytes:
    return parquet(_columns(tokens, **how), how.get("rows", 1))


def _lines(root: Path, *entries: dict[str, Any]) -> None:
    writer = _stranger(root)
    for entry in entries:
        writer.say(**entry)


def _commit(**changes: Any) -> dict[str, Any]:
    return {
        "kind": layout.COMMIT, "file": SEGMENT, "steps": [STEP], "bytes": 1, "sha256": "0" * 64, "attempt": 0, **changes
    }  # fmt: skip


def _raw(root: Path, data: bytes, writer: str = "evil") -> None:
    (root / layout.commit_file(writer)).write_bytes(data)


def _linked(part: str) -> Shape:
    def shape(root: Path, chance: Random) -> None:
        if (root / part).exists():
            (root / part).rename(root.parent / "was")
        (root / part).parent.mkdir(exist_ok=True)
        (root / part).symlink_to(elsewhere(root) / part)

    return shape


def _instead(name: str, make: Callable[[Path], object]) -> Shape:
    def shape(root: Path, chance: Random) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        make(path)

    return shape


def _to_quarantine(root: Path, chance: Random) -> None:
    (root / "quarantine").symlink_to(elsewhere(root))
    (root / "statistics" / "payload.pth").write_bytes(b"import os")


def _names_outside(root: Path, chance: Random) -> None:
    outside = [f"../elsewhere/{part}/victim.parquet" for part in PARTS] + [
        "/etc/hostname",
        "a\0b",
        "tokens/../../elsewhere",
    ]
    for path in outside:
        replaced = [{"file": path, "sha256": "0", "writer": "w"}]
        _lines(
            root, {"kind": layout.PRUNED, "files": outside, "steps": [], "bytes": 0},
            _commit(file=path), _commit(replaces=replaced),
            {"kind": layout.MOVED, "file": path, "to": "../elsewhere/x", "reason": "x"},
            {"kind": layout.NOTED, "log": path, "altered": 1, "tail": 1},
        )  # fmt: skip


def _pruned(root: Path, chance: Random) -> None:
    every = ({"kind": layout.PRUNED, "files": [], "steps": [n << 20, (n + 1) << 20], "bytes": 0} for n in range(300))
    _lines(root, *every)


def _pruned_far(root: Path, chance: Random) -> None:
    _lines(root, {"kind": layout.PRUNED, "files": [], "steps": [-(1 << 62), 1 << 62] * 3, "bytes": 0})


def _measured(root: Path, chance: Random) -> None:
    told = [{"writer": f"w{n}", "gaps": ["mismatch", "drift"], "steps": [0, 1 << 20]} for n in range(200)]
    _lines(root, *(_commit(measured=told) for _ in range(3)))


def _far_steps(root: Path, chance: Random) -> None:
    """Steps as far apart as numbers allow, of rows that are sound."""
    rows = run_folders.by_step(run_folders.few(_records(), 1, 2))[0]
    writer = FakeWriter(root, "evil").open()
    for step in (-(1 << 62), 1 << 62, (1 << 63) - 1):
        writer.step(run_folders.replaced(rows, "step", _all(step, len(rows))))


def _all(value: int, rows: int) -> Any:
    return pa.array([value] * rows, pa.int64())


def _records() -> Any:
    return real_runs.records("trl_vllm_stale4")


def _large_counts(root: Path, chance: Random) -> None:
    most = (1 << 63) - 1
    _lines(
        root, *({"kind": layout.DROPPED, "step": most, "sequences": most, "tokens": most, "reason": "x"} for _ in range(3)),
        {"kind": layout.EVENT, "step": most, "event": "resume", "note": "x"},
        {"kind": layout.EVENT, "step": -most, "event": "weight_sync", "note": "x"},
        *(_commit(file=TOKENS.replace("0000", f"{n:04d}"), step=STEP, rows=most, tokens=most, offered=most) for n in range(3)),
        {"kind": layout.CLOSE, "offered": most, "written": most, "left_out": most, "dropped": most},
    )  # fmt: skip
    _stranger(root, "evil2").say(kind=layout.OPEN, writer="x", rank=most, host="h", pid=most, attempt=most)


def _odd_values(root: Path, chance: Random) -> None:
    """Every kind of line with members of every other type."""
    odd: list[Any] = [
        None,
        True,
        -1,
        1e308,
        float("inf"),
        float("nan"),
        "x",
        "\ud800\0",
        [],
        {},
        [[]],
        [None],
        "9" * 4000,
    ]
    kinds = (layout.OPEN, layout.COMMIT, layout.EVENT, layout.DROPPED, layout.PRUNED, layout.MOVED, layout.NOTED,
             layout.CONDENSED, layout.CLOSE, layout.OFFLINE, layout.STATE, "unheard of")  # fmt: skip
    members = (
        "file", "step", "steps", "rows", "tokens", "bytes", "sha256", "attempt", "time", "files", "to", "reason", "log",
        "altered", "tail", "part", "parts", "entries", "times", "writer", "rank", "host", "pid", "event", "note",
        "state", "replaces", "measured", "policies", "gaps", "facts", "offered", "written", "dropped", "left_out", "sequences",
        "schema", "newest",
    )  # fmt: skip
    log = (root / layout.commit_file("evil")).open("wb")
    with log:
        for kind in kinds:
            for _ in range(40):
                entry = {name: chance.choice(odd) for name in chance.sample(members, 12)}
                log.write(layout.encode_line({**_commit(step=STEP), "kind": kind, **entry}))


def _deep(root: Path, chance: Random) -> None:
    deep: Any = 0
    for _ in range(500):
        deep = [deep]
    _lines(
        root, _commit(steps=deep), {"kind": layout.OPEN, "host": deep}, {"kind": layout.EVENT, "step": 1, "event": deep}
    )
    with (root / layout.commit_file("evil")).open("ab") as log:
        log.write(
            b'{"a": ' * 900
            + b"1"
            + b"}" * 900
            + b"\n"
            + b"[" * 200_000
            + b"\n"
            + b'{"steps": '
            + b"[" * 50_000
            + b"]" * 50_000
        )


def _deep_run_file(root: Path, chance: Random) -> None:
    (root / "run.json").write_text(
        '{"config": ' + '{"a": ' * 900 + "1" + "}" * 900 + ', "attempts": [' + "[" * 900 + "]" * 901 + "}"
    )


def _long_lists(root: Path, chance: Random) -> None:
    _raw(
        root,
        b'{"kind": "commit", "steps": ['
        + b"[]," * 1_000_000
        + b"0]}\n"
        + b'{"a": ['
        + b"1," * 1_500_000
        + b"1]}\n"
        + b"x" * (5 << 20),
    )


def _sparse(name: str) -> Shape:
    def shape(root: Path, chance: Random) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1" + b"x" * 5000)
        os.truncate(path, 1 << 42)
        if name.endswith(".parquet"):
            _lines(root, _commit(file=name, bytes=1 << 42, step=STEP, rows=1, tokens=1))

    return shape


def _long_names(root: Path, chance: Random) -> None:
    folder = root / "tokens" / f"step={STEP:09d}"
    folder.mkdir()
    for name in ("x" * 240 + ".parquet", "x" * 250, "\udcff.parquet", "a\nb.parquet", "=cmd.parquet"):
        (folder / name).write_bytes(b"PAR1")
    (root / "commits" / ("y" * 240 + ".jsonl")).write_bytes(b"{}\n")


def _many_small(tokens: int, files: int) -> Shape:
    def shape(root: Path, chance: Random) -> None:
        for place in range(files):
            data = _a_step(tokens)
            path = Path(f"tokens/step={STEP:09d}/evil.{place:04d}.parquet")
            writer = FakeWriter(root, f"evil{place}").open()
            writer.put(path, data)
            facts = {"step": STEP, "rows": 1, "tokens": tokens, "policies": ["rollout", "old"], "gaps": ["mismatch"]}
            writer.say(**run_folders.committed(path, data), **facts)

    return shape


def _segment(root: Path, leaves: list[Leaf], rows: int) -> None:
    data = parquet(leaves, rows)
    writer = _stranger(root)
    writer.put(Path(SEGMENT), data)
    writer.say(**run_folders.committed(Path(SEGMENT), data), steps=[STEP])


def _statistics(root: Path, chance: Random) -> None:
    """A segment with every column that is wanted, of rows that are all alike."""
    rows = 1 << 22
    kinds = {
        "int16": made.INT32,
        "int32": made.INT32,
        "int64": made.INT64,
        "float": made.FLOAT,
        "double": made.DOUBLE,
        "string": made.BYTE_ARRAY,
    }
    leaves = []
    for item in schema():
        is_list = str(item.type).startswith("list")
        kind = kinds[str(item.type.value_type if is_list else item.type)]
        word = {made.INT64: STEP.to_bytes(8, "little"), made.DOUBLE: bytes(8), made.BYTE_ARRAY: b"\3\0\0\0all"}.get(
            kind, bytes(4)
        )
        leaves.append(
            Leaf(item.name, kind, alike(rows, is_list=is_list, word=word), rows, is_list, kind == made.BYTE_ARRAY)
        )
    _segment(root, leaves, rows)


def _uncommitted(root: Path, chance: Random) -> None:
    """The same claims without a commit, so that a reader believes the footer."""
    path = root / TOKENS
    path.parent.mkdir(parents=True)
    path.write_bytes(_a_step(MANY, claimed=1))


def _cut_logs(root: Path, chance: Random) -> None:
    """A sound run whose logs and files were altered at random places."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    for path in chance.sample(files, min(len(files), 6)):
        content = bytearray(path.read_bytes())
        for _ in range(8):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.randrange(1, len(content))] if chance.random() < 0.3 else content)


def _footer_copy(root: Path, chance: Random) -> None:
    """A merge without a log, whose footer says of itself what it likes."""
    found = pq.read_table(next(root.glob("statistics/*.parquet")))
    for number, said in enumerate(("[" * 100_000, '{"file": 1}', '{"file": "%s"}')):
        name = f"statistics/offline-evil.{number:06d}.parquet"
        pq.write_table(found.replace_schema_metadata({layout.COMMIT_COPY: said.replace("%s", name)}), root / name)


READ = ("run.json", "control.json", "commits/evil.jsonl", TOKENS, SEGMENT)
"""Where a reader or a writer looks for a file."""


def _one_more(*leaves: Leaf, rows: int = 1) -> Shape:
    """A token file with these columns besides."""
    return lambda root, chance: _tokens(root, parquet([*_columns(1, rows=rows), *leaves], rows), rows=rows)


def _page(*pages: Page) -> Leaf:
    return Leaf("reward", made.DOUBLE, pages, 1)


def _half_a_gigabyte(root: Path, chance: Random) -> None:
    """Made when it is wanted: else each worker of the tests holds it to its end."""
    _one_more(_page(Page(1, levels(1, 1) + bytes(1 << 29))))(root, chance)


def _prompts(rows: int, size: int) -> Leaf:
    word = size.to_bytes(4, "little") + b"x" * size
    return Leaf("prompt_text", made.BYTE_ARRAY, alike(rows, word=word), rows, is_text=True)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


SHAPES: dict[str, Shape] = {
    **{f"{part} is a link": _linked(part) for part in PARTS},
    "quarantine leads to a place of programs": _to_quarantine,
    **{f"{name} is a pipe": _instead(name, os.mkfifo) for name in READ},
    **{f"{name} is a folder": _instead(name, os.mkdir) for name in READ},
    **{f"{name} leads to a device": _instead(name, _device) for name in READ},
    "lines name files outside": _names_outside,
    "300 lines prune a million steps each": _pruned,
    "a line prunes all steps there can be": _pruned_far,
    "lines measure a million steps of 200 writers": _measured,
    "steps lie as far apart as they can": _far_steps,
    "counts are as large as they can be": _large_counts,
    "lines have members of every type": _odd_values,
    "lines are nested deeply": _deep,
    "run.json is nested deeply": _deep_run_file,
    "lines are long lists": _long_lists,
    "a log is a hole of terabytes": _sparse("commits/evil.jsonl"),
    "a token file is a hole of terabytes": _sparse(TOKENS),
    "a segment is a hole of terabytes": _sparse(SEGMENT),
    "names are long, or no text": _long_names,
    "a row of 268 million tokens in 400 bytes": lambda root, _: _tokens(root, _a_step(MANY), tokens=MANY),
    "a footer says one token, its pages 268 million": lambda root, _: _tokens(root, _a_step(MANY, claimed=1)),
    "four million rows in 400 bytes": lambda root, _: _tokens(root, _a_step(1, rows=1 << 22), rows=1 << 22),
    "a page decompresses to half a gigabyte": _half_a_gigabyte,
    "a page says it decompresses to two gigabytes": _one_more(
        _page(Page(1, levels(1, 1) + bytes(8), uncompressed=(1 << 31) - 1))
    ),
    "a text of a megabyte for each of 4,000 rows": _one_more(_prompts(4000, 1 << 20), rows=4000),
    "a column has one value for 4,000 rows, which its footer denies": lambda root, _: _tokens(
        root, parquet(_columns(1, rows=4000, claimed=4000), 4000), rows=4000
    ),
    "columns nested a thousand deep": lambda root, _: _tokens(root, parquet(_columns(1), 1, nesting=1000)),
    "100,000 row groups": lambda root, _: _tokens(root, parquet(_columns(1)[:1], 1, groups=100_000)),
    "5,000 columns": _one_more(*(Leaf(f"c{n}", made.INT32, alike(1), 1) for n in range(5000))),
    "300 files of a step, each of some million tokens": _many_small(1 << 21, 300),
    "statistics of four million rows": _statistics,
    "no commit names a row of 268 million tokens": _uncommitted,
    "bytes are others": _cut_logs,
    "a merge without a log says of itself what it likes": _footer_copy,
}


def hostile_folder(folder: Path, name: str, seed: int) -> Path:
    """The run, in an empty folder, beside `elsewhere`."""
    root = run_folders.write_run(folder / "run", run_folders.few(_records(), 2, 2), writers=2)
    elsewhere(root)
    SHAPES[name](root, Random(f"{seed} {name}"))
    return root
