"""The Tokens page: one sequence with tinted text, and every recorded curve below it on the same axis."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.ingest.rows.sequence_json import SNIPPET, sequence_json
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.token_values import BY_NAME, VALUES
from ratioscope.record import POLICIES, sides

from ..blocks import Action, Actions, Block, Chart, Code, Download, Drawer, Link, Markup, Paragraph
from ..figures.drawing.plotly_objects import go
from ..figures.html.tinted_text import OPEN, WeightBand, token_values
from ..figures.strip_chart import strip_at, token_strip
from ..presentation.digits import count
from ..presentation.escape import visible
from ..presentation.metric_places import titled
from ..presentation.slice_names import part_words
from ..presentation.theme import THEMES, ThemeName
from .face import Choice, Face, Number, Several, Step, Switch
from .scope import Scope
from .sequence_filters import known
from .sequence_list import Ranked, asked_sequence, ranked, sequence_list
from .sequence_text import SequenceKey, Tint, tinted, to_token
from .side_by_side import MOST, Shown, compared, side_by_side
from .step_choice import FACTS, known_facts, no_rows, rows_of, with_part_only
from .view import View
from .worst import sequence_facts
from .worst_of_run import worst_listed, worst_of

WINDOW = 500
"""Number of tokens whose text is shown; the strip chart shows all. Twice as many take twice as long to draw."""
BEFORE = 125
"""Number of tokens shown before the chosen one."""
LONGEST_TEXT = 40
"""Characters of a token's text beside its number. The text itself shows all of them."""
STRIPS = 5
"""Number of sequences whose curves a file has, the worst of the run."""
AROUND = 20
"""Tokens on either side of the chosen one, in the JSON."""
SHOWN = 40_000
"""Most characters of JSON that are shown for copying; a longer one can be downloaded."""
CHOSEN = (
    WeightBand(0.8, 1.2),
    WeightBand(0.5, 2.0),
    WeightBand(0.2, 5.0),
    WeightBand(0.1, 10.0),
    WeightBand(high=2.0),
    WeightBand(high=5.0),
    WeightBand(high=10.0),
)
BANDS = {"none": OPEN, **{band.words: band for band in CHOSEN}}
"""Bands of weights outside which tokens can be hatched: the usual PPO clip first, then bands and caps of trainers."""
KEYS = (
    "click a token to choose it · keys: j / k next and previous sequence · n / Shift+N next worse token and back · ] / [ (or"
    " Shift+J / Shift+K) next and previous step"
)
ABSENT = {
    "token_text": ("text", "token_texts"), "token_id": ("ids", "token_ids"), "entropy": ("entropy", "entropy"),
    "advantage": ("advantages", "advantages"), "rollout_version": ("weight version per token", "rollout_versions"),
}  # fmt: skip
"""Column of the tokens -> its name in words, and the argument of `log` and column of the Record that hold it."""
CAUSES = (
    "prompt_tokens", "cached_tokens", "media", "pack_index", "pack_position", "replayed", "queue_seconds", "generation_seconds",
)  # fmt: skip
"""Facts of a sequence that may be the cause of its gap."""


def tokens(scope: Scope) -> Iterator[Block]:
    view, gap, face = scope.view, scope.gap, scope.face
    with face.row("sequence"):
        step = face.ask(Step(view, gap, follows=True))
        every = pl.DataFrame() if step is None else rows_of(view, step, gap)
        frame = every if step is None or every.is_empty() else with_part_only(scope, every, step)
        sequence_id, minibatch, rows, listed, others = "", None, frame, None, []
        if step is not None and len(frame):
            listed = ranked(frame, gap)
            sequence_id = asked_sequence(face, listed, step)
            rows = frame.filter(pl.col("sequence_id") == sequence_id)
            minibatch = _asked_minibatch(face, rows)
            others = _asked_others(face, listed, sequence_id, step)
    if step is None:
        yield from _strips_of_run(scope)
        return
    if every.is_empty():
        yield from no_rows(view, step, gap)
        return
    if scope.only is not None:
        some = "no sequence of this step has" if frame.is_empty() else "whole sequences with"
        yield Paragraph(f"{some} a token of {part_words(scope.only)}", "muted", "Only")
    if listed is None:
        return
    aside, beside_it = face.aside("samples", f"{count(len(listed.rows), 'sequence')} of this step, the worst first")
    with aside:
        yield from sequence_list(view, step, listed, sequence_id)
    with beside_it:
        shown = [_of_step(view, step, frame, name, minibatch) for name in (sequence_id, *others)]
        yield from _chosen(scope, shown, listed)


