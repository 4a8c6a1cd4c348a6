"""Noise floors that the user saved: a JSON file each in the folder `baselines` of the user's configuration."""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from ratioscope.errors import ConfigError
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.version import __version__
from ratioscope.whole_file import whole_file

from ..presentation.metric_places import OF_FLOOR
from ..presentation.noise_floor import FloorValue, NoiseFloor

SCHEMA = "ratioscope-baseline/1"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MOST_BYTES = 1 << 20
ESTIMATOR = "; ".join(f"{name} = {BY_NAME[name].formula}" for name in OF_FLOOR) + "; errors: sequences are the units"


def baselines_folder() -> Path:
    """$XDG_CONFIG_HOME/ratioscope/baselines, by default ~/.config/ratioscope/baselines."""
    chosen = os.environ.get("XDG_CONFIG_HOME", "")
    base = chosen if os.path.isabs(chosen) else os.path.expanduser("~/.config")
    if not os.path.isabs(base):
        raise ConfigError("there is no home folder to keep baselines in; wanted XDG_CONFIG_HOME=/a/folder")
    return Path(base) / "ratioscope" / "baselines"


def baseline_names() -> list[str]:
    """The names of the saved baselines, in order; none where the folder cannot be read."""
    try:
        names = [path.stem for path in baselines_folder().iterdir() if path.suffix == ".json"]
    except (OSError, ConfigError):
        return []
    return sorted(name for name in names if NAME.fullmatch(name))


def demand_name(name: str) -> None:
    """ConfigError unless a baseline can have this name."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"baseline {name[:80]!r}: wanted letters, digits, . _ and -, such as qwen3-4b-bf16-vllm")


def baseline(name: str) -> NoiseFloor:
    """The baseline of this name. ConfigError if there is none, or if its file is damaged."""
    path = _path(name)
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        known = ", ".join(baseline_names()) or "none"
        raise ConfigError(
            f"baseline {name}: {_why(error)}; saved are: {known}; try: ratioscope baseline save RUN as {name}"
        ) from error
    try:
        return _floor(name, json.loads(content))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path} is no baseline ({type(error).__name__}: {str(error)[:80]}); try: ratioscope baseline remove {name}"
        ) from error


def write_baseline(floor: NoiseFloor) -> Path:
    """Saves the baseline under its name, in place of an older one. The file appears whole or not at all."""
    path = _path(floor.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            file.write(json.dumps(plain_baseline(floor), indent=1, allow_nan=False).encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; wanted a folder that you may write") from error
    return path


def _why(error: OSError) -> str:
    return "there is none of this name" if isinstance(error, FileNotFoundError) else error.strerror or "unreadable"


def remove_baseline(name: str) -> None:
    """Deletes the baseline. ConfigError if there is none."""
    try:
        _path(name).unlink()
    except OSError as error:
        known = ", ".join(baseline_names()) or "none"
        raise ConfigError(f"baseline {name}: {_why(error)}; saved are: {known}") from error


def plain_baseline(floor: NoiseFloor) -> dict[str, Any]:
    """The content of its file."""
    return {
        "schema": SCHEMA,
        "name": floor.name,
        "gap": floor.gap,
        "floor": floor.how,
        "estimator": ESTIMATOR,
        "values": {name: {"value": _number(own.value), "error": _number(own.error)} for name, own in floor.values},
        "tokens": floor.tokens,
        "sequences": floor.sequences,
        "run": floor.run,
        "digest": floor.digest,
        "steps": list(floor.steps),
        "facts": dict(floor.facts),
        "saved": floor.saved,
        "saved_by": f"ratioscope {__version__}",
    }


def _floor(name: str, read: Any) -> NoiseFloor:
    """The baseline of a file's JSON. Any: a stranger may have written it."""
    if not isinstance(read, dict) or read.get("schema") != SCHEMA:
        raise ValueError(f"its schema is not {SCHEMA}")
    values = tuple((metric, _value(read["values"][metric])) for metric in OF_FLOOR)
    texts = tuple((str(key)[:80], str(text)[:200]) for key, text in dict(read["facts"]).items())[:20]
    how, run, digest, saved, gap = (str(read[key])[:300] for key in ("floor", "run", "digest", "saved", "gap"))
    steps = tuple(int(step) for step in read["steps"])
    return NoiseFloor(
        name, gap, how, values, int(read["tokens"]), int(read["sequences"]), run, digest, steps, texts, saved
    )


def _value(read: Any) -> FloorValue:
    value = float(read["value"])
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"value {value}; wanted a number from 0 on")
    return FloorValue(value, math.nan if read["error"] is None else float(read["error"]))


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _path(name: str) -> Path:
    demand_name(name)
    return baselines_folder() / f"{name}.json"
