"""Samples of one prompt: the list of prompts of a step, the worst first, and a line on the chosen one."""

from collections.abc import Callable

import numpy as np
import polars as pl
import streamlit as st

from ratioscope.metrics.definitions.registry import BY_NAME

from ....browser.code import code
from ....presentation.digits import count, digits
from ....presentation.escape import streamlit_label as label
from ....presentation.escape import visible
from ....presentation.metric_places import sequence_measures_at, title_of
from ....presentation.number_columns import number_format
from ...panels.charts import number_column, table, worded
from ...panels.clicked_rows import CELLS, clicked_row
from ...panels.controls import asked

SHOWN = 500


def has_groups(frame: pl.DataFrame) -> bool:
    return "group_id" in frame.columns and frame["group_id"].null_count() < len(frame)


def group_picker(frame: pl.DataFrame) -> str | None:
    """The picker of the prompt whose samples are shown; None for all."""
    named = {visible(group): group for group in frame["group_id"].drop_nulls().unique(maintain_order=True).to_list()}
    asked_group = asked("group")
    if asked_group in named.values():  # a link may contain the raw name
        st.session_state["group"] = visible(str(asked_group))
    elif asked_group is not None and asked_group not in named:
        st.session_state["group"] = None
        st.caption(f"Prompt group {label(str(asked_group), 40)} is not in this step.", width="content")
    chosen = st.selectbox(
        "samples of one prompt",
        list(named),
        index=None,
        key="group",
        bind="query-params",
        width=220,
        placeholder="all prompts",
    )
    return None if chosen is None else named[chosen]


def group_table(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """One row per prompt: number of samples, rewards and the gap's metrics, the worst first.

    The largest |x| of any token, means over the tokens of all samples, and the sum of confident disagreements.
    """
    known = [name for name in sequence_measures_at("prompt") if f"{gap}/{name}" in frame.columns]
    rewards = [pl.col("reward").mean().alias("mean_reward"), pl.col("reward").std().alias("sd_of_reward")]
    groups = (
        frame.drop_nulls("group_id")
        .group_by("group_id", maintain_order=True)
        .agg(
            pl.col("sequence_id").n_unique().alias("samples"),
            pl.col("length").mean().alias("mean_length"),
            *(rewards if "reward" in frame.columns and frame["reward"].null_count() < len(frame) else []),
            *(_of_prompt(name, gap).alias(name) for name in known),
            *([pl.col("prompt_text").first().str.head(200)] if "prompt_text" in frame.columns else []),
        )
    )
    order = next((name for name in known), "samples")
    shown = [name for name in groups.columns if groups[name].null_count() < len(groups)]
    return groups.sort(order, "group_id", descending=[True, False], nulls_last=True).select(shown)


def _of_prompt(name: str, gap: str) -> pl.Expr:
    """A metric over all samples of a prompt: the largest of extremes, the sum of counts, else the mean over tokens."""
    own, metric = pl.col(f"{gap}/{name}"), BY_NAME.get(name)
    if metric is not None and metric.kind == "extreme":
        return own.max()
    return own.sum() if name == "confident_disagreements" else _over_tokens(gap)(own)


def _over_tokens(gap: str) -> Callable[[pl.Expr], pl.Expr]:
    """The mean of a column over all tokens: each sequence is weighted by its number of tokens."""
    tokens = pl.col(f"{gap}/tokens")
    return lambda own: ((own * tokens).sum() / pl.when(own.is_not_null()).then(tokens).sum()).fill_nan(None)


def show_groups(frame: pl.DataFrame, gap: str) -> None:
    """The list of prompts. A click shows the samples of one."""
    groups = group_table(frame, gap)
    st.session_state["_groups"] = groups["group_id"].head(SHOWN).to_list()
    st.caption(
        f"{count(len(groups), 'prompt')} in this step, the worst first. Largest |log-ratio|: of any token. KL and mean"
        " log-ratio: means over the tokens of all samples. Lengths and rewards are means over samples. Click a"
        " prompt to see its samples."
    )
    table(
        groups.head(SHOWN),
        "Prompts of the step, the worst first",
        key="prompt_rows",
        cut=("group_id",),
        on_select=_group_chosen,
        selection_mode=CELLS,
        height="content" if len(groups) < 20 else 720,
        column_config=worded(groups.columns)
        | {
            name: number_column(title_of(name), name, number_format(groups[name]) if kind == pl.Float64 else None)
            for name, kind in groups.schema.items()
            if kind.is_numeric()
        },
    )


def say_group(samples: pl.DataFrame, of: int) -> None:
    """A line on the shown samples of one prompt. of: number of its samples on record."""
    shown = samples["sequence_id"].n_unique()
    facts = [f"{f'{shown:,} of ' if shown < of else ''}{count(of, 'sample')} of one prompt"]
    once = samples.unique("sequence_id")
    rewards = once["reward"].drop_nulls().to_numpy() if "reward" in once.columns else np.empty(0)
    if len(rewards):
        spread = f"{digits(float(rewards.min()))} to {digits(float(rewards.max()))}"
        facts.append(f"reward {digits(float(rewards.mean()))} on average, {spread}")
    lengths = once["length"].to_numpy()
    facts.append(f"{int(lengths.min()):,} to {int(lengths.max()):,} tokens")
    st.caption(" · ".join(facts))
    prompts = (
        samples["prompt_text"].drop_nulls() if "prompt_text" in samples.columns else pl.Series([], dtype=pl.String)
    )
    if len(prompts):
        with st.expander("prompt"):
            code(prompts[0], "prompt")


def _group_chosen() -> None:
    row = clicked_row(st.session_state["prompt_rows"], len(st.session_state["_groups"]))
    if row is not None:
        st.session_state["group"] = visible(st.session_state["_groups"][row])
        st.session_state["list"] = "sequences"
