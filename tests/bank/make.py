"""Makes families of the bank: `cd tests && python -m bank.make FAMILY [--tokens N] [--folder DIR]`; minutes of one core."""

from __future__ import annotations

import argparse
import os
from importlib import import_module
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from .case import DATA, write


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+", help="modules of this folder with a function `cases`")
    parser.add_argument("--tokens", type=int, default=1500, help="about how many tokens a run has")
    parser.add_argument("--folder", type=Path, default=DATA)
    asked = parser.parse_args()
    for family in asked.families:
        cases = list(import_module(f"bank.{family}").cases(asked.tokens))
        write(family, cases, asked.folder)
        print(f"{family}: {len(cases)} runs, {sum(case.tokens for case in cases):,} tokens")


if __name__ == "__main__":
    main()
