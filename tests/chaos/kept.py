"""What the scenarios found when they were last run, each by itself: a long one need not wait for all the others."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope import __version__

from .figures import Figures


def keep(file: Path, found: Mapping[str, Figures], seed: int) -> None:
    """Adds to the file, by name of the scenario, what was found, when and with what; what is there of others stays."""
    told = _read(file)
    about = f"{datetime.now(UTC):%Y-%m-%d}, seed {seed}, ratioscope {__version__}, Python {platform.python_version()}"
    for name, figures in found.items():
        told[name] = asdict(figures) | {"about": f"{about}, pyarrow {pa.__version__}, {platform.system()}"}
    file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def kept(file: Path, names: Sequence[str]) -> list[tuple[Figures, str]]:
    """What is known of these scenarios, in this order, with what it was found with."""
    told = _read(file)
    found = []
    for name in names:
        if name in told:
            fields = dict(told[name])
            about = str(fields.pop("about"))
            found.append((Figures(**fields), about))
    return found


def _read(file: Path) -> dict[str, dict[str, Any]]:
    read: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}  # as `keep` wrote it
    return read
