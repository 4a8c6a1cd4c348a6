"""What is told of the trainers that can be attached to, by `ratioscope attach` and in docs/trainers.md, from the one table."""

import shlex

from ratioscope.collectors.adapters.table import Adapter

ANY_OTHER = (
    "any other trainer calls ratioscope.Collector(run_dir).log(step=..., rollout_logprobs=..., old_logprobs=...) itself"
)


def against(adapter: Adapter) -> str:
    """What the tests ran."""
    return "the real package" if adapter.against == "package" else "stand-ins of its signatures"


def tested(adapter: Adapter) -> str:
    """The versions, and of what."""
    return f"{', '.join(adapter.tested)}, {against(adapter)}"


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
