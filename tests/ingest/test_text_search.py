"""The search in prompts and responses: against plain Python, and what it refuses."""

import re

import numpy as np
import pytest

from ratioscope.collectors.collector import Collector
from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis import text_search
from ratioscope.ingest.analysis.text_search import expression_of, text_hits
from ratioscope.ingest.run import Run, open_run

WORDS = ["Wait", " wait", ",", " é", "😀", " (a+b)", "\n", "ab", "a", ""]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One step: texts of bytes and lengths of all kinds, some prompts without and some responses without text."""
    draws = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("texts") / "run"
    with Collector(folder) as collector:
        for few, texts in ((24, True), (6, False)):
            logprobs = [[-1.0] * int(n) for n in draws.integers(1, 20, few)]
            collector.log(
                step=3,
                rollout_logprobs=logprobs,
                old_logprobs=logprobs,
                token_texts=[[WORDS[i] for i in draws.integers(0, 10, len(row))] for row in logprobs]
                if texts
                else None,
                prompt_texts=[[None, "what is (a+b)?", "WAIT!"][i % 3] for i in range(few)],
                sequence_ids=[f"{few}-{i}" for i in range(few)],
            )
    return open_run(folder)


@pytest.mark.parametrize(
    "typed", ["wait", "(a+b)", "é😀", "ab", "/^wa|b$/", r"/\(a.b\)/", "/a{1,2}b/", "/\\s+wait/", "nowhere"]
)
def test_hits_are_those_of_plain_python(run: Run, typed: str) -> None:
    expression = typed[1:-1] if typed.startswith("/") else re.escape(typed)
    found, rows = text_hits(run, 3, expression_of(typed)), {}
    for row in run.rows(3, ("prompt_text", "token_texts")).to_pylist():
        response = None if row["token_texts"] is None else "".join(row["token_texts"])
        hits = [[*re.finditer(expression, text or "", re.IGNORECASE)] for text in (row["prompt_text"], response)]
        if not any(hits):
            continue
        first = (hits[1] or hits[0])[0]
        ends = np.cumsum([len(text) for text in row["token_texts"] or ()])
        at = int(np.searchsorted(ends, first.start(), side="right")) if hits[1] else None
        rows[row["sequence_id"]] = (len(hits[0]) + len(hits[1]), at, re.sub(r"\s+", " ", f"«{first[0]}»"))
    shown = found.rows.select("sequence_id", "hits", "at", "match").rows()
    assert {name: (hits, at) for name, hits, at, _ in shown} == {name: told[:2] for name, told in rows.items()}
    assert all(rows[name][2] in match and match.startswith("prompt: ") == (at is None) for name, _, at, match in shown)
    assert (found.sequences, found.prompts, found.responses, found.searched) == (30, 20, 24, 28)
    assert found.matching == len(rows) and found.hits == sum(hits for hits, _, _ in rows.values())
    assert len(text_hits(run, 3, expression_of(typed), 2).rows) == min(2, len(rows))


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("/(/", "unclosed group"),
        (r"/(a)\1/", "backreferences are not supported"),
        ("/(?=a)/", "look-around"),
        ("/x*/", "fits the empty text"),
        ("/(.{0,50}){0,50}q/", "100 repeats in all"),
        (f"/{'a' * 300}/", "200 characters"),
        (r"/(\w{50}){2}(\w{1}\w\w\w\w){1}(\pL|\pN|\w|\S){100,}/", "100 repeats in all"),
    ],
)
def test_a_wrong_or_hopeless_expression_is_explained(typed: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.*wanted|wanted.*{why}"):
        expression_of(typed)


def test_an_expression_that_takes_too_long_is_given_up(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_search, "SECONDS", -1.0)
    found = text_hits(run, 3, expression_of("a"))
    assert "too slow: only 0 of 30 sequences of step 3" in found.too_slow and found.searched == 0 == len(found.rows)
    assert (found + found).too_slow == found.too_slow