def _of_step(view: View, step: int, frame: pl.DataFrame, sequence_id: str, minibatch: int | None) -> Shown:
    """A sequence at this minibatch, or at its first one, and its row."""
    rows = frame.filter(pl.col("sequence_id") == sequence_id)
    here = rows.filter(pl.col("minibatch").eq_missing(minibatch)) if "minibatch" in rows.columns else rows
    row = (here if len(here) else rows).row(0, named=True)
    return SequenceKey(view, step, sequence_id, minibatch if len(here) else row["minibatch"]), row


def _chosen(scope: Scope, shown: Sequence[Shown], listed: Ranked) -> Iterator[Block]:
    """The text, the strip and the facts of the first sequence, and the texts of the others beside it."""
    view, gap, face = scope.view, scope.gap, scope.face
    chosen, row = shown[0]
    at = yield from _sequence(face, shown, gap)
    facts = [count(len(chosen.tokens), "token"), *known_facts(row, (*FACTS, *CAUSES), 60)]
    group, actions = row.get("group_id"), []
    if isinstance(group, str):
        own = [row["sequence_id"], *listed.rows.filter(group_id=group)["sequence_id"]]
        actions = [Action("siblings", "all samples of this prompt", Link("samples", {"group": group}), is_plain=True)]
        if len(set(own)) > 1:
            beside = Link("", {"beside": compared(own).choices["beside"]})
            actions.append(Action("siblings_beside", "side by side", beside, is_plain=True))
    yield Actions("facts", tuple(actions), before=" · ".join(facts))
    if told := " · ".join(_not_recorded(view.run, chosen.tokens, row)):
        yield Paragraph(told, "muted")
    prompt = row.get("prompt_text")
    if isinstance(prompt, str):
        yield Drawer("prompt", lambda: (Code(prompt.split("\n"), name="prompt"),))
    about = {**row, "step": chosen.step, "run": view.run.name, "trainer": view.run.info.get("trainer")}
    yield Drawer("JSON of this sequence", partial(_json, face, chosen, about, at), "json")
    yield Paragraph(KEYS, "muted")


def _asked_minibatch(face: Face, rows: pl.DataFrame) -> int | None:
    """The minibatch whose current policy is shown, if the sequence went through several."""
    minibatches = rows["minibatch"].drop_nulls().unique().sort().to_list() if "minibatch" in rows.columns else []
    if len(minibatches) < 2:
        return minibatches[0] if minibatches else None
    return int(face.ask(Choice("minibatch", "minibatch", minibatches, minibatches[0], look="segments")))


def _asked_others(face: Face, listed: Ranked, chosen: str, step: int) -> list[str]:
    """The ids of the sequences that stand beside the chosen one. Those of its prompt are offered first."""
    names, own = listed.names, listed.rows.filter(sequence_id=chosen)
    if len(names) == 1:
        return []
    of_prompt = pl.col("group_id").is_in(own["group_id"]) if known(own, "group_id") else pl.lit(value=True)
    near = [visible(name) for name in listed.rows.filter(of_prompt)["sequence_id"]]
    offered = [*dict.fromkeys((*near, *names))]
    absent = f"Sequence {{}} is not in step {step} of this run, and nothing stands beside this one."
    asked = Several(
        "beside", "side by side with", offered, width=300, placeholder="another", most=MOST - 1, absent=absent
    )
    return [names[name] for name in face.ask(asked) if names[name] != chosen]


