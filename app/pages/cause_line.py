"""One line with the answer of the diagnosis, for pages on symptoms."""

from collections.abc import Iterator

from ..blocks import Paragraph
from ..presentation.answer import answer_of
from .answered import Answered
from .scope import Scope
from .view import View


def cause_line(scope: Scope) -> Iterator[Paragraph]:
    """One line with the answer, for pages on symptoms; nothing while there is none."""
    known = scope.view.diagnosis()
    if known is not None and known.result is not None:
        answer, older = answer_of(known.result, scope.view.verdict()), age_note(scope.view, known)
        head = "Likely cause:" if known.result.diagnosis.likely else "Diagnosis:"
        yield Paragraph(f"{answer.sentence}{f' ({older})' if older else ''}", head=head)


def age_note(view: View, known: Answered) -> str:
    """The step up to which an older diagnosis reaches; empty for that of the view's revision."""
    return "" if known.revision >= view.revision else f"as of step {known.last_step}"
