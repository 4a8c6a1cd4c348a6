"""Texts about supported trainers, for `ratioscope attach` and docs/trainers.md, from one table."""

import shlex

from ratioscope.collectors.adapter import Adapter
from ratioscope.collectors.trainers import ADAPTERS, adapter_named

ANY_OTHER = (
    "any other trainer calls ratioscope.Collector(run_dir).log(step=..., rollout_logprobs=..., old_logprobs=...) itself"
)

_AGAINST = {"package": "the real package", "source": "its real source", "stand-ins": "stand-ins of its signatures"}


def against(adapter: Adapter) -> str:
    """The software that the tests ran, in words."""
    return _AGAINST[adapter.against]


def tested(adapter: Adapter) -> str:
    """The versions, and of what."""
    return f"{', '.join(adapter.tested)}, {against(adapter)}"


def sampler_logprobs(adapter: Adapter) -> str:
    """The condition on which the trainer keeps the log-probs of its sampler, in words."""
    if adapter.rollout_by_default:
        return f"by default, if {adapter.rollout_setting}" if adapter.rollout_setting else "by default"
    return f"not by default: {adapter.rollout_setting}"


def objects(adapter: Adapter) -> str:
    """The classes that `ratioscope.attach(trainer, run_dir)` takes, their subclasses too; empty if it takes the name only."""
    return ", ".join(dict.fromkeys(name.rpartition(":")[2] for name in adapter.classes))


def to_paste(adapter: Adapter, run_dir: str) -> str:
    """The lines or flags. In them a run folder between quotes is Python's; elsewhere a shell reads it."""
    return adapter.lines.replace('"{run}"', repr(run_dir).replace("'", '"')).replace("{run}", shlex.quote(run_dir))


def ways(adapter: Adapter, run_dir: str) -> list[tuple[str, str]]:
    """(what for, what to paste) of every way that works for this trainer, its own first."""
    own = to_paste(adapter, run_dir)
    without_code = f"ratioscope run --out {shlex.quote(run_dir)} -- <your training command>"
    return [("paste", own), *([] if "ratioscope run --out" in own else [("or, with no line changed", without_code)])]


OTHER = "any other, or my own"
TITLES = tuple(adapter.title for adapter in ADAPTERS)
_OTHER_LINES = """import ratioscope

collector = ratioscope.Collector({run}, trainer="mine")
collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, current_logprobs=current, mask=mask)"""


def title_of(trainer: object) -> str:
    """The title of the trainer that run.json names, such as `trl 1.16.0`; empty where there is no adapter for it."""
    name = trainer.split()[0] if isinstance(trainer, str) and trainer.strip() else ""
    adapter = adapter_named(name) if name else None
    return "" if adapter is None else adapter.title


def chosen_lines(title: str, run_dir: str) -> list[tuple[str, str]]:
    """(what for, what to paste) for the trainer of this title, or for any other one."""
    found = next((adapter for adapter in ADAPTERS if adapter.title == title), None)
    if found is not None:
        return ways(found, run_dir)
    return [("in the training loop, once per process", _OTHER_LINES.replace("{run}", repr(run_dir).replace("'", '"')))]
