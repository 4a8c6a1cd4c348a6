"""The checksums that a running vLLM or SGLang server gives of the weights it holds.

vLLM (0.32.0 and later, only with VLLM_SERVER_DEV_MODE=1): POST /weight_checker, SHA-256 of the bytes of each parameter.
SGLang (0.5.12 and later): POST /weights_checker, 64 bits of each parameter and buffer but RoPE caches; block-wise FP8 is
dequantised first. Both know actions that change the weights. REQUEST is the only one that is ever sent.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.ingest.files.quarantine import printable

from ..referee.engines import Engine, engine_at
from ..referee.server import Absent, Server, answered

PATHS = {"vllm": "/weight_checker", "sglang": "/weights_checker"}
REQUEST = {"action": "checksum"}
ABSENT = {
    "vllm": "it is in vLLM since 0.32.0, and only of a server that was started with VLLM_SERVER_DEV_MODE=1",
    "sglang": "SGLang 0.5.12 and later have it",
}
PAUSES = {
    "vllm": "vLLM computes no token meanwhile: the loop of its scheduler copies each tensor to the CPU and hashes it there",
    "sglang": "SGLang computes no token meanwhile: the loop of its scheduler hashes each tensor, on the GPU that holds it",
}
"""Kind -> what stands still. vLLM 0.32.0: v1/engine/core.py, `_handle_client_request` between two steps; SGLang 0.5.23:
managers/scheduler.py, `CheckWeightsReqInput` in the dispatcher of requests."""
EMPTY = frozenset({
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "e3b0c44298fc1c14", "0" * 16,
})  # fmt: skip
"""Checksums of no bytes. vLLM on the CPU packs the weights of linear layers and leaves an empty parameter behind."""
MOST_BYTES = 32 << 20
"""The largest answer that is read. Each tensor of each rank takes about 150."""
LONGEST_NAME = 400
EXPERT, EXPERTS = ".experts.", "experts"
"""Part of the name of a tensor of experts, and the name of all of a server."""
_VLLM_KEY = re.compile(r"dp(\d{1,6}):pp(\d{1,6}):pcp(\d{1,6}):tp(\d{1,6}):(.+)", re.DOTALL)
CHECKSUM = {"vllm": re.compile(r"[0-9a-f]{64}"), "sglang": re.compile(r"[0-9a-f]{16}")}
"""Kind -> the form of a checksum."""
_DTYPE = re.compile(r"[\w./-]{1,24}", re.ASCII)


@dataclass(frozen=True)
class Held:
    """The checksums of the weights that a replica holds."""

    replica: str
    """The name of its server; where that has several data-parallel ranks, /dpN or /experts, which they share out, behind it."""
    kind: str
    """vllm or sglang."""
    by: str
    """Who made the checksums, of numbers of which type, in how many shards: only those of one maker can be compared."""
    dtype: str
    """As the server gives it, such as bfloat16; "" if it does not."""
    shards: int
    """Tensor-parallel ranks."""
    checksums: Mapping[str, str]
    """Name of a tensor, behind "tpN:" where there are several ranks -> its checksum."""
    empty: tuple[str, ...]
    """Names of tensors without a byte: their checksums prove nothing."""
    seconds: float
    """Duration of the request."""


@dataclass(frozen=True)
class _Shard:
    """A checksum with its place."""

    dp: int
    """Data-parallel rank."""
    place: tuple[int, int, int]
    """(pipeline, context, tensor) rank."""
    name: str
    """The tensor."""
    checksum: str


@dataclass(frozen=True)
class Checker:
    """A server that was asked what it is."""

    name: str
    """The replica."""
    engine: Engine
    by: str
    """Who makes its checksums, of numbers of which type."""
    dtype: str
    """As the server gives it; "" if it does not."""
    server: Server = field(repr=False)

    def read(self) -> list[Held]:
        """The weights that each replica of the server holds now. SourceError for an answer of another form."""
        path, began = PATHS[self.engine.kind], time.monotonic()
        try:
            answer = self.server.ask(path, REQUEST, most_bytes=MOST_BYTES, tries=1)
        except Absent as error:
            raise SourceError(f"{error}; {ABSENT[self.engine.kind]}") from None
        return list(held(self, answer, time.monotonic() - began))


def checkers(servers: Mapping[str, Server]) -> list[Checker]:
    """The servers by name, after each was asked what it is. SourceError if one is neither vLLM nor SGLang."""
    return list(answered((partial(_checker, *each) for each in servers.items()), len(servers)))


def read_all(asked: Sequence[Checker]) -> list[Held]:
    """The weights that each replica holds, of all servers at once. SourceError for the first that cannot be read."""
    return [each for own in answered((one.read for one in asked), len(asked)) for each in own]


def _checker(name: str, server: Server) -> Checker:
    engine = engine_at(server)
    dtype, method = _numbers(server, engine.kind)
    version = engine.made_of["engine"] if engine.kind == "sglang" else "vllm"  # SGLang's hash depends on its version
    of = f"{dtype}{method}" if dtype else f"of {name}"  # of unknown numbers: comparable with its own earlier ones alone
    return Checker(name, engine, printable(f"{version} {of}"), dtype, server)


def _numbers(server: Server, kind: str) -> tuple[str, str]:
    """(dtype, "/method" of its quantisation) as the server gives them; "" for what it does not."""
    try:
        answer = server.ask(
            "/server_info" + ("?config_format=json" if kind == "vllm" else ""), most_bytes=1 << 22, tries=1
        )
        own = answer["vllm_config"]["model_config"] if kind == "vllm" else answer
        dtype, method = str(own["dtype"]).removeprefix("torch."), str(own.get("quantization") or "")
    except (SourceError, AttributeError, KeyError, TypeError):
        return "", ""
    return (dtype, method and f"/{method}") if _DTYPE.fullmatch(dtype) and len(method) < 24 else ("", "")


def held(checker: Checker, answer: Any, seconds: float) -> Iterator[Held]:
    """One entry for each data-parallel rank of the server; where there are several, another one for the experts of all."""
    kind = checker.engine.kind
    try:
        shards = list(_SHARDS[kind](answer))
        _demand(shards, kind)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"the answer to {PATHS[kind]} has another form ({type(error).__name__}: {str(error)[:100]})"
        raise SourceError(f"{checker.server.address}: {what}; wanted checksums by name") from None
    several = [len({shard.place[axis] for shard in shards}) > 1 for axis in range(3)]
    dps, tensor = sorted({shard.dp for shard in shards}), len({shard.place[2] for shard in shards})
    by = f"{checker.by[:32]} tp{tensor}" if tensor > 1 else checker.by[:40]
    units: dict[str, dict[str, str]] = {}
    for shard in shards:
        unit = EXPERTS if len(dps) > 1 and EXPERT in shard.name else f"dp{shard.dp}"
        units.setdefault(unit, {})[_name(shard, (unit == EXPERTS, *several))] = shard.checksum
    for unit, own in sorted(units.items()):
        full = {name: checksum for name, checksum in own.items() if checksum not in EMPTY}
        name = f"{checker.name}/{unit}" if len(dps) > 1 else checker.name
        yield Held(name, kind, by, checker.dtype, tensor, full, tuple(sorted(own.keys() - full.keys())), seconds)


def _name(shard: _Shard, shown: Sequence[bool]) -> str:
    """The tensor behind its ranks, as far as they are shown."""
    ranks = zip(("dp", "pp", "pcp", "tp"), (shard.dp, *shard.place), shown, strict=True)
    return "".join(f"{axis}{rank}:" for axis, rank, is_shown in ranks if is_shown) + shard.name


def _vllm_shards(answer: Any) -> Iterator[_Shard]:
    for key, checksum in answer["checksums"].items():
        if (match := _VLLM_KEY.fullmatch(key)) is None:
            raise ValueError(f"the key {key[:80]!r}, wanted dp0:pp0:pcp0:tp0:NAME")
        dp, pp, pcp, tp = map(int, match.groups()[:4])
        yield _Shard(dp, (pp, pcp, tp), printable(match[5]), checksum)


def _sglang_shards(answer: Any) -> Iterator[_Shard]:
    for rank in answer["ranks"]:
        told = rank["parallelism_info"]
        place = told[0] if isinstance(told, list) and told else told  # one for each model: the target and its drafts
        dp, pp, tp = (place[name] for name in ("dp_rank", "pp_rank", "tp_rank"))
        if any(type(each) is not int or not 0 <= each < 10**6 for each in (dp, pp, tp)):
            raise ValueError(f"the ranks {str((dp, pp, tp))[:60]}, wanted numbers")
        for name, checksum in rank["checksums"].items():
            yield _Shard(dp, (pp, 0, tp), printable(name), checksum)


_SHARDS = {"vllm": _vllm_shards, "sglang": _sglang_shards}


def _demand(shards: Sequence[_Shard], kind: str) -> None:
    """ValueError unless there are checksums of this kind of server, one for each tensor and rank, under names that fit."""
    if not shards:
        raise ValueError("no checksum")
    for shard in shards:
        if not isinstance(shard.checksum, str) or CHECKSUM[kind].fullmatch(shard.checksum) is None:
            raise ValueError(f"{shard.name[:60]!r} has {str(shard.checksum)[:40]!r}, wanted hexadecimal digits")
        if len(shard.name) > LONGEST_NAME:
            raise ValueError(f"a name of {len(shard.name):,} characters")
    (most, times), *_ = Counter((shard.dp, shard.place, shard.name) for shard in shards).most_common(1)
    if times > 1:
        raise ValueError(f"{most[2][:60]!r} twice of one rank")
