"""A vLLM or an SGLang server with a model in torch, on the loopback: the parts of the two protocols that score, generate, and
give checksums of weights.

Written from vLLM 0.32 (entrypoints/openai/completion, models, rl/online) and SGLang 0.5.23 (entrypoints/http_server, managers).
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Logprobs = Callable[[list[int], list[int]], Any]
"""A function of (prompt, response) that gives the log-probs of the response."""
Fault = Callable[[Any], Any]
"""A change of an answer before it is sent."""


@dataclass
class EngineServer:
    """A server, and what it was asked for."""

    kind: str
    logprobs: Logprobs
    served: str = "tiny"
    adapters: Mapping[str, Logprobs] = field(default_factory=dict)
    """Name of a LoRA adapter of the model -> its log-probs."""
    weight_version: str = "7"
    root: str = "/models"
    """The folder of its weights."""
    longest: int = 128
    """Tokens of the context."""
    key: str = ""
    """The key that it demands."""
    fault: Fault | None = None
    statuses: list[int] = field(default_factory=list)
    """Status codes of the next scoring requests, before it answers them."""
    sampler: Callable[[str, list[int], int], list[int]] | None = None
    """A function of (adapter or "", prompt, tokens) that samples a response; None: it does not generate."""
    decode: Callable[[str, list[int], list[int]], Any] | None = None
    """A function of (adapter or "", prompt, response) that gives the log-probs of its decode; None: those of a prefill."""
    scaled: Callable[[Any, str, list[int], list[int]], Any] | None = None
    """A function of (sampling parameters, adapter or "", prompt, response) that gives the log-probs of a decode under other
    parameters than the neutral ones."""
    top: Callable[[str, list[int], list[int]], Any] | None = None
    """A function of (adapter or "", prompt, response) that gives the log-probs of all tokens at each place of the response, shape
    (tokens, vocabulary); None: the server gives those of no other token than the recorded one."""
    stale: Logprobs | None = None
    """The log-probs behind a prompt that comes from the cache; None: the same as behind any."""
    noise: float = 0.0
    """Nats that a log-prob is off by where a request has several sequences."""
    caches: bool = True
    """True if it has a prefix cache."""
    tells_cached: bool = True
    """True if it gives the number of tokens that came from the cache. SGLang always does."""
    cached: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    """(salt, tokens) that are in the cache."""
    raw: Callable[[BaseHTTPRequestHandler], None] | None = None
    """Answers a scoring request in its own way."""
    checksums: Callable[[], Any] | None = None
    """The answer of its weight checker; None: the server has none."""
    dtype: str = "bfloat16"
    """The type of its weights; "" if it gives none."""
    address: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """(path, body) of each request."""
    logins: set[str] = field(default_factory=set)
    """The values of Authorization that came."""
    busy: int = 0
    most_busy: int = 0
    """The most scoring requests at a time."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: str) -> Any:
        card = {"id": self.served, "object": "model", "owned_by": self.kind, "root": f"{self.root}/{self.served}"}
        loras = [card | {"id": name, "root": f"/adapters/{name}", "parent": self.served} for name in self.adapters]
        own = [card | {"parent": None, "max_model_len": self.longest}]
        told: dict[str, Any] = {"/v1/models": {"object": "list", "data": [*own, *loras]}}
        if self.kind == "vllm":
            config = {"vllm_config": {"model_config": {"dtype": f"torch.{self.dtype}", "quantization": None}}}
            told |= {"/server_info?config_format=json": config} if self.dtype else {}
            return (told | {"/version": {"version": "0.32.0"}}).get(path)
        model = {"model_path": f"{self.root}/{self.served}", "weight_version": self.weight_version}
        return (told | {"/model_info": model, "/server_info": self._sglang_info()}).get(path)

    def _sglang_info(self) -> Any:
        own = {"dtype": self.dtype, "quantization": None} if self.dtype else {}
        return {"version": "0.5.23", "api_key": "hidden", **own}

    def post(self, path: str, body: Any) -> Any:
        if path == {"vllm": "/weight_checker", "sglang": "/weights_checker"}[self.kind]:
            return None if self.checksums is None else self.checksums()
        if self.kind == "vllm" and path == "/v1/completions":
            return self._vllm_scored(body) if "prompt_logprobs" in body else self._vllm_sampled(body)
        if self.kind == "sglang" and path == "/generate":
            assert body["return_logprob"] is True
            return (self._sglang_sampled if body["sampling_params"]["max_new_tokens"] else self._sglang_scored)(body)
        return None

    def _vllm_scored(self, body: Any) -> Any:
        most, model = body["prompt_logprobs"], "" if body["model"] == self.served else body["model"]
        assert body["max_tokens"] == 1
        if most and self.top is None:
            return None
        rows = [self._row(prompt, 0, self._scorer(model), len(body["prompt"])) for prompt in body["prompt"]]
        tops = [self._top(model, prompt, 0, most) for prompt in body["prompt"]]
        choices = [
            {"index": index, "text": "", "prompt_logprobs": [None, *(
                {str(i): _entry(x)} | {str(j): _entry(y) for j, y in top} for (i, x), top in zip(row[1:], own, strict=True)
            )]}
            for index, (row, own) in enumerate(zip(rows, tops, strict=True))
        ]  # fmt: skip
        return {"object": "text_completion", "model": self.served, "choices": choices[::-1]}

    def _top(self, model: str, ids: list[int], start: int, most: int) -> list[list[tuple[int, float]]]:
        """(id, log-prob) of the likeliest tokens at each place after this one."""
        if not most or self.top is None:
            return [[] for _ in ids[start + 1 :]]
        every = self.top(model, ids[: start + 1], ids[start + 1 :])
        return [[(int(j), float(row[j])) for j in row.argsort()[::-1][:most]] for row in every]

    def _scorer(self, model: str) -> Logprobs:
        """That of an adapter, or of the model itself."""
        return self.adapters[model] if model else self.logprobs

    def _vllm_sampled(self, body: Any) -> Any:
        model = "" if body["model"] == self.served else body["model"]
        made = self._sampled(model, body, body["prompt"], body["max_tokens"], body.get("cache_salt", ""))
        if made is None or not body["return_token_ids"]:
            return None
        choices = [
            {"index": index, "text": "", "token_ids": ids, "logprobs": {"token_logprobs": own}}
            for index, (ids, own, _) in enumerate(made)
        ]
        details = {"cached_tokens": hits} if self.tells_cached and (hits := sum(hit for *_, hit in made)) else None
        return {"choices": choices[::-1], "usage": {"prompt_tokens_details": details}}

    def _sglang_sampled(self, body: Any) -> Any:
        sampling, (model, *_) = body["sampling_params"], body.get("lora_path", [""])
        made = self._sampled(model, sampling, body["input_ids"], sampling["max_new_tokens"], body.get("extra_key", ""))
        return made and [
            {"text": "", "meta_info": {"output_token_logprobs": [[x, id, None] for x, id in zip(own, ids, strict=True)],
                                       "cached_tokens": hit}}
            for ids, own, hit in made
        ]  # fmt: skip

    def _sglang_scored(self, body: Any) -> Any:
        answers, (model, *_) = [], body.get("lora_path", [""])
        for ids, start in zip(body["input_ids"], body["logprob_start_len"], strict=True):
            hit = start if self._is_cached(ids[:start], "") else 0
            own = (self.stale if hit else None) or self._scorer(model)
            self._keep(ids, "")
            row, (most, *_) = self._row(ids, start, own, len(body["input_ids"])), body.get("top_logprobs_num", [0])
            about = {"input_token_logprobs": [[x, i, None] for i, x in row], "cached_tokens": hit}
            if most and self.top is None:
                return None
            about |= {"input_top_logprobs": [None, *self._sglang_top(model, ids, start, most)]} if most else {}
            answers.append({"text": "", "meta_info": about})
        return answers

    def _sglang_top(self, model: str, ids: list[int], start: int, most: int) -> list[Any]:
        return [[[x, i, None] for i, x in place] for place in self._top(model, ids, start, most)]

    def _row(self, ids: list[int], start: int, logprobs: Logprobs, beside: int) -> list[tuple[int, float | None]]:
        """(id, log-prob) of each place from this one on; the first of them has none."""
        assert len(ids) < self.longest
        off = self.noise if beside > 1 else 0.0
        found = [float(x) - off for x in logprobs(ids[: start + 1], ids[start + 1 :])]
        return list(zip(ids[start:], [None, *found], strict=True))

    def _sampled(
        self, model: str, sampling: Any, prompts: list[list[int]], most: int, salt: str
    ) -> list[tuple[list[int], list[float], int]] | None:
        """(ids, log-probs, tokens from the cache) after each prompt, at temperature 1 and not cut; None: it does not generate."""
        if self.sampler is None:
            return None
        if (sampling["temperature"], sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (1.0, 1.0, -1, 0.0):
            return [self._gone_on(self.sampler(model, prompt, most), model, prompt, salt) for prompt in prompts]
        if self.scaled is None:
            return None
        made = [(prompt, self.sampler(model, prompt, most)) for prompt in prompts]
        return [(ids, [float(x) for x in self.scaled(sampling, model, prompt, ids)], 0) for prompt, ids in made]

    def _gone_on(self, ids: list[int], model: str, prompt: list[int], salt: str) -> tuple[list[int], list[float], int]:
        hit = len(prompt) - 1 if self._is_cached(prompt, salt) else 0
        decode = self._scorer(model) if self.decode is None else partial(self.decode, model)
        self._keep(prompt, salt)
        return ids, [float(x) for x in ((self.stale if hit else None) or decode)(prompt, ids)], hit

    def _is_cached(self, ids: list[int], salt: str) -> bool:
        return self.caches and bool(ids) and (salt, tuple(ids)) in self.cached

    def _keep(self, ids: list[int], salt: str) -> None:
        self.cached |= {(salt, tuple(ids[:end])) for end in range(1, len(ids) + 1)}


def _entry(logprob: float | None) -> dict[str, Any]:
    return {"logprob": logprob, "rank": 1, "decoded_token": "x"}


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: EngineServer, *arguments: Any) -> None:
        self.engine = server
        super().__init__(*arguments)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._answer(self.engine.get(self.path), None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        engine = self.engine
        with engine.lock:
            engine.busy += 1
            engine.most_busy = max(engine.most_busy, engine.busy)
            status = engine.statuses.pop(0) if engine.statuses else 0
        try:
            if engine.raw is not None and not status:
                engine.asked.append((self.path, body))
                engine.raw(self)
                return
            found = None if status else engine.post(self.path, body)
        finally:  # before the answer: whoever has it may ask again
            with engine.lock:
                engine.busy -= 1
        if status:
            self._said(status, {"error": {"message": f"not now, {self.headers.get('Authorization')}"}})
        else:
            self._answer(found if engine.fault is None else engine.fault(found), body)

    def _answer(self, found: Any, body: Any) -> None:
        engine = self.engine
        engine.asked.append((self.path, body))
        engine.logins.add(self.headers.get("Authorization") or "")
        if engine.key and self.headers.get("Authorization") != f"Bearer {engine.key}":
            self._said(401, {"error": "Unauthorized"})
        else:
            self._said(404 if found is None else 200, {"detail": "Not Found"} if found is None else found)

    def _said(self, status: int, found: Any) -> None:
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def engine_server(kind: str, logprobs: Logprobs, **settings: Any) -> Iterator[EngineServer]:
    """A server of this kind. settings: fields of EngineServer."""
    engine = EngineServer(kind, logprobs, **settings)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, engine))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    engine.address = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()


def endless(handler: BaseHTTPRequestHandler) -> None:
    """A body that never ends."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" " * 65536)
    except OSError:
        return


def dripping(handler: BaseHTTPRequestHandler) -> None:
    """A body that comes one byte at a time."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.01)
    except OSError:
        return


def halting(handler: BaseHTTPRequestHandler) -> None:
    """Headers that come one byte at a time, a third of a second."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    for _ in range(33):
        handler.wfile.write(b"X")
        time.sleep(0.01)


def compressed(handler: BaseHTTPRequestHandler) -> None:
    """A body that nobody asked to be compressed, of 10 MB in all."""
    handler.send_response(200)
    handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    handler.wfile.write(gzip.compress(b" " * 10_000_000))


def cut(handler: BaseHTTPRequestHandler) -> None:
    """A body that is shorter than it says."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")


def elsewhere(handler: BaseHTTPRequestHandler) -> None:
    """A redirect."""
    handler.send_response(307)
    handler.send_header("Location", "http://127.0.0.1:9/stolen")
    handler.end_headers()
