"""prime-rl: the token export of its trainer (until 2026-08). The traces that followed it are those of verifiers.py."""

from ..table import FileKind, Format, columns

_EXPORT = FileKind(
    what="tokens of a rank and step",
    file=r"(?:step_(?P<step>\d+)/)?rank_(?P<rank>\d+)\.jsonl",
    container="json lines",
    marks=("inference_logprobs", "trainer_logprobs", "export_sequence_idx"),
    columns=columns("""
        step = step or @step !
        sequence_ids = export_sequence_idx | named(step, rank)
        rollout_logprobs = inference_logprobs | span(loss_mask)
        current_logprobs = trainer_logprobs | span(loss_mask) !
        mask = loss_mask | span(loss_mask)
        loss_mask = loss_mask | span(loss_mask)
        token_ids = token_ids | span(loss_mask)
        prompt_ids = token_ids | before(loss_mask)
        entropy = entropy | span(loss_mask)
        advantages = advantages | span(loss_mask)
        extra.env_name = env_name
    """),
    lacks="versions; the response is what lies between the first and the last token in the loss",
)
FORMATS = (Format(name="prime-rl", title="prime-rl token export", trainer="prime_rl", parts=(_EXPORT,)),)
