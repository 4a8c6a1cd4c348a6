"""The tokens of a response as engines spell them: the text of each, its bytes, or its id as `token_id:5`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ratioscope.errors import FieldError

from .row import Row
from .topk import named_id

TOKEN_TEXTS = "token_texts"
"""The column of the Record."""


def token_texts(value: Any, row: Row) -> list[str | None] | None:
    """The text of each token, None where only its id is spelled; nothing where no token has a text.

    value: a list of mappings with `bytes` or `token`, of lists [log-prob, id, text], or of texts. The bytes count first: vLLM has
    the text there alone if return_tokens_as_token_ids was set. U+FFFD stands for bytes that are only a part of a character.
    """
    texts = [_text(part) for part in value] if isinstance(value, list) else []
    return texts if any(text is not None for text in texts) else None


def spelled_ids(value: Any, row: Row) -> Any:
    """The ids that tokens are spelled as, such as `token_id:5`, or the ids themselves; nothing where one has none."""
    if not isinstance(value, list) or not any(isinstance(part, str | Mapping) for part in value):
        return value
    ids = [named_id(part.get("token") if isinstance(part, Mapping) else part) for part in value]
    return None if None in ids else ids


def demand_texts(value: Any) -> list[str | None]:
    """The value as a list of texts. FieldError for anything else."""
    texts = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(texts, list | tuple) or not all(each is None or isinstance(each, str) for each in texts):
        raise FieldError("it is no list of texts; wanted the text of each token")
    return list(texts)


def _text(part: Any) -> str | None:
    if isinstance(part, Mapping):
        text = _of_bytes(part.get("bytes")) or part.get("token")
    else:
        text = (part[2] if len(part) > 2 else None) if isinstance(part, list) else part
    return text if isinstance(text, str) and named_id(text) is None else None


def _of_bytes(listed: Any) -> str | None:
    try:
        return bytes(listed).decode("utf-8", "replace") if isinstance(listed, list) else None
    except (TypeError, ValueError):
        return None
