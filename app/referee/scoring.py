"""Log-probs of given tokens under a model, in float32 and in bounded memory.

Sequences of about one length form a batch, padded at the right: causal attention never looks there, so no mask is needed and
none can be wrong. Logits are made for response positions alone, and for so many at a time that they take LOGITS_BYTES.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ratioscope.arrays import Singles

from .inputs import Sequence_, batches

Logprobs = Singles
BATCH_TOKENS = {"cpu": 2048, "cuda": 16384}
"""Padded tokens in a batch. A convention; a longer sequence is a batch of its own."""
LOGITS_BYTES = 1 << 28
"""Bytes of the float32 logits that are held at a time."""


@dataclass(frozen=True)
class Context:
    """The tokens before each target, for changes of logits that depend on them."""

    ids: Tensor
    """Token ids, shape (sequences, width)."""
    rows: Tensor
    """The sequence of each target, shape (targets,)."""
    places: Tensor
    """The place of the last token before each target, shape (targets,)."""
    starts: Tensor
    """The place of the first token of each response, shape (sequences, 1)."""
    targets: Tensor
    """The id of each target, shape (targets,)."""

    def counts(self, vocabulary: int, *, prompt: bool) -> Tensor:
        """How often each id stands before each target, shape (targets, vocabulary). prompt: in the prompt too."""
        along = torch.arange(self.ids.shape[1], device=self.ids.device)[None]
        before = along <= self.places[:, None]
        before = before if prompt else before & (along >= self.starts[self.rows])
        counts = torch.zeros((len(self.rows), vocabulary), device=self.ids.device)
        return counts.scatter_add_(1, self.ids[self.rows], before.float())


Positions = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(places (1, width), start of each response (sequences, 1), tokens before its own prompt (sequences, 1)) -> position ids."""
Visible = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(places of queries (width, 1), of keys (1, width), tokens before the own prompt (sequences, 1, 1)) -> True where a query sees
a key. No query sees later keys, whatever it says."""
Logits = Callable[[Tensor, Context], Tensor]
"""Logits of shape (targets, vocabulary) -> changed ones."""


@dataclass(frozen=True)
class Scoring:
    """The settings of a scoring: everything but the weights and the tokens."""

    temperature: float = 1.0
    """Divides the logits."""
    autocast: str | None = None
    """bfloat16 or float16: the forward runs under torch.autocast with it."""
    head_float32: bool = True
    """The head is multiplied in float32, whatever the weights are in. False: in the dtype of the weights."""
    batch_tokens: int | None = None
    """Padded tokens in a batch; None: BATCH_TOKENS of the device."""
    positions: Positions | None = None
    """Position ids; None: those of the model."""
    visible: Visible | None = None
    """The keys that a query sees; None: all earlier ones that the model lets it see."""
    older: Callable[[Any], Any] | None = None
    """A function of the model that gives the one whose keys and values of the first tokens are kept; None: its own."""
    kept: Callable[[int], int] | None = None
    """Prompt tokens, shape () -> tokens at the beginning of it whose keys and values are the older model's."""
    token_by_token: bool = False
    """True: the response is read one token at a time behind the keys and values of those before it, as a decode does."""
    capped: bool = True
    """False: without the cap that the model puts on its logits."""
    before: Logits | None = None
    """A change of the logits before they are divided by the temperature: a cap, a penalty."""
    after: Logits | None = None
    """A change after it: truncation."""

    @property
    def forward(self) -> tuple[Any, ...]:
        """The settings that the hidden states depend on."""
        return (
            self.autocast,
            self.positions,
            self.visible,
            self.batch_tokens,
            self.older,
            self.kept,
            self.token_by_token,
        )


PLAIN = Scoring()
"""At temperature 1, with the head in float32."""


def scores(model: Any, sequences: Sequence[Sequence_], how: Scoring | None = None) -> Iterator[tuple[int, Logprobs]]:
    """(index of a sequence, log-probs of its response tokens in nats), in the order of batches. The model is not changed."""
    return ((index, own) for index, (own,) in scores_under(model, sequences, (how or PLAIN,)))


def scores_under(
    model: Any, sequences: Sequence[Sequence_], hows: Sequence[Scoring]
) -> Iterator[tuple[int, Sequence[Logprobs]]]:
    """(index of a sequence, its log-probs under each of the settings). They share one forward: their `forward` is the same."""
    device = next(model.parameters()).device
    most = hows[0].batch_tokens or BATCH_TOKENS.get(device.type, 2048)
    for few in batches([sequence.length for sequence in sequences], most):
        chosen = [sequences[index] for index in few]
        yield from zip(few, zip(*_batch(model, chosen, hows, device), strict=True), strict=True)


def _batch(model: Any, sequences: Sequence[Sequence_], hows: Sequence[Scoring], device: Any) -> list[list[Logprobs]]:
    width = max(sequence.length for sequence in sequences)
    ids = torch.zeros((len(sequences), width), dtype=torch.long)
    for row, sequence in enumerate(sequences):
        ids[row, : sequence.length] = torch.tensor((*sequence.prompt, *sequence.response))
    before = [
        (row, place) for row, each in enumerate(sequences) for place in range(len(each.prompt) - 1, each.length - 1)
    ]
    ids, (rows, places) = ids.to(device), torch.tensor(before).T.to(device)
    starts, leads = (
        torch.tensor(own, device=device)[:, None]
        for own in ([len(each.prompt) for each in sequences], [each.lead for each in sequences])
    )
    context = Context(ids, rows, places, starts, ids[rows, places + 1])
    with torch.inference_mode(), _autocast(hows[0], device):
        if hows[0].older is None and not hows[0].token_by_token:
            hidden = model.base_model(input_ids=ids, use_cache=False, **_asked(model, hows[0], width, starts, leads))[0]
        else:
            read = _token_by_token if hows[0].token_by_token else _after_older
            hidden = torch.cat(
                [read(model, hows[0], own[None], start) for own, start in zip(ids, starts[:, 0].tolist(), strict=True)]
            )
        flat = _of_targets(model, hidden[rows, places], context, hows)
    ends = np.cumsum([len(each.response) for each in sequences])[:-1]
    return [np.split(own.cpu().numpy().astype(np.float32), ends) for own in flat]


