"""The class of a token by its text (word, digits, punctuation, ...), to show which kind of token has a gap.

A text is decoded by the tokenizer (` word`) or an entry of its vocabulary (`Ġword`, `▁word`, `Ċ`, `<0x0A>`).
"""

import re
import unicodedata
from collections.abc import Sequence

import pyarrow as pa

from ..engines.arrow_columns import ArrowColumn, pc, whole

WORD_START, WORD_PIECE, DIGITS, PUNCTUATION = "word start", "word piece", "digits", "punctuation"
WHITESPACE, SPECIAL, MIXED, PART, EMPTY = "whitespace", "special", "mixed", "part of a character", "empty"
MEANINGS = {
    WORD_START: "letters after a space",
    WORD_PIECE: "letters without a space before them: the rest of a word, or a script without spaces",
    DIGITS: "digits, with or without a space before them",
    PUNCTUATION: "punctuation and symbols, with or without a space before them",
    WHITESPACE: "spaces, tabs and line breaks alone",
    SPECIAL: "control tokens such as <|im_end|>, </s> and [INST]",
    MIXED: "anything else, such as 's or ).\\n",
    PART: "bytes that are only a part of a character",
    EMPTY: "no text: often a control token that decoding leaves out",
}
"""class -> its texts, in words."""

_SPECIAL = re.compile(r"<[|｜].*[|｜]>|</?[A-Za-z][A-Za-z0-9_]*>|\[/?[A-Z][A-Z0-9_]*\]")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPELLED = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n", "ĉ": "\t", "č": "\r"})


def token_class(text: str) -> str:
    """The class of a token's text, one of MEANINGS.

    >>> token_class(" the"), token_class("ing"), token_class(" 42"), token_class("<|im_end|>"), token_class("'s")
    ('word start', 'word piece', 'digits', 'special', 'mixed')
    """
    if not text:
        return EMPTY
    if _SPECIAL.fullmatch(text):
        return SPECIAL
    if byte := _BYTE.fullmatch(text):
        code = int(byte[1], 16)
        return token_class(chr(code)) if code < 0x80 else PART
    plain = text.translate(_SPELLED)
    if plain.isspace():
        return WHITESPACE
    if "\ufffd" in plain:
        return PART
    bare = plain.lstrip()
    kinds = {_kind(character) for character in bare}
    if kinds == {"letter"}:
        return WORD_START if len(bare) < len(plain) else WORD_PIECE
    if kinds == {"digit"}:
        return DIGITS
    return PUNCTUATION if kinds == {"sign"} else MIXED


def token_classes(texts: ArrowColumn) -> ArrowColumn:
    """A list of classes per list of texts; null for a null list or text. Every distinct text is classified once."""
    lists = whole(texts)
    flat = whole(lists.flatten())
    coded = flat if pa.types.is_dictionary(flat.type) else flat.dictionary_encode()
    classes = pa.array(_classes(coded.dictionary.to_pylist()), pa.string())
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    return pa.ListArray.from_arrays(offsets, classes.take(coded.indices), mask=pc.is_null(lists))


def _classes(texts: Sequence[str | None]) -> list[str | None]:
    return [None if text is None else token_class(text) for text in texts]


def _kind(character: str) -> str:
    """letter (with its marks), digit, sign or other."""
    category = unicodedata.category(character)
    if category[0] in "LM":
        return "letter"
    return {"N": "digit", "P": "sign", "S": "sign"}.get(category[0], "other")