def _sequence(face: Face, shown: Sequence[Shown], gap: str) -> Generator[Block, None, int | None]:
    """The text and the strip. Returns the row of the chosen token, else of the worst."""
    chosen, _ = shown[0]
    tokens, of = chosen.tokens, (chosen.view.path, chosen.step, chosen.sequence_id)
    last = len(tokens) - 1
    with face.row("token", labelled=False):
        with face.menu("colours", "colours", icon="palette"):
            by, band = _asked_tint(face, gap)
        _, _, values = token_values(tokens, gap, BY_NAME[by])
        order = worst_order(values, tokens, by)
        at = None
        if len(tokens):
            wanted = face.ask(
                Number("at", "token", None, 0, last, width=150, placeholder="token", has_title=False, of=of)
            )
            at = None if wanted is None else int(wanted)
            yield from _worse(tokens, order, at)
    if _unknown(tokens, gap):
        earlier, later = sides(gap)
        yield Paragraph(
            f"The text is not coloured, because this sequence has no {gap}: it needs the log-probs of {earlier} and {later}.",
            "muted",
        )
    tint, window = Tint(by, band, at), None
    if len(shown) > 1:
        yield from side_by_side(shown, gap, tint)
    else:
        window = yield from _text(face, chosen, gap, tint)
    yield Chart(
        "strip",
        f"Log-ratio, log-probs and entropy of {count(len(tokens), 'token')}",
        _strip_at,
        (chosen, gap, at, window),
        wide=True,
        numbers=lambda: tokens,
        leads=_clicked,
        hint="a click chooses a token",
    )
    return at if at is not None else next(iter(order), None)


def _text(face: Face, chosen: SequenceKey, gap: str, tint: Tint) -> Generator[Block, None, tuple[int, int] | None]:
    """The text. Returns the positions of its first and its last token; None if all are there."""
    first, window, last = 0, None, len(chosen.tokens) - 1
    if last >= WINDOW:
        most, of = last + 1 - WINDOW, (chosen.view.path, chosen.step, chosen.sequence_id, tint.at)
        around = 0 if tint.at is None else min(max(tint.at - BEFORE, 0), most)
        title = f"text of {WINDOW:,} tokens from position"
        first = int(face.ask(Number("from", title, around, 0, most, look="slider", of=of)) or 0)
        window = (first, first + WINDOW - 1)
    text = partial(chosen.view.figure, tinted, chosen, gap, tint, first, WINDOW, None)
    yield Markup(lambda theme: text(theme.name), leads=to_token)
    return window


def _asked_tint(face: Face, gap: str) -> tuple[str, WeightBand]:
    formulas = "\n\n".join(f"{value.title}: {value.formula}" for value in VALUES)
    names, usual = [*BY_NAME], (CHOSEN[0] if gap == "drift" else CHOSEN[1]).words
    by = face.ask(
        Choice(
            "tint",
            "colour by",
            names,
            names[0],
            lambda name: titled(BY_NAME[name].title, name),
            help=formulas,
            width=260,
        )
    )
    about = "hatches tokens whose weight lies outside this band; 0.8 to 1.2 is the usual PPO clip"
    title = "hatch tokens whose weight is outside"
    return by, BANDS[face.ask(Choice("band", title, [*BANDS], usual, help=about, width=190))]


def worst_order(values: Floats, tokens: pl.DataFrame, by: str) -> list[int]:
    """Rows of the unmasked tokens by falling size of their value (weights: of their logarithm). Unknown values are left out."""
    if by == "weight":
        with np.errstate(divide="ignore"):
            values = np.log(values)
    sizes = np.abs(values)
    sampled = tokens["mask"].fill_null(True).to_numpy() if "mask" in tokens.columns else np.ones(len(tokens), np.bool_)
    known = np.flatnonzero(~np.isnan(sizes) & sampled)
    return [int(row) for row in known[np.argsort(-sizes[known], kind="stable")]]


def _worse(tokens: pl.DataFrame, order: Sequence[int], at: int | None) -> Iterator[Block]:
    """The buttons that go through the order, and the place of the chosen token in it."""
    rank = order.index(at) if at in order else -1
    following = order[rank + 1] if rank + 1 < len(order) else None
    before = order[rank - 1] if rank > 0 else None
    words = "worst token" if rank < 0 else "next worse"
    yield Action("worse", words, to_token(following), shortcut="n", is_off=following is None)
    yield Action("less_bad", "back", to_token(before), shortcut="shift+n", is_off=before is None)
    if rank >= 0:
        place = f"{_ordinal(rank + 1)} of {count(len(order), 'token')} by size"
        yield Paragraph(f"{place}{_text_of(tokens, order[rank])}", "muted")
    elif order:
        yield Paragraph(f"the worst is token {order[0]:,}{_text_of(tokens, order[0])}", "muted")


