"""Tokens per second of `rescore --engine`, beside a plain loop that sends the same requests to the same server.

The plain loop keeps as many requests in flight, and only parses the answers. Without an argument the server is the protocol
server of the tests in a process of its own, which reads 100,000 tokens/s. `python benchmarks/rescore_engine.py URL` takes
one of yours, with random ids below 1,000.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from ratioscope import Collector, open_run
from ratioscope.app.referee import engines
from ratioscope.app.referee.choice import Wanted, chosen
from ratioscope.app.referee.engines import Engine, engine_at
from ratioscope.app.referee.inputs import batches, inputs_of
from ratioscope.app.referee.rescoring import rescore
from ratioscope.app.referee.server import server_at

SEQUENCES, PROMPT, RESPONSE, REPEATS = 256, 64, 192, 5
EVERYTHING = Wanted(everything=True)
READS = 100_000
"""Tokens that the protocol server reads in a second."""


def serve(told: Any) -> None:
    """The protocol server; its address is put into the queue."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    support: Any = import_module("support.engine_server")

    def logprobs(prompt: list[int], response: list[int]) -> Any:
        time.sleep(len(response) / READS)
        return np.full(len(response), -1.0)

    with support.engine_server("vllm", logprobs, longest=1024) as server:
        told.put(server.address)
        while True:
            time.sleep(60)


def recorded(folder: Path) -> Path:
    """A run of one step."""
    chance = np.random.default_rng(0)
    ids, prompts = (chance.integers(3, 1000, (SEQUENCES, width)).tolist() for width in (RESPONSE, PROMPT))
    own = chance.uniform(-2, 0, (SEQUENCES, RESPONSE)).astype(np.float32)
    with Collector(folder, writer="thread", strict=True) as collector:
        collector.log(step=1, rollout_logprobs=own, old_logprobs=own, token_ids=ids, prompt_ids=prompts)
    return folder


def plain(engine: Engine, run: Path) -> None:
    """The requests of `rescore`, sent and parsed."""
    opened = open_run(run)
    every = inputs_of(opened, chosen(opened, EVERYTHING), engine.room).sequences
    parts = [every[first : first + engine.at_once] for first in range(0, len(every), engine.at_once)]
    few = [[p[k] for k in own] for p in parts for own in batches([each.length for each in p], engines.REQUEST_TOKENS)]

    def asked(sequences: Any) -> Any:
        body = {"model": engine.served, "prompt": [[*s.prompt, *s.response] for s in sequences]}
        body |= {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        sent = Request(  # noqa: S310
            f"{engine.server.address}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(sent) as answer:  # noqa: S310
            return json.load(answer)

    with ThreadPoolExecutor(engine.in_flight) as pool:
        list(pool.map(asked, few))


def main() -> None:
    context = get_context("spawn")
    told = context.Queue()
    server = None
    if not sys.argv[1:]:
        server = context.Process(target=serve, args=(told,), daemon=True)
        server.start()
    engine = engine_at(server_at(sys.argv[1] if sys.argv[1:] else told.get(timeout=60)))
    with tempfile.TemporaryDirectory() as folder:
        runs = [recorded(Path(folder) / str(number)) for number in range(REPEATS + 1)]

        def seconds(call: Callable[[], Any]) -> float:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start

        times = [
            (seconds(lambda: plain(engine, run)), seconds(lambda: rescore(open_run(run), engine, EVERYTHING)))  # noqa: B023
            for run in runs
        ][1:]
    if server is not None:
        server.terminate()
    ratio = statistics.median(ours / bare for bare, ours in times)
    tokens = SEQUENCES * (PROMPT + RESPONSE)
    bare, ours = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"{tokens:,} tokens, {engine.in_flight} requests in flight, median of {REPEATS} side by side")
    print(f"{'plain loop':16}{tokens / bare:12,.0f} tokens/s")
    print(f"{'rescore':16}{tokens / ours:12,.0f} tokens/s{ratio:8.2f}x the time")


if __name__ == "__main__":
    main()
