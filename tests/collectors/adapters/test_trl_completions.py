"""The completions that TRL itself dumps are imported to the rows that attach recorded of the same training."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.imported import imported, rows_of
from support.tiny_trl import MAX_NEW, Rollout, attached, make_trainer

from ratioscope import open_run
from ratioscope.app.cli import main

METRICS = ("total/kl_k3", "total/abs_log_ratio", "total/max_abs_log_ratio", "total/ess_sequence")
pytestmark = pytest.mark.filterwarnings("ignore")  # torch and transformers warn about each other


class Telling(Rollout):
    """A rollout_func whose log-probs reach the reward functions, as a user writes it."""

    def __call__(self, prompts: Any, trainer: Any) -> dict[str, Any]:
        found = super().__call__(prompts, trainer)
        masks = found.get("env_mask") or [[1] * len(ids) for ids in found["completion_ids"]]
        return found | {"sampled_logprobs": found["logprobs"], "sampled_mask": masks}


def digits(
    completion_ids: list[list[int]], sampled_logprobs: Any, sampled_mask: Any, log_extra: Any, **_: Any
) -> list[float]:
    """A reward function that has the sampler's side written beside the texts."""
    scores = [sum(3 <= token <= 12 for token in ids) / MAX_NEW for ids in completion_ids]
    log_extra("completion_ids", completion_ids)
    log_extra("rollout_logprobs", sampled_logprobs)
    log_extra("tool_mask", sampled_mask)
    log_extra("reward", scores)
    return scores


def joined_with_losses(trainer: Any, folder: Path) -> pl.DataFrame:
    """The metrics of TRL's completions, joined with the log-probs that a callback of the user's wrote from the loss."""
    rows = [
        {"step": batch["global_step"] + 1, "completion_ids": ids[kept].tolist(), "lp": logprobs[kept].tolist()}
        for batch in trainer.batches
        for ids, kept, logprobs in zip(
            batch["completion_ids"], batch["completion_mask"].bool(), batch["current"], strict=True
        )
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "losses.parquet")
    words = ["import", "--rollout", str(folder / "out" / "completions"), "--train", str(folder / "losses.parquet")]
    words += ["--on", "step,token_ids", "--map-train", "current_logprobs=lp", "--map-train", "token_ids=completion_ids"]
    assert main([*words, "-o", str(folder / "joined")]) == 0
    return open_run(folder / "joined").metrics()


@pytest.mark.parametrize("env_mask", [False, True])
def test_the_completions_of_trl_give_the_rows_that_attach_recorded(env_mask: bool, tmp_path: Path) -> None:
    trainer = make_trainer(str(tmp_path / "out"), log_completions=True, env_mask=env_mask)
    trainer.reward_funcs, trainer.rollout_func = [digits], Telling(env_mask)
    attachment = attached(trainer, tmp_path / "attached")
    trainer.train()
    assert attachment is not None
    attachment.detach()
    code, found = imported(tmp_path / "out", tmp_path / "imported")
    assert code == 0
    recorded = {(row["step"], *row["token_ids"]): row for row in rows_of(tmp_path / "attached")}
    first = min(row["step"] for row in found) - min(step for step, *_ in recorded)
    assert len(found) == len(rows_of(tmp_path / "attached")) == 24
    joined = joined_with_losses(trainer, tmp_path)
    for one, other in zip(
        joined.iter_rows(named=True), open_run(tmp_path / "attached").metrics().iter_rows(named=True), strict=True
    ):
        for name in METRICS:
            assert one[name] == pytest.approx(other[name], rel=1e-6), name
    for row in found:
        match = recorded[(row["step"] - first, *row["token_ids"])]
        for name in ("rollout_logprobs", "mask", "reward", "prompt_text"):
            assert row[name] == pytest.approx(match[name]) if name == "reward" else row[name] == match[name], name
        assert row["advantages"] == pytest.approx(match["advantages"])
