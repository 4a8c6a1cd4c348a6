"""The Why page: why the policies are apart, with each cause's proof and remedy, what is ruled out, and what stays open.

The texts of the Why page: rows of its tables, and the lines that record a missing column.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
from ratioscope.ingest.analysis.gap_history import gap_size
from ratioscope.ingest.analysis.known_context import KnownContext
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely

from ..blocks import (
    Action,
    Actions,
    At,
    Beside,
    Block,
    Box,
    Charts,
    Code,
    Drawer,
    Facts,
    Heading,
    Link,
    Links,
    Markup,
    Paragraph,
    Section,
    Waiting,
)
from ..figures.html.cause import cause_card
from ..figures.html.reasons import reasons
from ..presentation.cause_facts import (
    PARTS,
    cause_facts,
    change_parts,
    context_facts,
    settings_of,
    share_words,
    stays_open,
)
from ..presentation.digits import count
from ..presentation.gap_words import difference_words, direction
from ..presentation.metric_places import metrics_at
from ..presentation.parity_words import PARITY, parity_sentence
from ..presentation.sentence import capital, sentence
from ..presentation.size_words import NAME, size_words
from ..referee.answer import SideOff
from ..referee.engine_part import ENGINE_PART
from .answered import Answered
from .gaps import gaps_of_readings
from .head import head_of, verdict_rows
from .logged_numbers import recovered
from .scope import NO_STEPS, Scope
from .staleness import answers
from .step_choice import worst_step
from .timeline import courses
from .verdict import age_note, answer_to, engine_part_of, referee_of, undone, verdict_lines
from .where import answer_of

ANSWERS = "answers"
"""The place of the answers of the other tabs."""
SIDE = "Which side is off?"
DISTANCES = "K3 and mean |x| of the tokens that the referee read, nats/token. Errors take sequences as units."
BEING_MADE = "The diagnosis is being computed from token rows. This takes a few seconds."

VALUES = {
    "token_ids": ("ids", "of the sampled tokens, one list per sequence"),
    "entropy": ("entropy", "of the trainer's distribution, in nats, one per token"),
    "rollout_versions": ("versions", "of the weights that sampled: one per sequence, or one per token"),
    "trainer_version": ("version", "of the weights that computed old (else current) log-probs"),
    "replica": ("replicas", "names of the engine's replicas: one, or one per sequence"),
    "group_ids": ("groups", "of the prompts, one per sequence"),
    "cached_tokens": ("cached", "prompt tokens from the engine's prefix cache, one number per sequence"),
    "kv_versions": ("kv_versions", "of the weights whose keys and values each token was sampled with"),
    "media": ("media", "number of images, videos and sounds, one per sequence"),
    "pack_position": ("places", "of the sequences in their packed row, from 0"),
    "router_agreement": ("agreement", "share of experts that both sides chose, one per token"),
    "sampled_ids": ("sampled", "ids as the engine sampled them, one list per sequence"),
    "turns": ("turns", "number of the turn, one per token"),
}
"""Argument of Collector.log -> a name for its values, and their meaning and shape."""


def diagnosis(scope: Scope) -> Iterator[Block]:
    if not scope.recorded and not scope.steps.whole:
        yield Paragraph(NO_STEPS, "info")
        return
    known = scope.view.diagnosis(scope.gap, scope.chosen)
    yield Markup(verdict_lines(scope.view, known, brief=True))
    if who := parity_sentence(scope.view.run.info):
        yield Paragraph(who, head=PARITY)
    if known is None:
        yield Waiting("diagnosis_waits", BEING_MADE, partial(_is_there, scope))
        return
    scope.face.place(ANSWERS)
    yield from _found(scope, known)
    yield At(ANSWERS, tuple(_answers(scope, is_parity=bool(who))))


def _answers(scope: Scope, *, is_parity: bool) -> Iterator[Block]:
    """The answers of the other tabs, each with a link there. They come last, because they may have to read statistics.

    Two scorers have no training's versions and settings.
    """
    if not (scope.gap and scope.recorded) or scope.view.run.no_tokens:
        return
    others = () if is_parity else answers(scope)
    told = [("where", answer_of(scope), "where"), *((name, words, "staleness") for name, words in others)]
    yield Links("other_tabs", [(name, words, Link(page), "") for name, words, page in told if words])


def _found(scope: Scope, known: Answered) -> Iterator[Block]:
    """The causes, the verdict, what the record cannot tell, and what is ruled out."""
    if known.result is None:
        yield Paragraph(f"No diagnosis: {known.reason}.", "info")
        if scope.view.run.no_tokens:
            yield from recovered(scope)
    else:
        yield from _likely(scope, known, known.result)
    verdict = scope.view.judged_verdict()
    yield Heading("Verdict")
    sized = size_words(scope.view.of(gap_size, scope.gap, scope.chosen) if scope.gap else None, scope.floor)
    yield Facts([*([(NAME, sized)] if sized else []), *verdict_rows(verdict, answer_to(verdict, known))])
    if side := referee_of(scope):
        yield Heading(SIDE)
        yield from _side(side)
    yield from _engine_part(scope)
    if known.result is not None:
        yield from _beside(known.context)
        yield from _open(known.result, is_parity=known.context is not None and known.context.is_parity)
        yield from _read(scope, known.result)


def _engine_part(scope: Scope) -> Iterator[Block]:
    """The part of the gap that is the engine's; nothing unless a server read the run."""
    if part := engine_part_of(scope):
        yield Heading(ENGINE_PART)
        yield Paragraph(part.sentence, "lead")


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("diagnosis", "Diagnosis", partial(_printed_diagnosis, scope))
    yield Section("side", SIDE, partial(_printed_side, scope))


