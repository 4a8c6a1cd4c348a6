"""A vLLM server on the CPU, the responses that it samples, and SmolLM2 with weights that differ a little."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ratioscope.app.referee.inputs import Sequence_
from ratioscope.app.referee.model import referee
from ratioscope.app.referee.server import Server, answered, server_at
from ratioscope.errors import SourceError

VLLM = os.environ.get("VLLM", "")
SECRET = "k3y"
"""The key of the servers."""
CPU = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_SERVER_DEV_MODE": "1",
}  # fmt: skip
SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
CONFIG = {"sampling": SAMPLING, "model": {"name": "HuggingFaceTB/SmolLM2"}}
THINGS = ("the moon", "a violin", "bread", "chess", "honey", "a comet", "rain", "a clock")
RULES = " ".join(f"Rule {k}: be brief, be exact, and never repeat the question." for k in range(12))
"""A system prompt of more than 128 tokens, which is one block of the CPU's prefix cache."""


@contextmanager
def serving(folder: Path, logs: Path, *options: str) -> Iterator[Server]:
    """A server of these weights in bfloat16, ended on leaving. It fails with the end of its log if it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    usual = ["--served-model-name", "SmolLM2", "--dtype", "bfloat16", "--enforce-eager", "--max-model-len", "512"]
    usual += ["--logprobs-mode", "processed_logprobs"]  # raw ones are the same at temperature 1
    place = ["--host", "127.0.0.1", "--port", str(port), "--api-key", SECRET, "--max-num-seqs", "8"]
    with open(logs / "log", "w") as log:
        process = subprocess.Popen(
            [VLLM, "serve", str(folder), *usual, *place, *options], env=os.environ | CPU, stdout=log, stderr=log
        )
        made = server_at(f"http://127.0.0.1:{port}", SECRET)
        try:
            _wait(made, process, Path(log.name))
            yield made
        finally:
            process.terminate()
            process.wait(60)


def _wait(made: Server, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(60):
        if process.poll() is not None:
            pytest.fail(log.read_text()[-2000:])
        try:
            made.ask("/v1/models", seconds=10)
            return
        except SourceError:
            time.sleep(5)
    pytest.fail(f"no server within minutes: {log.read_text()[-2000:]}")


def prompts(folder: Path, *, system: str = "", generation_prompt: bool = True) -> list[list[int]]:
    """A question for each of THINGS as token ids."""
    transformers: Any = pytest.importorskip("transformers", reason="the tokenizer is transformers'")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    first = [{"role": "system", "content": system}] if system else []
    chats = [[*first, {"role": "user", "content": f"Describe {thing} in one short sentence."}] for thing in THINGS]
    return [
        tokenizer(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=generation_prompt))[
            "input_ids"
        ]
        for chat in chats
    ]


@dataclass(frozen=True)
class Response:
    """One sampled response."""

    ids: tuple[int, ...]
    """Its tokens."""
    logprobs: tuple[float, ...]
    """The decode's log-prob of each, in nats."""
    cached: int
    """Tokens of its prompt that came from the prefix cache; 0 if the server does not tell."""


def sampled(
    server: Server, read: Sequence[Sequence[int]], *, temperature: float = 1.0, seed: int = 1, salt: str = ""
) -> list[Response]:
    """A response of 40 tokens at most to each prompt; a request for each, because usage counts cached tokens by request.

    salt: prompts read nothing of a prefix cache that was filled without it.
    """
    body = {"model": "SmolLM2", "max_tokens": 40, "logprobs": 0, "return_token_ids": True, "seed": seed}
    body |= SAMPLING | {"temperature": temperature} | ({"cache_salt": salt} if salt else {})
    bodies = [body | {"prompt": list(prompt)} for prompt in read]
    return [_response(own) for own in answered((partial(server.ask, "/v1/completions", own) for own in bodies), 8)]


def _response(answer: dict[str, Any]) -> Response:
    (choice,) = answer["choices"]
    cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Response(tuple(choice["token_ids"]), tuple(choice["logprobs"]["token_logprobs"]), cached)


def trained(folder: Path, given: Sequence[Sequence[int]], responses: Sequence[Response]) -> list[list[float]]:
    """The log-probs of the responses behind these prompts, in nats, by the weights of a folder in float32."""
    each = [Sequence_(0, 1, str(k), tuple(own), responses[k].ids) for k, own in enumerate(given)]
    found = dict(referee(folder, device="cpu").scores(each, None))
    return [found[k].tolist() for k in range(len(each))]


def columns(
    given: Sequence[Sequence[int]], responses: Sequence[Response], by: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """The arguments of Collector.log: prompts of the trainer, responses, and the trainer's log-probs of these."""
    return {
        "rollout_logprobs": [own.logprobs for own in responses], "old_logprobs": list(by), "prompt_ids": list(given),
        "token_ids": [own.ids for own in responses],
    }  # fmt: skip


def distance(responses: Sequence[Response], by: Sequence[Sequence[float]]) -> float:
    """mean |x| between the decode and the trainer, nats/token."""
    pairs = [pair for own, other in zip(responses, by, strict=True) for pair in zip(own.logprobs, other, strict=True)]
    return sum(abs(decode - trainer) for decode, trainer in pairs) / len(pairs)


def changed(folder: Path, out: Path, *, by: float, seed: int) -> Path:
    """The checkpoint after an update: noise of `by` standard deviations on each tensor of a block; the embedding stays.

    vLLM on the CPU keeps a packed copy of an embedding that is the head, too, and a reload does not pack it again.
    """
    import torch

    safetensors: Any = pytest.importorskip("safetensors.torch", reason="the checkpoint is safetensors'")
    tensors, drawn = safetensors.load_file(folder / "model.safetensors"), torch.Generator().manual_seed(seed)
    for name, own in tensors.items():
        if ".layers." in name:
            own += by * own.std() * torch.randn(own.shape, generator=drawn)
    out.mkdir()
    for kept in (own for own in folder.iterdir() if own.suffix in (".json", ".jinja", ".txt")):
        (out / kept.name).write_bytes(kept.read_bytes())
    safetensors.save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


def loads(server: Server, folder: Path) -> None:
    """The server holds the weights of this folder from now on. Its prefix cache is kept."""
    server.ask("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
