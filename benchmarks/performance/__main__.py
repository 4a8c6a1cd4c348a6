"""Measures, and keeps the figures in docs/performance.json; `make docs` writes docs/develop/performance.md from them.

    python -m benchmarks.performance [--quick] [--only log,size] [--out docs/performance.json]

--quick: small sizes and few rounds, to see whether everything runs. Figures of parts that are not measured stay as they were.
It ends with the ratios that differ from the figures that were kept before.
"""

import argparse
import json
import time
from pathlib import Path

from . import beside, engines, logging_cost, packages, readers, size, topk_cost, verdict
from .measured import as_json, machine
from .ratios import differences
from .workers import PEERS

PARTS = {
    "log": logging_cost,
    "topk": topk_cost,
    "packages": packages,
    "size": size,
    "index": engines,
    "beside": beside,
    "readers": readers,
    "verdict": verdict,
}
OUT = Path(__file__).parents[2] / "docs" / "performance.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    before = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    kept = dict(before)
    for name in chosen.only.split(","):
        began = time.perf_counter()
        found = as_json(list(PARTS[name].parts(chosen.quick)))
        took = round(time.perf_counter() - began)
        kept[name] = {"machine": machine(PEERS), "seconds": took, "is_quick": chosen.quick, "parts": found}
        chosen.out.write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{name}: {kept[name]['seconds']} s", flush=True)
    for line in differences(before, {name: kept[name] for name in chosen.only.split(",")}):
        print(line)


if __name__ == "__main__":
    main()
