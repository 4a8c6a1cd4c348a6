"""Trains a shipped run again on its recorded samples, and reads them in float32 with the weights of each step.

    python sample_data/replay.py MODEL_FOLDER RUN_FOLDER OUT.parquet

TRL's trainer of `make.py` runs again with the same seeds. Its engine returns the completions and log-probs that are on
record instead of sampling, and batches are shuffled as they were, so every update is the recorded one. Before each round
the weights are those that the trainer then had. OUT gets, per sequence, the prompt ids that TRL gave its engine, log-probs in
float32, and TRL's own old log-probs of the replay beside the recorded ones: on the machine that recorded the runs they were
equal to the last bit. A round that an earlier replay has proven, because the run has its readings, takes the recorded old
log-probs, which saves time; every fourth of these is computed and compared nevertheless, and all rounds after them. OUT is
whole after each compared round. `enrich.py` adds the findings to the run. MODEL_FOLDER is that of `make.py`. A step takes 15 to
40 s on one core.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.ingest.run import open_run

from .make import STEPS_PER_ROUND, foreign, own_trainer

ONE_OF = 1
"""One of so many sequences is read in float32."""
COMPARED = 4
"""One of so many proven rounds is compared."""
Row = dict[str, Any]


def main(model: Path, run: Path, out: Path) -> None:
    """Replay all steps of the run."""
    recorded = rows_by_round(run)
    module = foreign("trl.trainer.grpo_trainer")
    engine = Replayed(recorded, proven=proven_rounds(run))
    module.VLLMGeneration = lambda **_: engine
    module.is_vllm_available = lambda *_: True
    module.shuffle_sequence_dict = engine.shuffled
    trainer = own_trainer(model)
    engine.trainer = trainer
    batch_of, logprobs_of = trainer._generate_and_score_completions, trainer._get_per_token_logps_and_entropies

    def kept(inputs: Any) -> Any:
        batch = batch_of(inputs)
        if engine.keep(batch):
            pq.write_table(pa.Table.from_pylist(engine.rows), out)
        return batch

    def known(model: Any, ids: Any, mask: Any, width: int, *rest: Any, **options: Any) -> Any:
        if foreign("torch").is_grad_enabled() or engine.compares:
            return logprobs_of(model, ids, mask, width, *rest, **options)
        return engine.recorded_old(width), None, None

    trainer._generate_and_score_completions = kept
    trainer._get_per_token_logps_and_entropies = known
    trainer.train()


def rows_by_round(run: Path) -> dict[int, list[Row]]:
    """First step of each round of sampling -> its rows, in the order in which they were trained on."""
    tables = [pq.read_table(file, partitioning=None) for file in sorted(run.glob("tokens/*/*.parquet"))]
    names = ["step", "sequence_id", "generation_step", "token_ids", "rollout_logprobs", "old_logprobs", "prompt_text"]
    rounds: dict[int, list[Row]] = {}
    for row in pa.concat_tables([table.select(names) for table in tables]).to_pylist():
        rounds.setdefault(row["generation_step"], []).append(row)
    return rounds


def proven_rounds(run: Path) -> frozenset[int]:
    """First steps of the rounds that a replay has reproduced before: `enrich.py` adds a reading of no other."""
    steps = {step for reading in open_run(run).readings.values() for step in reading.steps}
    return frozenset(step for step in steps if step % STEPS_PER_ROUND == 1 and step + STEPS_PER_ROUND - 1 in steps)


class Replayed:
    """Stands where TRL keeps vLLM: returns what is on record, and reads it with the trainer's weights."""

    def __init__(self, recorded: dict[int, list[Row]], proven: frozenset[int]) -> None:
        self.trainer: Any = None
        self.rows: list[Row] = []
        """The rows up to the last compared round."""
        self._recorded, self._proven, self._now, self._waiting = recorded, proven, list[Row](), list[Row]()

    @property
    def step(self) -> int:
        """The first step of this round."""
        return int(self.trainer.state.global_step) + 1

    @property
    def compares(self) -> bool:
        """True in a round whose old log-probs are computed and compared with the recorded ones."""
        return self.step not in self._proven or self.step // STEPS_PER_ROUND % COMPARED == 0

    def recorded_old(self, width: int) -> Any:
        """The recorded old log-probs of this round, (rows, width), 0 at padding."""
        rows = [row["old_logprobs"] + [0.0] * (width - len(row["old_logprobs"])) for row in self._now]
        return foreign("torch").tensor(rows)

    def sync_weights(self) -> None:
        """The recorded samples need no weights."""

    def generate(self, prompts: Sequence[list[int]], **_: Any) -> Any:
        step = self.step
        own = sorted(self._recorded[step], key=_index)
        assert len(own) == len(prompts), f"step {step}: {len(prompts)} prompts, {len(own)} rows on record"
        texts = self.trainer.processing_class.batch_decode(prompts)
        other = [
            text for text, row in zip(texts, own, strict=True) if row["prompt_text"].split("user: ")[1] not in text
        ]
        assert not other, f"step {step}: the replay has another prompt: {other[0]}"
        self._now = [
            {
                **row,
                "prompt_ids": list(ids),
                "referee": self._float32(ids, row["token_ids"]) if place % ONE_OF == 0 else None,
            }
            for place, (ids, row) in enumerate(zip(prompts, own, strict=True))
        ]
        return (
            prompts,
            [row["token_ids"] for row in own],
            [[[value] for value in row["rollout_logprobs"]] for row in own],
            None,
        )

    def _float32(self, prompt: Sequence[int], response: Sequence[int]) -> list[float]:
        """Log-probs of the response tokens in nats. The parts of the model are called, because its forward is under autocast."""
        torch, model = foreign("torch"), self.trainer.accelerator.unwrap_model(self.trainer.model)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            hidden = model.model(torch.tensor([[*prompt, *response]]), use_cache=False)[0][0, len(prompt) - 1 : -1]
            logprobs = torch.log_softmax(model.lm_head(hidden), -1)
        assert logprobs.dtype == torch.float32
        chosen: list[float] = logprobs.gather(1, torch.tensor(response)[:, None])[:, 0].tolist()
        return chosen

    def shuffled(self, batch: Any) -> Any:
        """The batch in the recorded order of training. TRL's own order depends on random numbers that vLLM drew."""
        order = [_index(row) for row in self._recorded[self.step]]
        assert sorted(order) == list(range(len(order)))
        return {
            name: value if value is None or getattr(value, "ndim", 1) == 0
            else [value[place] for place in order] if isinstance(value, list) else value[order]
            for name, value in batch.items()
        }  # fmt: skip

    def keep(self, batch: Any) -> bool:
        """Keeps the rows of this round with the old log-probs of the replay. In a compared round it says how far these are off.

        True if `rows` has grown. AssertionError where a replay differs from what a replay has proven before.
        """
        again = batch["old_per_token_logps"].tolist()
        for row, values in zip(self._now, again, strict=True):
            row["replayed"] = values[: len(row["token_ids"])]
        self._waiting += self._now
        if not self.compares:
            return False
        apart = [abs(a - b) for row in self._now for a, b in zip(row["replayed"], row["old_logprobs"], strict=True)]
        step = self.step
        print(f"steps {step} to {step + STEPS_PER_ROUND - 1}: replayed and recorded old log-probs differ by"
              f" {sum(apart) / len(apart):.2g} on average, {max(apart):.2g} at most", flush=True)  # fmt: skip
        assert not (step in self._proven and any(apart)), (
            f"step {step}: an earlier replay had the recorded old log-probs"
        )
        self.rows, self._waiting = [*self.rows, *self._waiting], []
        return True


def _index(row: Row) -> int:
    return int(row["sequence_id"].rsplit("-", 1)[-1])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
