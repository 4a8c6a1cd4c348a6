"""Makes families of the bank: `cd tests && python -m bank.make FAMILY [--tokens N] [--folder DIR]`; minutes of one core."""

from __future__ import annotations

import argparse
import os
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import cast

os.environ.setdefault("OMP_NUM_THREADS", "1")

from .case import DATA, Case, read, write


def made(make: Callable[[], Case]) -> Case | None:
    """The case, or None if it failed: one that fails must not cost the others."""
    try:
        return make()
    except Exception:
        traceback.print_exc()
        return None


def name_of(make: Callable[[], Case]) -> str:
    """The name of the case that it makes."""
    return next(each for each in cast("partial[Case]", make).args if isinstance(each, str) and each.count(".") >= 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+", help="modules of this folder with a function `cases`")
    parser.add_argument("--tokens", type=int, default=1500, help="about how many tokens a run has")
    parser.add_argument("--folder", type=Path, default=DATA)
    parser.add_argument(
        "--only", default="", help="a word in the names of the runs that are made anew, the others stay"
    )
    parser.add_argument("--every", type=int, default=1, help="one run in so many")
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    with ProcessPoolExecutor(asked.processes) as pool:
        for family in asked.families:
            makers = list(import_module(f"bank.{family}").cases(asked.tokens))[:: asked.every]
            # a spec holds functions of its own, which no process can be sent: each makes its share by number
            numbers = [(family, asked.tokens, at * asked.every) for at in range(len(makers))]
            numbers = [which for which, make in zip(numbers, makers, strict=True) if asked.only in name_of(make)]
            cases = [case for case in pool.map(_numbered, numbers, chunksize=4) if case is not None]
            if asked.only:
                new = {case.name: case for case in cases}
                names = dict.fromkeys(map(name_of, makers))
                kept = {case.name: case for case in read(family, asked.folder) if asked.only not in case.name} | new
                cases = [kept[name] for name in names if name in kept]
            write(family, cases, asked.folder)
            print(f"{family}: {len(cases)} of {len(makers)} runs, {sum(case.tokens for case in cases):,} tokens")


def _numbered(which: tuple[str, int, int]) -> Case | None:
    family, tokens, number = which
    return made(list(import_module(f"bank.{family}").cases(tokens))[number])


if __name__ == "__main__":
    main()