def _clicked(point: Mapping[str, Any]) -> Link | None:
    """Nowhere from a bar or a line, of which only the places above have the words and the position of a token."""
    found = point.get("customdata")
    return None if found is None else to_token(int(found[1]))


def _text_of(tokens: pl.DataFrame, row: int) -> str:
    """The text of the token, to stand behind its number; empty if no text is on record."""
    text = tokens["token_text"][row] if "token_text" in tokens.columns else None
    return "" if text is None else visible(f": “{text}”", LONGEST_TEXT)


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _strip_at(
    chosen: SequenceKey, gap: str, at: int | None, window: tuple[int, int] | None, theme: ThemeName
) -> go.Figure:
    return strip_at(chosen.view.figure(_strip, chosen, gap, theme), THEMES[theme], at=at, window=window)


def _strip(chosen: SequenceKey, gap: str, theme: ThemeName) -> go.Figure:
    return token_strip(chosen.tokens, gap, theme=THEMES[theme])


def _not_recorded(run: Run, tokens: pl.DataFrame, row: Mapping[str, Any]) -> Iterator[str]:
    """The facts that the record lacks, and apart from them those that only this sequence lacks, in words."""
    lacking = [names for column, names in ABSENT.items() if _unknown(tokens, column)]
    lacking += [
        (f"log-probs of {policy}", f"{policy}_logprobs") for policy in POLICIES if _unknown(tokens, f"{policy}_logprob")
    ]
    if row.get("rollout_version_min") is not None and ABSENT["rollout_version"] in lacking:
        lacking.remove(ABSENT["rollout_version"])
        yield "one weight version for all tokens of the sequence"
    here = [words for words, column in lacking if column in run.columns]
    lacks = [(words, column) for words, column in lacking if column not in run.columns]
    nowhere = [words if words == column else f"{words} ({column})" for words, column in lacks]
    if nowhere:
        yield f"not recorded: {', '.join(nowhere)}"
    if here:
        yield f"not recorded for this sequence, though for others: {', '.join(here)}"


def _unknown(tokens: pl.DataFrame, name: str) -> bool:
    return name not in tokens.columns or tokens[name].null_count() == len(tokens)


def _json(face: Face, chosen: SequenceKey, about: Mapping[str, Any], at: int | None) -> Iterator[Block]:
    """The document of the tokens around `at`, or of all of them."""
    parts = ("around the token", "whole")
    with face.row("json", labelled=False):
        part = face.ask(Choice("json_part", "part", parts, parts[0], look="segments", has_title=False, in_url=False))
        texts = face.ask(Switch("json_text", "with the text of the tokens and the prompt", in_url=False))
    first = 0 if part == "whole" else max(0, (at or 0) - AROUND)
    most = None if part == "whole" else 2 * AROUND + 1
    prompt = chosen.view.run.prompt_ids(chosen.step, chosen.sequence_id) if texts else None
    document = sequence_json(chosen.tokens, about, first=first, most=most, texts=texts, prompt_ids=prompt)
    yield Action("json_file", "download sequence.json", Download("sequence.json", document, "application/json"))
    if len(document) <= SHOWN:
        yield Code(document.split("\n"), "json", "json", tallest=260)
    else:
        yield Paragraph(f"{count(len(document), 'character')}: too long to show; download it.", "muted")
    yield Paragraph("Recompute the metrics from the file:", "muted")
    yield Code(SNIPPET.split("\n"), "python", "snippet")


def _strips_of_run(scope: Scope) -> Iterator[Block]:
    """The curves of the worst sequences, for a face on which no step is chosen."""
    view, gap = scope.view, scope.gap
    yield from worst_listed(scope, "The tab Sequences has their text.")
    for place, item in enumerate(view.of(worst_of, gap)[:STRIPS]):
        yield Paragraph(sequence_facts(item), "muted", head=f"{place + 1}. {item.sequence_id}")
        label = f"Log-ratio, log-probs and entropy of {count(len(item.tokens), 'token')}"
        yield Chart(f"strip_{place + 1}", label, _worst_strip, (view, gap, place), wide=True)


def _worst_strip(view: View, gap: str, place: int, theme: ThemeName) -> go.Figure:
    return token_strip(view.of(worst_of, gap)[place].tokens, gap, theme=THEMES[theme])
