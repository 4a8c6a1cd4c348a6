"""The scorers of a run that `ratioscope parity` wrote, in a sentence."""

from collections.abc import Mapping
from typing import Any

from ratioscope.ingest.analysis.comparability import scorers_of

from .escape import visible

PARITY = "Parity:"
LONGEST = 60
"""Characters of a name that are shown."""


def parity_sentence(info: Mapping[str, Any]) -> str:
    """The scorer behind each side of the gap, and by their digests if both have the same weights; "" for another run.

    Scorers are in run.json. A digest covers names, sizes and contents of the files of weights; a server and a command have none.

    >>> parity_sentence({"config": {"parity": {"hf": {"model": "ckpt/smol", "dtype": "float32"}}}})
    'both sides are readings by hf (smol, float32), no engine and no trainer.'
    """
    scorers = scorers_of(info)
    names = [_scorer(own) for own in scorers]
    if len(names) == 1:
        return f"both sides are readings by {names[0]}, no engine and no trainer."
    if not names:
        return ""
    alike = ""
    if all("digest" in own for own in scorers):
        alike = f" Their files of weights {'have one digest' if scorers[0]['digest'] == scorers[1]['digest'] else 'differ'}."
    return f"the engine's side (rollout) is read by {names[0]}, the trainer's (old) by {names[1]}.{alike}"


def _scorer(made_of: Mapping[str, Any]) -> str:
    """Its name, and what it is made of."""
    name = str(made_of.get("name", ""))
    model = str(made_of.get("model", "")).rstrip("/").rpartition("/")[2]
    engine = " ".join(str(made_of[key]) for key in ("engine", "served") if key in made_of)
    command = f"the command {made_of['command']}" if "command" in made_of else ""
    parts = filter(None, [engine, model, command, str(made_of.get("dtype", ""))])
    return f"{visible(name, LONGEST)} ({', '.join(visible(part, LONGEST) for part in parts)})"
