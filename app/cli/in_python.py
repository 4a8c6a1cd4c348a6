"""The answers of verbs as objects for Python and notebooks: `Run.diagnose`, `Run.compare` and `Run.report`.

They print the sentences of the verbs, and hold what the verbs print as JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.ingest.run import Run

from ..documents.material import Material, material
from ..export.whole_file import demand_free, whole_files
from ..presentation.escape import html, visible
from .commands.diagnose import diagnosed, plain_diagnosed
from .commands.diff import answer_of, plain_compared
from .commands.report import ENDINGS, rendered

LONGEST = 1000
"""Characters of a sentence that is shown."""


@dataclass(frozen=True, repr=False)
class Answer:
    """An answer in sentences and as data."""

    sentences: tuple[str, ...]
    """The answer first."""
    plain: Mapping[str, Any]
    """The members that the verb prints with --json."""

    def __repr__(self) -> str:
        return "\n".join(visible(sentence, LONGEST) for sentence in self.sentences)

    def _repr_html_(self) -> str:
        first, *others = (html(sentence, LONGEST) for sentence in self.sentences)
        return f"<div>{'<br/>'.join([f'<b>{first}</b>', *others])}</div>"


def diagnosis(run: Run, gap: str | None, steps: Sequence[int] | None) -> Answer:
    """The diagnosis of a run, or the size of its drift. SourceError where nothing can be diagnosed."""
    from ratioscope.ingest.analysis.diagnosis import SAMPLED, diagnosed_gap
    from ratioscope.ingest.analysis.drift import drift_of, plain_drift

    from ..presentation.answer import words_of
    from ..presentation.cause_facts import share_words
    from ..presentation.sentence import capital

    if diagnosed_gap(run, gap) not in SAMPLED:
        drift = drift_of(run, steps)
        return Answer((f"{run.name}: {drift.words}",), {"name": run.name} | plain_drift(drift))
    found = result, verdict, known = diagnosed(run, gap, steps)
    words = words_of(verdict, result, known)
    causes = [
        f"{place}. {capital(item.title)}: {share_words(item)}"
        for place, item in enumerate(result.diagnosis.likely, start=1)
    ]
    told = (f"{run.name}: {words.brief}", f"Do: {words.do}" if words.do else "", *causes)
    return Answer(tuple(filter(None, told)), plain_diagnosed(run, found))


def comparison(run: Run, other: Run, gap: str | None) -> Answer:
    """The comparison of the other run with this one. ConfigError for a gap that both lack."""
    from ..presentation.difference import common_gap, difference, headline, pairs_in_words, parting_in_words

    compared = difference(run, other, common_gap(run, other, gap))
    answers = [answer_of(each) for each in (run, other)]
    told = (f"{letter}: {words}" for letter, (_, words) in zip("AB", answers, strict=True))
    sentences = (headline(compared), *told, pairs_in_words(compared), parting_in_words(compared))
    return Answer(sentences, plain_compared(compared, [plain for plain, _ in answers]))


class Report:
    """The report of a run, which is made when it is first shown or saved."""

    def __init__(self, run: Run, text: bool) -> None:
        self._run, self._text = run, text

    @cached_property
    def _read(self) -> Material:
        return material(self._run, text=self._text)

    def html(self) -> str:
        """One page that needs no network and runs no script."""
        return rendered(self._read, ".html")

    def markdown(self) -> str:
        """The same as Markdown, without charts."""
        return rendered(self._read, ".md")

    def json(self) -> str:
        """The same as data."""
        return rendered(self._read, ".json")

    def save(self, path: str | Path) -> Path:
        """Writes or replaces a file that ends in .html, .md or .json; it appears whole or not at all. ConfigError."""
        path = Path(path)
        if path.suffix not in ENDINGS:
            raise ConfigError(f"save({str(path)!r}): wanted a name that ends in {', '.join(ENDINGS)}")
        demand_free([path], force=True)
        content = rendered(self._read, path.suffix).encode()
        with whole_files([path], force=True) as (file,):
            file.write(content)
        return path

    def __repr__(self) -> str:
        texts = "with prompts and token texts" if self._text else "without texts"
        return f"<Report of {visible(self._run.name, LONGEST)!r}, {texts}; save(PATH) writes {', '.join(ENDINGS)}>"
