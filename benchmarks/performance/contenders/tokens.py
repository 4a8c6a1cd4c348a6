"""Packages that keep token rows, or something of them: `log` keeps one step, `bytes` keeps all and returns bytes on disk.

rows: a Parquet file with `step`, `token_ids`, `rollout_logprobs` and `old_logprobs`, one row per sequence.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

Works = dict[str, Callable[[int], object]]
Sequences = list[dict[str, Any]]
COLUMNS = ["sequence", "position", "token_id", "rollout_logprob", "old_logprob"]


def wandb_table(folder: str, rows: str) -> Works:
    wandb = import_module("wandb")
    run = wandb.init(mode="offline", dir=folder, settings=wandb.Settings(console="off", silent=True))

    def log(sequences: Sequences) -> None:
        run.log({"tokens": wandb.Table(columns=COLUMNS, data=list(_long(sequences)))})

    return _works(folder, rows, log, run.finish)


def trackio_table(folder: str, rows: str) -> Works:
    os.environ["TRACKIO_DIR"] = folder
    trackio, pandas = import_module("trackio"), import_module("pandas")
    trackio.init(project="tokens", embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def log(sequences: Sequences) -> None:
        frame = pandas.DataFrame(_long(sequences), columns=COLUMNS)
        trackio.log({"tokens": trackio.Table(dataframe=frame)})

    return _works(folder, rows, log, trackio.finish)


def martingale(folder: str, rows: str) -> Works:
    recorder = martingale_recorder(folder)
    return _works(folder, rows, lambda sequences: recorded_by_martingale(recorder, sequences), recorder.ledger.close)


def martingale_recorder(folder: str) -> Any:
    return import_module("martingale.record").Recorder(folder)


def recorded_by_martingale(recorder: Any, sequences: Sequences) -> None:
    """Publishes a revision, records the sequences as sampled by it, and scores them by it."""
    sampler = import_module("martingale.record").SamplerConfig(temperature=1.0, logprobs_mode="processed_logprobs")
    latest = recorder.latest_revision
    step = 0 if latest is None else latest.step + 1
    revision = recorder.publish_revision(f"{step:064x}", b"tokenizer", sampler, step=step)
    for place, row in enumerate(sequences):
        with recorder.sequence(actor_id=0, sequence_id=f"{step}-{place}", prompt_ids=[1]) as sequence:
            for token_id, logprob in zip(row["token_ids"], row["rollout_logprobs"], strict=True):
                sequence.token(revision.digest, token_id, logprob)
        recorder.score(sequence.record.digest, revision.digest, row["old_logprobs"])


def rlprobe(folder: str, rows: str) -> Works:
    """Keeps no token: four numbers of a step, which the caller works out."""
    numpy = import_module("numpy")
    recorder = import_module("rlprobe").Recorder(Path(folder) / "run", install_handlers=False, capture_env=False)
    steps = iter(range(1 << 30))

    def log(sequences: Sequences) -> None:
        rollout, old = (
            numpy.concatenate([row[name] for row in sequences]) for name in ("rollout_logprobs", "old_logprobs")
        )
        apart = old - rollout
        ratio = numpy.exp(apart)
        recorder.log_step(
            next(steps),
            kl_mean=float((ratio - 1 - apart).mean()),
            logprob_mean=float(old.mean()),
            ratio_mean=float(ratio.mean()),
            ratio_p95=float(numpy.quantile(ratio, 0.95)),
        )

    return _works(folder, rows, log, recorder.close)


def json_lines(folder: str, rows: str) -> Works:
    json = import_module("json")

    def log(sequences: Sequences) -> None:
        with (Path(folder) / "rows.jsonl").open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in sequences)

    return _works(folder, rows, log, lambda: None)


def _works(folder: str, rows: str, log: Callable[[Sequences], object], close: Callable[[], object]) -> Works:
    """log: the first step's rows. bytes: all steps', then the end of the run."""
    steps = list(_steps(rows))

    def kept(_: int) -> int:
        for sequences in steps:
            log(sequences)
        close()
        return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())

    return {"log": lambda _: log(steps[0]), "bytes": kept}


def _steps(rows: str) -> Iterator[Sequences]:
    table: Any = pq.read_table(rows)
    for step in pc.unique(table["step"]).to_pylist():
        yield table.filter(pc.equal(table["step"], step)).drop_columns(["step"]).to_pylist()


def _long(sequences: Sequences) -> Iterator[list[Any]]:
    """A row per token, as tables of these packages have no lists."""
    for place, row in enumerate(sequences):
        columns = row["token_ids"], row["rollout_logprobs"], row["old_logprobs"]
        for position, (token_id, rollout, old) in enumerate(zip(*columns, strict=True)):
            yield [place, position, token_id, rollout, old]
