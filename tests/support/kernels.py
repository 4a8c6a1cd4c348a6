"""Other processors' arithmetic on this one: numpy, the C library, Arrow and torch left with the kernels of an older one.

    python tests/support/kernels.py tests/metrics/test_metrics.py        # any arguments of pytest, once at each level

Whatever fails there, and not here, takes for granted that two machines give the same bits. See metrics/engines/agreement.py.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal

import numpy as np

Level = Literal["AVX2", "baseline"]
LEVELS: tuple[Level, ...] = ("AVX2", "baseline")
LATER = ("V4", "512")
"""In the names of features that came after AVX2."""
_OTHERS: dict[Level, dict[str, str]] = {
    "AVX2": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F", "ARROW_USER_SIMD_LEVEL": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "baseline": {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable",
        "ARROW_USER_SIMD_LEVEL": "NONE",
        "ATEN_CPU_CAPABILITY": "default",
    },
}  # fmt: skip


def environment(level: Level) -> dict[str, str]:
    """This process's environment, for one that has no later kernels than those of the level."""
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    dispatched: list[str] = [*extensions.get("found", []), *extensions.get("not found", [])]
    without = [name for name in dispatched if level == "baseline" or any(part in name for part in LATER)]
    return {**os.environ, **_OTHERS[level], "NPY_DISABLE_CPU_FEATURES": " ".join(without)}


def outcome(level: Level, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """pytest with these arguments, by the kernels of the level."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, env=environment(level), capture_output=True, text=True)


if __name__ == "__main__":
    found = [outcome(level, sys.argv[1:]) for level in LEVELS]
    for level, done in zip(LEVELS, found, strict=True):
        print(f"== {level}\n{done.stdout}{done.stderr}")
    sys.exit(max(done.returncode for done in found))
