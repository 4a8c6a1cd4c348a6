"""The class of a token by its text, and the slice by it, against a count made by hand."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope import Collector, open_run
from ratioscope.metrics.analysis.token_classes import MEANINGS, token_class, token_classes

EXPECTED = {
    "word start": [" the", "Ġthe", "▁the", " Übung", "\n\nThe", " naïve"],
    "word piece": ["ing", "The", "漢字", "é", "हिन्दी"],
    "digits": ["42", " 42", "▁7", "１２", "²"],
    "punctuation": [".", " (", "...", "==", "€", " +="],
    "whitespace": [" ", "\n\n", "\t", "ĠĠ", "Ċ", "<0x0A>", "\u3000"],
    "special": ["<|im_end|>", "</s>", "<s>", "<｜end▁of▁sentence｜>", "[INST]", "[/INST]", "<unk>", "<think>"],
    "mixed": ["'s", ").\n", "x1", "a.", "\x00"],
    "part of a character": ["\ufffd", " \ufffd", "<0xE2>"],
    "empty": [""],
}


@pytest.mark.parametrize(("wanted", "text"), [(name, text) for name, texts in EXPECTED.items() for text in texts])
def test_a_text_is_of_its_class(wanted: str, text: str) -> None:
    assert token_class(text) == wanted


def test_every_class_has_a_meaning_and_an_example() -> None:
    assert set(EXPECTED) == set(MEANINGS)


@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=4), max_size=5), max_size=6))
def test_lists_of_texts_have_the_classes_of_their_texts(lists: list[list[str | None] | None]) -> None:
    found = token_classes(pa.array(lists, pa.list_(pa.string()))).to_pylist()
    assert found == [None if row is None else [None if t is None else token_class(t) for t in row] for row in lists]
    sliced = token_classes(pa.chunked_array([pa.array([["a", "."], *lists], pa.list_(pa.string())).slice(1)]))
    assert sliced.to_pylist() == found


def test_the_slice_by_token_class_measures_what_a_loop_over_tokens_does(tmp_path: Path) -> None:
    texts = [[" the", "ing", ".", "7"], ["\n", " a", "."], ["<|im_end|>"]]
    draws = np.random.default_rng(0)
    rollout = [(-draws.exponential(1.0, len(row))).astype(np.float32) for row in texts]
    old = [-np.abs(row + draws.normal(0, 0.2, len(row))).astype(np.float32) for row in rollout]
    with Collector(tmp_path / "run") as collector:
        for step in range(3):
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, token_texts=texts)
    found = open_run(tmp_path / "run").metrics("token_class")
    sums: dict[str, list[float]] = {}
    for row, earlier, later in zip(texts, rollout, old, strict=True):
        for text, r, o in zip(row, earlier, later, strict=True):
            x = float(o) - float(r)
            sums.setdefault(token_class(text), []).append(np.expm1(x) - x)
    assert sorted(sums) == found["token_class"].to_list()
    for name, tokens, value in found.select("token_class", "mismatch/tokens", "mismatch/kl_k3").rows():
        assert tokens == 3 * len(sums[name])
        assert value == pytest.approx(np.mean(sums[name]), rel=1e-5)


def test_without_texts_there_is_no_such_slice(tmp_path: Path) -> None:
    with Collector(tmp_path / "run", text="ids") as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]], token_texts=[["a"]], token_ids=[[1]])
    assert open_run(tmp_path / "run").metrics("token_class").is_empty()
