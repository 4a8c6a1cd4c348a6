"""The facts of a sequence in open-instruct's data preparation, and the worker that gets the sequence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .rows import places_in

Batch = Any
PackedSequences = Any
"""`Any`, because open-instruct is no dependency."""


@dataclass(frozen=True)
class Prepared:
    """The responses of a step, in the order of packing."""

    step: int
    """The step in the trainer's log."""
    batch: Batch
    finish_reasons: Sequence[str]

    def facts(self, index: int) -> dict[str, Any]:
        """The facts of one response by argument of `log`; None if not known."""
        batch = self.batch
        group = None if batch.indices is None else f"{self.step}-{batch.indices[index]}"
        return {
            "group_ids": group,
            "rewards": None if batch.scores is None else float(batch.scores[index]),
            "finish_reasons": str(self.finish_reasons[index]),
            "rollout_versions": int(batch.model_steps[index]) if batch.model_steps else None,
            "prompt_texts": None if batch.raw_queries is None else batch.raw_queries[index],
            "trainer_version": self.step - 1,
        }


def facts_of(prepared: Prepared, packed: PackedSequences, sent: Sequence[Any]) -> dict[str, Any]:
    """Arguments of `Collector.log`: facts, rollout and mask of all sequences that workers get; {} if there are none.

    packed: rows in the order of packing; where a response ends, `dones` has its number, from 1. sent: the batches of each worker,
    in another order; equal tokens identify a row.
    """
    numbers = {np.asarray(row).tobytes(): number for number, row in enumerate(packed.query_responses)}
    rows: list[dict[str, Any]] = []
    for worker, batch in enumerate(sent):
        for pack, tokens in enumerate(batch.query_responses):
            documents, mask = np.asarray(batch.attention_masks[pack]), np.asarray(batch.response_masks[pack])
            for place in places_in(documents, mask, f"{prepared.step}-{worker}-{pack}"):
                length = int(np.count_nonzero(documents[place.row]))
                number = numbers[np.asarray(tokens[place.row, :length]).tobytes()]
                responses = [int(done) - 1 for done in packed.dones[number] if done]
                document = int(place.sequence_id.rpartition("-")[2])
                rows.append(
                    {
                        "sequence_ids": place.sequence_id,
                        "rollout_logprobs": batch.vllm_logprobs[pack][place.row, place.tokens],
                        "token_ids": tokens[place.row, place.tokens],
                        "pack_index": place.row,
                        "pack_position": document,
                        "prompt_ids": tokens[place.row, place.first : place.tokens.start],
                        "mask": mask[place.row, place.tokens],
                        **prepared.facts(responses[document]),
                    }
                )
    columns = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
    return {name: values for name, values in columns.items() if any(value is not None for value in values)}