def _side(side: SideOff) -> Iterator[Block]:
    yield Paragraph(side.sentence, "lead")
    yield Facts(side.facts)


def _printed_side(scope: Scope) -> Iterator[Block]:
    """The engine's part, the answer of the referee, and the gaps of its readings over the steps; nothing without readings."""
    yield from _engine_part(scope)
    side = referee_of(scope)
    if side is None:
        return
    yield from _side(side)
    yield Paragraph(DISTANCES, "small")
    for gap in scope.view.of(gaps_of_readings, scope.gap):
        if gap != scope.gap:
            title = f"{direction(gap)} over the steps, {gap}: {difference_words(gap)}"
            yield Drawer(title, partial(_charts_of, scope, gap))


def _charts_of(scope: Scope, gap: str) -> Iterator[Block]:
    yield courses(scope, gap, metrics_at("first", gap))


def _printed_diagnosis(scope: Scope) -> Iterator[Block]:
    """The causes, the verdict, what stays open and what is ruled out, as facts; without those that head the report."""
    known, verdict = scope.view.diagnosis(), scope.view.judged_verdict()
    told = {text for _, text in head_of(scope, known).facts}
    if known is None or known.result is None:
        yield Facts([row for row in verdict_rows(verdict, None) if row[1] not in told])
        return
    found, context = known.result.diagnosis, known.context
    for place, item in enumerate(found.likely):
        yield Heading(f"{place + 1}. {capital(item.title)}")
        facts = [("share", share_words(item)), *cause_facts(item, context)]
        yield Facts([row for row in facts if row[1] not in told])
        if picture := undone(item, known.result.gap, f"undoing_{place}"):
            yield Charts((picture,))
        if settings := settings_of(item.cause.code, context):
            yield Code(settings.splitlines(), "python")
    if found.likely:
        yield Heading("Verdict")
    excluded = [(item.cause.title, item.because) for item in found.excluded]
    rows = (
        *verdict_rows(verdict, answer_to(verdict, known)),
        ("rest of the gap", found.rest_in_words),
        ("the record cannot tell", stays_open(found)),
        *(() if context is None else context_facts(context)),
        ("next", known.result.next.do if known.result.next else ""),
        ("diagnosed from", known.result.read.removeprefix("Read: ")),
        ("ruled out", "; ".join(title for title, _ in excluded)),
    )
    yield Facts([(name, text) for name, text in rows if text and text not in told])
    if excluded:
        yield Drawer(f"what was measured of {count(len(excluded), 'cause')} ruled out", lambda: (Facts(excluded),))


def _is_there(scope: Scope) -> bool:
    return scope.view.diagnosis(scope.gap, scope.chosen) is not None


