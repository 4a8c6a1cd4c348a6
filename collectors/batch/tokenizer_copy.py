"""Texts of single tokens from a Hugging Face tokenizer, without touching the one that the trainer is using."""

import copy
from collections.abc import Sequence
from typing import Any

from .token_texts import Decode


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
