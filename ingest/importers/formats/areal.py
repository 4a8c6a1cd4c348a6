"""AReaL and the Fireworks cookbook write trajectories as text. They hold no log-probs, and are refused with this reason."""

from ..table import FileKind, Format

_TRAJECTORIES = FileKind(
    what="trajectories as text",
    file=r"(?:(?P<step>\d+)/)?[^/]+\.jsonl",
    container="json lines",
    marks=("task_id", "sample_idx", "head_version", "completion"),
    columns=(),
    refused="it holds texts, rewards and versions, no log-probs, no token ids and no mask: there is nothing to measure."
    " ratioscope.attach(actor, run_dir) records all three policies",
)
_STEPS = FileKind(
    what="trajectories as text (until 2026-07)",
    file=r"step_(?P<step>\d+)\.jsonl",
    container="json lines",
    marks=("prompt_group", "completion_index", "completion"),
    columns=(),
    refused="it holds texts, rewards and advantages, no log-probs and no token ids: there is nothing to measure",
)
FORMATS = (
    Format(name="areal", title="AReaL rollout JSONL", trainer="areal", parts=(_TRAJECTORIES,)),
    Format(name="fireworks", title="Fireworks cookbook trajectory JSONL", trainer="fireworks", parts=(_STEPS,)),
)
