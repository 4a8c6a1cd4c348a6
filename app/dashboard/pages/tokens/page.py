"""The Tokens page: one sequence with tinted text, and every recorded curve below it on the same axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.token_values import BY_NAME, VALUES
from ratioscope.record import POLICIES, sides

from ....browser.code import code
from ....browser.listener import in_address, listen_to_tokens
from ....figures.html.tinted_text import OPEN, WeightBand, token_text, token_values
from ....figures.strip_chart import strip_at, token_strip
from ....pages.scope import Scope
from ....pages.step_sequences import FACTS, no_rows, rows_of, with_part_only, worst_first
from ....pages.view import View
from ....presentation.digits import count, digits
from ....presentation.escape import streamlit_label as label
from ....presentation.escape import visible
from ....presentation.metric_places import sequence_measures_at, titled
from ....presentation.slice_names import part_words
from ....presentation.theme import THEMES, ThemeName
from ...blocks_drawn import drawn
from ...panels.charts import appearance, clicked, draw
from ...panels.choices import choice, dropdown
from ...panels.controls import asked, say_absent, step_picker
from ...panels.layout import control_row
from ...panels.links import go_to
from ...panels.step_buttons import step_buttons
from .json_download import json_drawer
from .navigation import forget_token, go_to_token, keep_token_of, text_window, token_picker, worst_order

OFFERED = 300
"""Number of sequences in the list, the worst of the step. A URL can name any other."""
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


@dataclass(frozen=True)
class SequenceKey:
    """A sequence of a run, as the cache key of its text and its strip."""

    view: View
    step: int
    sequence_id: str
    minibatch: int | None

    @property
    def tokens(self) -> pl.DataFrame:
        return self.view.tokens(self.step, self.sequence_id, self.minibatch)


def render(scope: Scope) -> None:
    view, gap = scope.view, scope.gap
    with control_row("sequence"):
        step = step_picker(view, gap)
        step_buttons(view, step)
        frame = rows_of(view, step, gap)
        if frame.is_empty():
            drawn(lambda _: no_rows(view, step, gap), scope)
            return
        frame = with_part_only(scope, frame, step)
        if scope.only is not None:
            some = "no sequence of this step has" if frame.is_empty() else "whole sequences with"
            st.caption(f":material/filter_alt: {some} a token of {label(part_words(scope.only), 200)}", width="content")
        if frame.is_empty():
            return
        worst = sequence_measures_at("order")[0]
        order = worst if f"{gap}/{worst}" in frame.columns else "tokens"
        ranked = worst_first(frame, gap, order)
        sequence_id = _sequence_picker(ranked["sequence_id"].unique(maintain_order=True).to_list())
        rows = frame.filter(pl.col("sequence_id") == sequence_id)
        minibatch = _minibatch_picker(rows)
    keep_token_of(f"{view.path} {step} {sequence_id}")
    tokens = view.tokens(step, sequence_id, minibatch)
    chosen = rows.filter(pl.col("minibatch").eq_missing(minibatch)) if minibatch is not None else rows
    row = (chosen if len(chosen) else rows).row(0, named=True)
    listen_to_tokens(partial(go_to_token, rows=len(tokens)))
    at = _show(SequenceKey(view, step, sequence_id, minibatch), tokens, gap)
    _facts(view.run, row, tokens)
    about = {**row, "step": step, "run": view.run.name, "trainer": view.run.info.get("trainer")}
    json_drawer(tokens, about, at, lambda: view.run.prompt_ids(step, sequence_id))
    st.caption(KEYS)


def _sequence_picker(ids: Sequence[str]) -> str:
    """The chosen sequence, by default the worst. The buttons previous and next go through the list in its order."""
    asked_sequence = asked("sequence")
    named = {visible(sequence_id): sequence_id for sequence_id in ids}
    names = list(named)
    is_chosen = "sequence" in st.session_state  # here, and not by the address: another step has other sequences
    absent = None if is_chosen or asked_sequence in (*ids, *named) else asked_sequence
    offered = names[:OFFERED]
    if asked_sequence in ids:  # a link may contain the raw name
        st.session_state["sequence"] = visible(str(asked_sequence))
    elif asked_sequence not in named:
        st.session_state["sequence"] = names[0]
    if st.session_state.get("sequence", asked_sequence) not in offered:
        offered.append(str(st.session_state.get("sequence", asked_sequence)))
    chosen = st.selectbox(
        "sequence, worst first",
        offered,
        index=None,
        key="sequence",
        bind="query-params",
        width=320,
        on_change=forget_token,
    )
    name = chosen or names[0]
    in_address("sequence", name)
    at = offered.index(name)
    before, after = offered[max(0, at - 1)], offered[min(len(offered) - 1, at + 1)]
    st.button("previous", key="previous", shortcut="k", on_click=_choose, args=(before,), disabled=before == name)
    st.button("next", key="next", shortcut="j", on_click=_choose, args=(after,), disabled=after == name)
    say_absent("sequence", absent, name, "sequence {} is not in this step of this run; another is shown")
    return named[name]


def _choose(name: str) -> None:
    st.session_state["sequence"] = name
    forget_token()


def _minibatch_picker(rows: pl.DataFrame) -> int | None:
    """The picker of the minibatch whose current policy is shown, if the sequence went through several."""
    minibatches = rows["minibatch"].drop_nulls().unique().sort().to_list() if "minibatch" in rows.columns else []
    if len(minibatches) < 2:
        return minibatches[0] if minibatches else None
    return int(choice("minibatch", minibatches, "minibatch"))


def _facts(run: Run, row: dict[str, object], tokens: pl.DataFrame) -> None:
    """Recorded facts of the sequence in one line, missing ones, its prompt, and a link to the prompt's other samples."""
    facts = [count(len(tokens), "token")]
    for name in (*FACTS, *CAUSES):
        value = row.get(name)
        if value is not None:
            shown = digits(value) if isinstance(value, float) else label(str(value), 60)
            facts.append(f"{name.replace('_', ' ')} {shown}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(" · ".join(facts), width="content")
        group = row.get("group_id")
        if isinstance(group, str):
            st.button("all samples of this prompt", key="siblings", type="tertiary", on_click=_to_group, args=(group,))
    if told := " · ".join(_not_recorded(run, tokens, row)):
        st.caption(told)
    prompt = row.get("prompt_text")
    if isinstance(prompt, str):
        with st.expander("prompt"):
            code(prompt, "prompt")


def _not_recorded(run: Run, tokens: pl.DataFrame, row: dict[str, object]) -> Iterator[str]:
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


def _to_group(group: str) -> None:
    go_to("sequences", group=group)


def _show(chosen: SequenceKey, tokens: pl.DataFrame, gap: str) -> int | None:
    """Draws the text and the strip. Returns the row of the chosen token, else of the worst."""
    theme = appearance().name
    with control_row("token", labelled=False):
        colours = st.popover("colours", icon=":material/palette:", key="colours")
        with colours:
            by, band = _tint_picker(gap)
        _, _, values = token_values(tokens, gap, BY_NAME[by])
        order = worst_order(values, tokens, by)
        at = token_picker(tokens, order) if len(tokens) else None
    if _unknown(tokens, gap):
        earlier, later = sides(gap)
        st.caption(
            f"The text is not coloured, because this sequence has no {gap}: it needs the log-probs of {earlier} and {later}."
        )
    first, rows = text_window(tokens, at)
    st.html(chosen.view.figure(_text, chosen, (first, rows), gap, theme, by, band, at))
    window = (first, first + rows - 1) if rows < len(tokens) else None
    draw(
        chosen.view.figure(_strip_at, chosen, gap, theme, at, window),
        "strip",
        f"Log-ratio, log-probs and entropy of {count(len(tokens), 'token')}; a click chooses a token",
        numbers=lambda: tokens,
        on_click=_token_chosen,
    )
    st.session_state["_tokens"] = len(tokens)
    return at if at is not None else next(iter(order), None)


def _text(
    chosen: SequenceKey,
    part: tuple[int, int],
    gap: str,
    theme: ThemeName,
    by: str,
    band: WeightBand,
    at: int | None,
) -> str:
    """The tinted text of a part of the sequence. part: (first row, number of tokens)."""
    return token_text(chosen.tokens.slice(*part), gap, theme=THEMES[theme], by=by, band=band, at=at)


def _strip_at(
    chosen: SequenceKey, gap: str, theme: ThemeName, at: int | None, window: tuple[int, int] | None
) -> go.Figure:
    return strip_at(chosen.view.figure(_strip, chosen, gap, theme), THEMES[theme], at=at, window=window)


def _strip(chosen: SequenceKey, gap: str, theme: ThemeName) -> go.Figure:
    return token_strip(chosen.tokens, gap, theme=THEMES[theme])


def _tint_picker(gap: str) -> tuple[str, WeightBand]:
    formulas = "\n\n".join(f"{value.title}: {value.formula}" for value in VALUES)
    by = dropdown(
        "colour by",
        list(BY_NAME),
        "tint",
        width=260,
        help=formulas,
        shown=lambda name: titled(BY_NAME[name].title, name),
    )
    usual = (CHOSEN[0] if gap == "drift" else CHOSEN[1]).words
    about = "hatches tokens whose weight lies outside this band; 0.8 to 1.2 is the usual PPO clip"
    return by, BANDS[
        dropdown("hatch tokens whose weight is outside", list(BANDS), "band", width=190, default=usual, help=about)
    ]


def _token_chosen() -> None:
    token = clicked("strip")
    if token is not None:
        go_to_token(int(token[1]), int(st.session_state["_tokens"]))