def _likely(scope: Scope, known: Answered, result: RunDiagnosis) -> Iterator[Block]:
    older = age_note(scope.view, known)
    notes = (
        "" if scope.steps.whole else "The diagnosis is of the chosen steps, the severity is of the whole run.",
        f"This diagnosis is {older}. A newer one follows." if older else "",
    )
    if any(notes):
        yield Paragraph(" ".join(filter(None, notes)), "muted")
    likely = result.diagnosis.likely
    if likely:
        yield Heading("Likely cause" if len(likely) == 1 else f"Likely causes ({len(likely)})")
    for place, item in enumerate(likely):
        yield Box(f"cause_{place}", tuple(_cause(item, place, result.gap, known.context)))
    yield Paragraph(result.diagnosis.rest_in_words)


def _cause(item: Likely, place: int, gap: str, context: KnownContext | None) -> Iterator[Block]:
    title, share = f"{place + 1}. {capital(item.title)}", None if item.share is None else item.of_whole
    card = Markup(partial(cause_card, title, share_words(item), share, cause_facts(item, context)))
    picture = undone(item, gap, f"undoing_{place}")
    yield card if picture is None else Beside(f"cause_{place}_parts", ((card,), (picture,)))
    if settings := settings_of(item.cause.code, context):
        yield Paragraph("Settings of the correction to use meanwhile:", "muted")
        yield Code(settings.splitlines(), "python")


def _beside(context: KnownContext | None) -> Iterator[Block]:
    """Facts that bear on the gap and change no severity, and the parts of each change of the gap."""
    if context is None or not (facts := context_facts(context)):
        return
    yield Heading("Beside the gap")
    yield _table("Beside the gap", ("fact", "on record"), facts)
    for change in context.growth.changes:
        if rows := change_parts(change):
            name = f"Parts of the change at step {change.course.onset}, by {PARTS[0]}"
            yield Heading(name)
            yield _table(name, PARTS, rows)


def _open(result: RunDiagnosis, *, is_parity: bool) -> Iterator[Block]:
    """The causes that the record cannot tell, with what records them in a training, and those that are ruled out."""
    if unknown := result.diagnosis.cannot_tell:
        yield Heading(f"The record cannot tell ({len(unknown)})")
        yield _table("The record cannot tell", ("because", "causes that stay open"), open_rows(result.diagnosis))
    if not is_parity and (arguments := result.to_record({fact for item in unknown for fact in item.missing})):
        yield Paragraph("These arguments record the missing columns:", "muted")
        yield Code(record_lines(arguments).split("\n"), "python")
    if excluded := excluded_rows(result.diagnosis):
        yield Heading(f"Ruled out ({len(excluded)})")
        yield _table("Ruled out", ("cause", "measured", "sensitivity"), excluded)


def _table(name: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Markup:
    """The rows as text that can be read whole. The downloads of the page have them too."""
    return Markup(partial(reasons, head, rows), name, pl.DataFrame(rows, schema=list(head), orient="row"))


def _read(scope: Scope, result: RunDiagnosis) -> Iterator[Block]:
    yield Heading("Rows read")
    yield Paragraph(result.read, "muted")
    worst = worst_step(scope.view, result.steps)
    about = "The worst sequence of the worst step that was read, token by token."
    steps = [Action(f"read_{step}", str(step), Link("samples", {"step": step}), is_plain=True) for step in result.steps]
    tokens = Action("worst_tokens", f"tokens of step {worst}", Link("tokens", {"step": worst}), about)
    yield Actions("steps_read", (*steps, tokens), before="Sequences of step")


def excluded_rows(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Cause, measured effect, and the smallest effect that would have been seen."""
    return [
        (capital(item.cause.title), sentence(item.effect), sentence(item.would_show)) for item in diagnosis.excluded
    ]


def open_rows(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Reason why the record cannot tell, and the causes that it leaves open."""
    causes: dict[str, list[str]] = {}
    for item in diagnosis.cannot_tell:
        causes.setdefault(sentence(item.because), []).append(item.cause.title)
    return [(because, sentence("; ".join(titles))) for because, titles in causes.items()]


def record_lines(arguments: Sequence[str]) -> str:
    """The call that records these arguments."""
    values = {name: VALUES.get(name, ("...", "")) for name in arguments}
    lines = {f"    {name}={value},": about for name, (value, about) in values.items()}
    wide = max(map(len, lines), default=0)
    return "\n".join(
        [
            "collector.log(",
            "    ...,",
            *(f"{line:{wide}}  # {about}".rstrip(" #") for line, about in lines.items()),
            ")",
        ]
    )
