"""slime's settings printed back as the flags and the YAML slime reads."""

from ...corrections.correction import Correction
from ..settings import changed, yaml_text
from .correction import settings_for
from .settings import HOOKS, MIS, Settings


def write(correction: Settings | Correction) -> str:
    """slime's command-line flags, one a line, and the YAML file that `--custom-config-path` names where there is one."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    flags = changed(settings, set(_FLAGS))
    lines = [_flag(name, value) for name, value in flags.items()]
    if settings.runs_hook and settings.method != "vanilla_tis":
        lines.append(f"--custom-tis-function-path {HOOKS[settings.method]}")
    if settings.method != "mis" or not settings.runs_hook:
        return "\n".join(lines)
    keys = {name: getattr(settings, name) for name in MIS}
    return "\n".join([*lines, "--custom-config-path mis.yaml", "", "# mis.yaml", yaml_text(keys).rstrip()])


def _flag(name: str, value: object) -> str:
    flag = "--" + name.replace("_", "-")
    return flag if value is True else f"{flag} {value}"


_FLAGS = (
    *("advantage_estimator", "eps_clip", "eps_clip_high", "eps_clip_c", "use_rollout_logprobs", "use_tis"),
    *("get_mismatch_metrics", "tis_clip", "tis_clip_low", "use_opsm", "opsm_delta", "calculate_per_token_loss"),
    *("entropy_coef", "use_kl_loss", "kl_loss_coef", "kl_loss_type", "use_unbiased_kl"),
)