def _after_older(model: Any, how: Scoring, ids: Tensor, start: int) -> Tensor:
    """The hidden states of a sequence, shape (1, width, size), of which an older model read the beginning of the prompt."""
    assert how.older is not None and how.kept is not None
    if not (kept := how.kept(start)):
        return model.base_model(input_ids=ids, use_cache=False)[0]  # type: ignore[no-any-return]
    first = how.older(model).base_model(input_ids=ids[:, :kept], use_cache=True)
    rest = model.base_model(input_ids=ids[:, kept:], past_key_values=first.past_key_values, use_cache=True)
    return torch.cat([first[0], rest[0]], 1)


def _token_by_token(model: Any, how: Scoring, ids: Tensor, start: int) -> Tensor:
    """The hidden states of a sequence, shape (1, width, size): the prompt in one forward, each token behind it in one more."""
    read = model.base_model(input_ids=ids[:, :start], use_cache=True)
    found = [read[0]]
    for place in range(start, ids.shape[1]):
        read = model.base_model(
            input_ids=ids[:, place : place + 1], past_key_values=read.past_key_values, use_cache=True
        )
        found.append(read[0])
    return torch.cat(found, 1)


def _asked(model: Any, how: Scoring, width: int, starts: Tensor, leads: Tensor) -> dict[str, Tensor]:
    """Position ids and mask, where they are not the model's own."""
    if how.positions is None and how.visible is None:
        return {}
    along = torch.arange(width, device=starts.device)
    seen = (along[:, None] >= along[None])[None]
    if how.visible is not None:
        seen = seen & (how.visible(along[:, None], along[None], leads[..., None]) | (along[:, None] == along[None]))
    # without a mask, transformers takes positions that begin anew for another sequence
    mask = seen.expand(len(starts), -1, -1)[:, None]
    if model.config._attn_implementation == "eager":
        dtype = next(model.parameters()).dtype
        mask = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, torch.finfo(dtype).min)
    positions = along[None] if how.positions is None else how.positions(along[None], starts, leads).clamp_min(0)
    return {"position_ids": positions.expand(len(starts), -1), "attention_mask": mask}


def _of_targets(model: Any, hidden: Tensor, context: Context, hows: Sequence[Scoring]) -> list[Tensor]:
    """The log-prob of each target after its hidden state under each of the settings, shape (tokens,)."""
    head = model.get_output_embeddings()
    at_once = max(1, LOGITS_BYTES // (4 * head.weight.shape[0]))
    adjust = adjustment(model.config), adjustment(model.config, capped=False)
    parts: list[list[Tensor]] = [[] for _ in hows]
    for start in range(0, len(hidden), at_once):
        few = slice(start, start + at_once)
        made = {full: _logits(head, hidden[few], how) for how in hows for full in [how.head_float32]}
        own = Context(context.ids, context.rows[few], context.places[few], context.starts, context.targets[few])
        for how, mine in zip(hows, parts, strict=True):
            logits = adjust[not how.capped](made[how.head_float32]).float()
            logits = (logits if how.before is None else how.before(logits, own)) / how.temperature
            logits = logits if how.after is None else how.after(logits, own)
            mine.append(logits.gather(1, own.targets[:, None])[:, 0] - torch.logsumexp(logits, 1))
    return [torch.cat(mine) for mine in parts]


def _logits(head: Any, hidden: Tensor, how: Scoring) -> Tensor:
    if not how.head_float32:
        logits: Tensor = head(hidden)
        return logits
    with torch.autocast(hidden.device.type, enabled=False):
        bias = None if getattr(head, "bias", None) is None else head.bias.float()
        return torch.nn.functional.linear(hidden.float(), head.weight.float(), bias)


def adjustment(config: Any, *, capped: bool = True) -> Callable[[Tensor], Tensor]:
    """The change that the model makes to its logits after the head: a cap (Gemma), a factor (Cohere) or a divisor (Granite)."""
    cap, factor = getattr(config, "final_logit_softcapping", None), getattr(config, "logit_scale", None)
    divisor = getattr(config, "logits_scaling", None)

    def adjusted(logits: Tensor) -> Tensor:
        logits = logits if factor is None else logits * factor
        logits = logits if divisor is None else logits / divisor
        return logits if cap is None or not capped else torch.tanh(logits / cap) * cap

    return adjusted


def demand_own_head(model: Any, room: int) -> None:
    """ValueError unless our logits, head and adjustment, are those of the model's own forward."""
    ids = torch.arange(min(room, 7))[None].to(next(model.parameters()).device)
    with torch.inference_mode():
        own = model(input_ids=ids, use_cache=False).logits.float()
        hidden = model.base_model(input_ids=ids, use_cache=False)[0]
        ours = adjustment(model.config)(
            _logits(model.get_output_embeddings(), hidden, Scoring(head_float32=False))
        ).float()
    largest = float((own - ours).abs().max())
    if not largest <= 1e-3 * max(1.0, float(own.abs().max())):
        raise ValueError(f"its logits are made in a way of their own (off by {largest:.3g})")


def _autocast(how: Scoring, device: Any) -> Any:
    dtype = getattr(torch, how.autocast) if how.autocast else None
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
