"""Finds the text of each token from its id, for trainers that log only ids. Each id is decoded once.

Texts of single tokens from a Hugging Face tokenizer, without touching the one that the trainer is using.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Integers

from .token_columns import strings, token_counts

Decode = Callable[[Sequence[int]], Sequence[str]]
"""Returns the text of each id. It is called on the writer's thread, so no other thread may use the same tokenizer object."""


_LARGEST = 1 << 22
"""Ids of at least this, and negative ids, are no tokens of a vocabulary. Their text is null."""


class TokenTexts:
    """Adds the column `token_texts` to rows that have ids and no texts."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._place = np.full(1, -1, np.int64)  # id -> its place in _texts, -1: not decoded yet
        self._texts: pa.Array[Any] = pa.array([], pa.string())

    def added(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with texts; unchanged if they have no ids, or have texts already."""
        ids: Any = records.column("token_ids")
        texts = records.column("token_texts")
        if texts.null_count < len(texts) or ids.null_count == len(ids):
            return records
        flat = ids.flatten().to_numpy(zero_copy_only=False)
        known = (flat >= 0) & (flat < _LARGEST)
        self._learn(flat[known])
        offsets = np.concatenate(([0], np.cumsum(token_counts(ids))))
        values = self._texts.take(pa.array(self._place[np.where(known, flat, 0)], pa.int64(), mask=~known))
        column = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=ids.is_null())
        return records.set_column(
            records.schema.get_field_index("token_texts"), records.schema.field("token_texts"), column
        )

    def _learn(self, ids: Integers) -> None:
        missing = int(ids.max(initial=0)) + 1 - len(self._place)
        if missing > 0:
            self._place = np.append(self._place, np.full(missing, -1, np.int64))
        unseen = np.unique(ids[self._place[ids] < 0])
        if not len(unseen):
            return
        texts = list(self._decode(unseen.tolist()))
        self._place[unseen] = np.arange(len(self._texts), len(self._texts) + len(unseen))
        self._texts = pa.concat_arrays([self._texts, strings(texts)])


def decoder(tokenizer: Any) -> Decode:
    """Texts of single tokens. From a copy: a fast tokenizer raises in the trainer's thread while another one is using it."""
    tokenizer = copy.deepcopy(tokenizer)

    def decode(ids: Sequence[int]) -> list[str]:
        texts = [
            tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False) for token in ids
        ]
        pieces = tokenizer.convert_ids_to_tokens(list(ids))
        # a decoder that strips the leading space of a text strips it from every single token too
        return [
            f" {t}" if p and p.startswith("\u2581") and not t.startswith(" ") else t
            for t, p in zip(texts, pieces, strict=True)
        ]

    return decode
