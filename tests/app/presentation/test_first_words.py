"""The first words on a run: one composer writes them, and no face words them by itself."""

import ast
import re
from collections.abc import Iterator

import pytest
from support.fault_runs import RUNS, diagnosis
from support.paths import ROOT

from ratioscope.app.presentation.answer import first_words, words_of
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.run import open_run
from ratioscope.metrics.diagnosis.diagnosis import HEADLINE

COMPOSER = "presentation/answer.py"
OF_CAUSES = "presentation/cause_facts.py"
"""The facts of each cause, of which the remedy is one."""
JSON = ("cli/commands/bundle.py", "cli/commands/diff.py", "cli/commands/info.py", "cli/commands/report.py")
"""Verbs whose JSON has the verdict, or the answer of the diagnosis, as a value of its own."""
READ = {
    "title": (r"verdict|finding", (COMPOSER,)),
    "brief": (r"verdict|finding", (COMPOSER,)),
    "sentence": (r"verdict|finding", (COMPOSER, *JSON)),
    "answer": (r"diagnosis", (COMPOSER, *JSON)),
    "remedy": (r"cause", (COMPOSER, OF_CAUSES)),
}
"""Attribute -> the names of its owners, and the files that may read it."""


def reads() -> Iterator[tuple[str, str]]:
    """(attribute, file) of each read of the words of a verdict, a diagnosis or a cause."""
    for file in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in READ:
                owner = ast.unparse(node.value)
                last = re.split(r"[.(]", owner.rstrip("()"))[-1] if not owner.endswith(")") else owner.partition("(")[0]
                if re.search(rf"(?:^|[._])(?:{READ[node.attr][0]})(?:_of)?$", last):
                    yield node.attr, file.relative_to(ROOT / "app").as_posix()


def test_the_words_of_a_verdict_are_read_by_their_composer_and_by_json_alone() -> None:
    found = set(reads())
    assert not {(name, file) for name, file in found if file not in READ[name][1]}
    assert {name for name, file in found if file == COMPOSER} >= {"title", "answer", "remedy"}


def test_the_cause_leads_where_there_is_one_and_the_verdict_where_there_is_none() -> None:
    run = open_run(ROOT / "sample_data/runs/trl-vllm-stale")
    verdict, result = verdict_of(run), diagnosis_of(run)
    words, alone = words_of(verdict, result), first_words(verdict)
    assert words.sentence == "act: Weight syncs broke at one step: 236 times the gap from step 21 on (high confidence)."
    assert words.below[0].startswith(alone.title.capitalize())
    assert alone.brief == verdict.brief and not alone.diagnosis


@pytest.mark.parametrize("name", [run.name for run in RUNS])
def test_a_headline_names_the_first_cause_in_few_words(name: str) -> None:
    found = diagnosis(name)
    assert len(found.headline.split()) <= HEADLINE + 5, found.headline
    if found.likely and not found.is_copy:
        first = found.likely[0]
        title = first.cause.title_at(first.side)
        named = title.partition(", or ")[0] if first.rivals else title  # a set of few words has the first clause
        assert named.lower() in found.headline.lower()
        assert found.headline != found.answer and not re.search("explains [0-9]+% of", found.headline)
