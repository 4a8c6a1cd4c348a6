"""Source checkouts of trainers that are no packages, or whose packages do not install on a CPU: `make test-upstream SOURCES=DIR`.

DIR holds a folder per trainer, with any name. Nothing of a checkout is installed; its modules are imported from where they lie.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

VARIABLE = "SOURCES"


@dataclass(frozen=True)
class Checkout:
    """A source that the tests were run with."""

    repository: str
    """On GitHub; or, on PyPI, the name and version of a wheel to unpack."""
    commit: str
    """The commit, or the version."""
    package: str
    """The package to import, by which the checkout is found."""


CHECKOUTS = {
    "fireworks": Checkout("fw-ai/cookbook", "76821fa1", "training"),
    "agentlightning": Checkout("pypi:agentlightning", "1.0.2", "agentlightning"),
    "art": Checkout("pypi:openpipe-art", "0.5.18", "art"),
    "art_newer": Checkout("pypi:openpipe-art", "0.5.23", "art"),
    "axolotl": Checkout("pypi:axolotl", "0.21.0", "axolotl"),
    "megatron_rl": Checkout("NVIDIA/Megatron-LM", "d98e8a64dd", "megatron"),
    "ms_swift": Checkout("pypi:ms-swift", "4.6.0", "swift"),
    "slime": Checkout("THUDM/slime", "624b824a898a", "slime"),
    "open_instruct": Checkout("allenai/open-instruct", "e6c3044aa", "open_instruct"),
    "roll": Checkout("alibaba/ROLL", "8eb27cc2", "roll"),
    "prime_rl": Checkout("PrimeIntellect-ai/prime-rl", "559b44772", "prime_rl"),
    "torchtitan": Checkout("pytorch/torchtitan", "b5bcd76c66d0", "torchtitan"),
    "torchtitan_newer": Checkout("pypi:torchtitan", "0.3.0", "torchtitan"),
    "xtuner": Checkout("InternLM/xtuner", "b934f462095c", "xtuner"),
    "miles": Checkout("radixark/miles", "31f1ca961a94", "miles"),
    "nemo_rl": Checkout("NVIDIA-NeMo/RL", "7ea279abfbeb", "nemo_rl"),
}
"""Adapter -> its source."""


def root(name: str) -> Path:
    """The folder to import the trainer from; skips the test if there is none."""
    checkout = CHECKOUTS[name]
    given = os.environ.get(VARIABLE)
    if not given:
        pytest.skip(f"no {VARIABLE}: {checkout.repository} at {checkout.commit} is wanted in a folder of it")
    for folder in (*sorted(Path(given).iterdir()), Path(given)):  # a checkout may have the name of its package
        for place in (folder, folder / "src"):
            if (place / checkout.package).is_dir() and not folder.is_file() and _is_this(place, checkout):
                return place.absolute()
    pytest.skip(f"no checkout of {checkout.repository} ({checkout.commit}) in {given}")


def _is_this(place: Path, checkout: Checkout) -> bool:
    """False for an unpacked wheel of another version."""
    name = checkout.repository.partition("pypi:")[2].replace("-", "_")
    versions = [folder.name for folder in place.glob(f"{name}-*.dist-info")] if name else []
    return not versions or f"{name}-{checkout.commit}.dist-info" in versions


@contextmanager
def on_path(name: str) -> Iterator[Path]:
    """The checkout can be imported from within."""
    folder = root(name)
    sys.path.insert(0, str(folder))
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
