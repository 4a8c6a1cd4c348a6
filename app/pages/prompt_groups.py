"""Samples of one prompt: the list of prompts of a step, the worst first, and a line on the chosen one."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import polars as pl

from ratioscope.metrics.definitions.registry import BY_NAME

from ..blocks import Action, Actions, Block, Code, Column, Drawer, Link, Paragraph, Table
from ..presentation.digits import count, digits
from ..presentation.escape import visible
from ..presentation.metric_places import sequence_measures_at, title_of
from ..presentation.value_text import number_format
from .face import AtMostOne, Face
from .sequence_filters import known
from .side_by_side import compared

SHOWN = 500


def asked_group(face: Face, frame: pl.DataFrame) -> str | None:
    """The prompt whose samples are shown; None for all."""
    named = {visible(group): group for group in frame["group_id"].drop_nulls().unique(maintain_order=True).to_list()}
    absent, title = "Prompt group {} is not in this step.", "samples of one prompt"
    chosen = face.ask(AtMostOne("group", title, [*named], "all prompts", width=220, absent=absent))
    return None if chosen is None else named[chosen]


def group_table(frame: pl.DataFrame, gap: str) -> pl.DataFrame:
    """One row per prompt: number of samples, rewards and the gap's metrics, the worst first.

    The largest |x| of any token, means over the tokens of all samples, and the sum of confident disagreements.
    """
    measured = [name for name in sequence_measures_at("prompt") if f"{gap}/{name}" in frame.columns]
    rewards = [pl.col("reward").mean().alias("mean_reward"), pl.col("reward").std().alias("sd_of_reward")]
    groups = (
        frame.drop_nulls("group_id")
        .group_by("group_id", maintain_order=True)
        .agg(
            pl.col("sequence_id").n_unique().alias("samples"),
            pl.col("length").mean().alias("mean_length"),
            *(rewards if known(frame, "reward") else []),
            *(_of_prompt(name, gap).alias(name) for name in measured),
            *([pl.col("prompt_text").first().str.head(200)] if "prompt_text" in frame.columns else []),
        )
    )
    order = next(iter(measured), "samples")
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


def prompts(frame: pl.DataFrame, gap: str) -> Iterator[Block]:
    """The list of prompts. A click shows the samples of one."""
    groups = group_table(frame, gap)
    yield Paragraph(
        f"{count(len(groups), 'prompt')} in this step, the worst first. Largest |log-ratio|: of any token. KL and mean"
        " log-ratio: means over the tokens of all samples. Lengths and rewards are means over samples. Click a"
        " prompt to see its samples.",
        "muted",
    )
    columns = {
        name: Column(title_of(name), number_format(groups[name]) if kind == pl.Float64 else "", name)
        for name, kind in groups.schema.items()
        if kind.is_numeric() or title_of(name) != name
    }
    yield Table(
        "Prompts of the step, the worst first",
        groups.head(SHOWN),
        columns=columns,
        tallest=None if len(groups) < 20 else 720,
        picks="prompt_rows",
        leads=partial(_samples, groups["group_id"].head(SHOWN).to_list()),
        cut=("group_id",),
    )


def _samples(groups: Sequence[str], row: int) -> Link:
    return Link("", {"group": visible(groups[row]), "list": "sequences"})


def one_prompt(samples: pl.DataFrame, of: int) -> Iterator[Block]:
    """A line on the shown samples of one prompt, in their order. of: number of its samples on record."""
    shown = samples["sequence_id"].n_unique()
    facts = [f"{f'{shown:,} of ' if shown < of else ''}{count(of, 'sample')} of one prompt"]
    once = samples.unique("sequence_id")
    rewards = once["reward"].drop_nulls().to_numpy() if "reward" in once.columns else np.empty(0)
    if len(rewards):
        spread = f"{digits(float(rewards.min()))} to {digits(float(rewards.max()))}"
        facts.append(f"reward {digits(float(rewards.mean()))} on average, {spread}")
    lengths = once["length"].to_numpy()
    facts.append(f"{int(lengths.min()):,} to {int(lengths.max()):,} tokens")
    beside = Action("beside", "side by side", compared(samples["sequence_id"].to_list()))
    yield Actions("one_prompt", (beside,) if shown > 1 else (), before=" · ".join(facts))
    if known(samples, "prompt_text"):
        lines = samples["prompt_text"].drop_nulls()[0].split("\n")
        yield Drawer("prompt", lambda: (Code(lines),))
