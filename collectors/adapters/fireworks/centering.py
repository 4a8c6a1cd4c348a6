"""Both sides at the sampler's likeliest tokens, from the cookbook's score centering. Its functions were run, its recipe was not.

    training/utils/rl/score_centering.py at 3337e6ec    build_score_centering_datums, make_score_centering_loss_fn
    training/recipes/async_rl_loop.py at 0ac47181       the calls of both, after combine_prompt_groups
    fireworks-ai 1.2.30, training/sdk/client.py         the call of the closure: the trainer's log-probs in the forward's shape

It makes new datums with 1 + k target tokens at each place: the sampled one, then the sampler's k likeliest. The closure lacks
the sampler's log-probs of the sampled tokens and the lengths of the prompts, which the prompt groups have. A place outside the
loss has ids 0 there, and -1 here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...foreign import Tensor
from .facts import Facts
from .rows import Datum, Given, Response, table

NO_OLD = "policy_loss='score_centering' uses no old log-probs: old is not recorded, total is"
NO_GROUPS = (
    "the datums of score centering are of no known prompt group, which has the sampler's log-probs: the step is not recorded; "
    "make groups by rollout_to_prompt_group or pass them to combine_prompt_groups"
)
ANOTHER = (
    "the sampler's likeliest tokens have other log-probs than its sampled tokens, as with a temperature other than 1: "
    "top-k is not recorded; sample at temperature 1 to record it"
)
FARTHEST = 0.01
"""Most nats between the sampler's two log-probs of one token. fireworks-ai calls its top_logprobs those of the raw model."""


def centered(arguments: Mapping[str, Any], facts: Sequence[Facts | None]) -> Given | None:
    """The arguments of make_score_centering_loss_fn; None unless the prompt groups of all datums are known."""
    known = [f for f in facts if f is not None]
    rollout = [f.rollout for f in known if f.rollout is not None]
    if len(rollout) < len(facts):
        return None
    heads = arguments["sampler_topk_logprobs"]
    return Given(arguments["advantages"], [f.prompt_len for f in known], rollout, None, [], [], heads)


def topk(
    closure: Given, data: Sequence[Datum], logprobs: Sequence[Tensor], rows: Sequence[Response], own: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Arguments of `Collector.log` at the likeliest tokens, (T, k) per row; {} if they have another distribution.

    logprobs: the trainer's, of all 1 + k tokens. own: the columns of the sampled tokens.
    """
    if closure.heads is None:
        return {}
    ids, rollout, current = list[Any](), list[Any](), list[Any]()
    for row in rows:
        datum, part = data[row.index], slice(row.start, row.start + row.tokens)
        targets = table(datum, np.asarray(datum.loss_fn_inputs["target_tokens"].data))
        ids.append(np.where(row.active[:, None], targets[part, 1:], -1))
        rollout.append(np.asarray(closure.heads[row.index][part], np.float32))
        current.append(table(datum, logprobs[row.index].detach())[part, 1:])
    for at, head, token, alone in zip(ids, rollout, own["token_ids"], own["rollout_logprobs"], strict=True):
        if (np.abs(head - alone[:, None])[at == token[:, None]] > FARTHEST).any():
            return {}
    return {"topk_ids": ids, "rollout_topk_logprobs": rollout, "current_topk_logprobs": current}


def settings_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the loss, by the names of the recipe's Config."""
    config = arguments["config"]
    own = {name: getattr(config, name, None) for name in ("top_k", "tail_mass_epsilon")}
    return {"loss": "score_centering", "score_centering": own}
