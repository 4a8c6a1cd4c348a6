"""The ids of top-k reveal text: no file that leaves the machine without texts has one, and exports say that they lack them."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.app.export.bundle import bundle
from ratioscope.app.presentation.without_texts import outgoing
from ratioscope.ingest.analysis.support import support_of

SECRET = np.array([710_000_017, 710_000_023, 710_000_029])
"""Ids that stand nowhere else."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    chance = np.random.default_rng(1)
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        for step in range(4):
            size = (8, 40, 3)
            rollout = -chance.random((8, 40))
            collector.log(
                step=step, rollout_logprobs=rollout, old_logprobs=rollout + chance.normal(0, 0.01, rollout.shape),
                token_ids=chance.integers(0, 99, (8, 40)), topk_ids=np.broadcast_to(SECRET, size),
                sequence_ids=[f"what is {step} {row}?" for row in range(8)],
                rollout_topk_logprobs=-chance.random(size), old_topk_logprobs=-chance.random(size),
            )  # fmt: skip
    return tmp_path / "run"


def has_secret(content: bytes) -> bool:
    held = [str(each).encode() for each in SECRET] + [int(each).to_bytes(4, "little") for each in SECRET]
    return any(each in content for each in held)


def test_the_files_of_top_k_have_what_nothing_else_has(run: Path) -> None:
    (ids, *_) = pq.read_table(next((run / "topk").rglob("*.parquet")))["topk_ids"].to_pylist()
    assert set(ids or []) == set(SECRET.tolist())
    others = (path for path in run.rglob("*") if path.is_file() and "topk" not in path.parts)
    assert not any(has_secret(path.read_bytes()) for path in others)


def test_no_output_without_texts_has_an_id_of_top_k(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("report.html", "report.json", "report.md"):
        assert main(["report", str(run), "--no-text", "-o", str(tmp_path / name)]) in (0, 1)
    for ending in ("parquet", "csv", "jsonl"):
        assert main(["export", str(run), "--level", "token", "--no-text", "-o", str(tmp_path / f"t.{ending}")]) == 0
    assert main(["info", str(run), "--json"]) == 0 and main(["export", str(run), "-o", str(tmp_path / "s.csv")]) == 0
    assert not has_secret(capsys.readouterr().out.encode())
    assert not any(has_secret(path.read_bytes()) for path in tmp_path.iterdir() if path.is_file())
    with zipfile.ZipFile(io.BytesIO(bundle(open_run(run)))) as archive:
        assert not any(has_secret(archive.read(name)) for name in archive.namelist())


def test_a_run_without_texts_has_the_same_support(run: Path) -> None:
    """Its sequences have other ids there, and are joined by them."""
    plain, private = support_of(open_run(run), 1), support_of(outgoing(open_run(run), text=False), 1)
    assert len(plain) == 320 and (plain.train == private.train).all() and (plain.sequence == private.sequence).all()


def test_exports_of_tokens_name_what_they_leave_out(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run), "--level", "token", "-o", str(tmp_path / "t.csv")]) == 0
    assert "likeliest tokens are left out" in capsys.readouterr().out
    assert "topk_ids" in json.loads((tmp_path / "t.csv.schema.json").read_text())["left_out"]


def test_info_and_estimate_price_top_k(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["topk"]
    on_disk = sum(path.stat().st_size for path in (run / "topk").rglob("*.parquet"))
    assert facts == {"steps": 4, "rows": 32, "tokens": 1280, "bytes": on_disk}
    assert main(["info", str(run)]) == 0 and "the likeliest tokens of 1,280 tokens" in capsys.readouterr().out
    shape = ["estimate", "--sequences", "8", "--length", "100", "--json"]
    assert main(shape) == 0 and main([*shape, "--topk", "20"]) == 0
    without, with_topk = (json.loads(each) for each in capsys.readouterr().out.replace("}\n{", "}\n\0{").split("\0"))
    assert with_topk["bytes_per_token"] > 5 * without["bytes_per_token"] and "topk" not in without
    assert main([*shape, "--topk", "20", "--text", "none"]) == 2
