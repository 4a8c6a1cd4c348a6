"""Tokens per second of `rescore --engine`, beside a plain loop that sends the same requests to the same server.

The plain loop keeps as many requests in flight, and only parses the answers. Without an argument the server is the protocol
server of the tests in a process of its own, which reads 100,000 tokens/s. `python benchmarks/rescore_engine.py URL [SEQUENCES]`
takes a vLLM server of yours, with random ids below 1,000 and the key of `rescore`, and measures its own speed too: the same
prompts without log-probs, past its prefix cache.
"""

import json
import os
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
from uuid import uuid4

import numpy as np

from ratioscope import Collector, open_run
from ratioscope.app.referee import engines
from ratioscope.app.referee.choice import Wanted, chosen
from ratioscope.app.referee.engines import Engine, engine_at
from ratioscope.app.referee.inputs import batches, inputs_of
from ratioscope.app.referee.rescoring import rescore
from ratioscope.app.referee.server import KEY, server_at

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


def recorded(folder: Path, sequences: int) -> Path:
    """A run of one step."""
    chance = np.random.default_rng(0)
    ids, prompts = (chance.integers(3, 1000, (sequences, width)).tolist() for width in (RESPONSE, PROMPT))
    own = chance.uniform(-2, 0, (sequences, RESPONSE)).astype(np.float32)
    with Collector(folder, writer="thread", strict=True) as collector:
        collector.log(step=1, rollout_logprobs=own, old_logprobs=own, token_ids=ids, prompt_ids=prompts)
    return folder


def plain(engine: Engine, run: Path, *, without: bool = False) -> None:
    """The requests of `rescore`, sent and parsed. without: log-probs of the prompt, for which vLLM reads no prefix cache."""
    opened = open_run(run)
    every = inputs_of(opened, chosen(opened, EVERYTHING), engine.room).sequences
    parts = [every[first : first + engine.at_once] for first in range(0, len(every), engine.at_once)]
    few = [[p[k] for k in own] for p in parts for own in batches([each.length for each in p], engines.REQUEST_TOKENS)]

    def asked(sequences: Any) -> Any:
        body = {"model": engine.served, "prompt": [[*s.prompt, *s.response] for s in sequences]}
        body |= {"max_tokens": 1, "temperature": 0.0}
        body |= {"cache_salt": uuid4().hex} if without else {"prompt_logprobs": 0}
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {engine.server.key}"}
        sent = Request(f"{engine.server.address}/v1/completions", json.dumps(body).encode(), head)  # noqa: S310
        with urlopen(sent) as answer:  # noqa: S310
            return json.load(answer)

    with ThreadPoolExecutor(engine.in_flight) as pool:
        list(pool.map(asked, few))


def main() -> None:
    sequences = int(sys.argv[2]) if sys.argv[2:] else SEQUENCES
    context = get_context("spawn")
    told = context.Queue()
    server = None
    if not sys.argv[1:]:
        server = context.Process(target=serve, args=(told,), daemon=True)
        server.start()
    address = sys.argv[1] if server is None else told.get(timeout=60)
    engine = engine_at(server_at(address, os.environ.get(KEY, "")))
    with tempfile.TemporaryDirectory() as folder:
        runs = [recorded(Path(folder) / str(number), sequences) for number in range(REPEATS + 1)]

        def seconds(call: Callable[[], Any]) -> float:
            start = time.perf_counter()
            call()
            return time.perf_counter() - start

        def timed(run: Path) -> list[float]:
            alone = [seconds(lambda: plain(engine, run, without=True))] if server is None else []
            own = [seconds(lambda: plain(engine, run)), seconds(lambda: rescore(open_run(run), engine, EVERYTHING))]
            return [*own, *alone]

        times = [timed(run) for run in runs][1:]
    if server is not None:
        server.terminate()
    tokens = sequences * (PROMPT + RESPONSE)
    print(f"{tokens:,} tokens, {engine.in_flight} requests in flight, median of {REPEATS} side by side")
    names = ("plain loop", "rescore", "no log-probs")
    for name, own in zip(names, zip(*times, strict=True), strict=False):
        ratio = statistics.median(each / bare for each, (bare, *_) in zip(own, times, strict=True))
        print(f"{name:16}{tokens / statistics.median(own):12,.0f} tokens/s{ratio:8.2f}x the time of the plain loop")


if __name__ == "__main__":
    main()
