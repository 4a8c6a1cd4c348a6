"""A contender's process: it does its work once for each line that it reads, and answers with what that took.

    python -m benchmarks.performance.contenders.worker FILE:FUNCTION '{"option": …}'

The function prepares the work and returns it, as functions of an integer by their names. A line is a name and an integer.
"""

import json
import os
import sys
import time
from importlib import import_module


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a package prints is no answer
    file, _, function = sys.argv[1].partition(":")
    try:
        works = getattr(import_module(f"{__package__}.{file}"), function)(**json.loads(sys.argv[2]))
    except Exception as error:
        print(json.dumps({"missing": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
        return
    print(json.dumps({"works": list(works)}), file=answers, flush=True)
    for line in sys.stdin:
        name, number = line.split()
        wall, cpu = time.perf_counter(), time.process_time()
        value = works[name](int(number))
        took = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        print(
            json.dumps({**took, "value": value if isinstance(value, int | float) else None}), file=answers, flush=True
        )


if __name__ == "__main__":
    main()
