"""The checksums that a running vLLM or SGLang server gives of the weights it holds.

vLLM (0.32.0 and later, only with VLLM_SERVER_DEV_MODE=1): POST /weight_checker, SHA-256 of the bytes of each parameter.
SGLang (0.5.12 and later): POST /weights_checker, 64 bits of each parameter and buffer but RoPE caches; block-wise FP8 is
dequantised first. Both know actions that change the weights. REQUEST is the only one that is ever sent.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.ingest.files.quarantine import printable

from ..referee.engines import Engine, well_formed
from ..referee.server import Absent, answered

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


_Shard = tuple[tuple[int, int, int, int], str, str]
"""(rank on each of _AXES, tensor, checksum)."""
_AXES = ("dp", "pp", "pcp", "tp")


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

    def read(self) -> list[Held]:
        """The weights that each replica of the server holds now. SourceError for an answer of another form."""
        path, began = PATHS[self.engine.kind], time.monotonic()
        try:
            answer = self.engine.server.ask(path, REQUEST, most_bytes=MOST_BYTES, tries=1)
        except Absent as error:
            raise SourceError(f"{error}; {ABSENT[self.engine.kind]}") from None
        seconds = time.monotonic() - began
        with well_formed(self.engine, path):
            return list(_held(self, _checked(list(_SHARDS[self.engine.kind](answer)), self.engine.kind), seconds))


def checkers(engines: Mapping[str, Engine]) -> list[Checker]:
    """The engines by name of their replicas, after each was asked for the type of its numbers."""
    return list(answered((partial(_checker, *each) for each in engines.items()), len(engines)))


def read_all(asked: Sequence[Checker]) -> list[Held]:
    """The weights that each replica holds, of all servers at once. SourceError for the first that cannot be read."""
    return [each for own in answered((one.read for one in asked), len(asked)) for each in own]


def _checker(name: str, engine: Engine) -> Checker:
    dtype, method = _numbers(engine)
    version = engine.made_of["engine"] if engine.kind == "sglang" else "vllm"  # SGLang's hash depends on its version
    of = f"{dtype}{method}" if dtype else f"of {name}"  # of unknown numbers: comparable with its own earlier ones alone
    return Checker(name, engine, printable(f"{version} {of}"), dtype)


def _numbers(engine: Engine) -> tuple[str, str]:
    """(dtype, "/method" of its quantisation) as the server gives them; "" for what it does not."""
    is_vllm = engine.kind == "vllm"
    path = f"/server_info{'?config_format=json' if is_vllm else ''}"
    try:
        answer = engine.server.ask(path, most_bytes=1 << 22, tries=1)
        own = answer["vllm_config"]["model_config"] if is_vllm else answer
        dtype, method = str(own["dtype"]).removeprefix("torch."), str(own.get("quantization") or "")
    except (SourceError, AttributeError, KeyError, TypeError):
        return "", ""
    return (dtype, method and f"/{method}") if _DTYPE.fullmatch(dtype) and len(method) < 24 else ("", "")


def _held(checker: Checker, shards: Sequence[_Shard], seconds: float) -> Iterator[Held]:
    """One entry for each data-parallel rank of the server; where there are several, another one for the experts of all."""
    dps, *_, tensor = ranks = [len({place[axis] for place, _, _ in shards}) for axis in range(4)]
    by = f"{checker.by[:32]} tp{tensor}" if tensor > 1 else checker.by[:40]
    units: dict[str, dict[str, str]] = {}
    for place, tensor_name, checksum in shards:
        unit = EXPERTS if dps > 1 and EXPERT in tensor_name else f"dp{place[0]}"
        shown = (unit == EXPERTS, *(number > 1 for number in ranks[1:]))
        before = "".join(f"{axis}{at}:" for axis, at, is_shown in zip(_AXES, place, shown, strict=True) if is_shown)
        units.setdefault(unit, {})[before + tensor_name] = checksum
    for unit, own in sorted(units.items()):
        full = {name: checksum for name, checksum in own.items() if checksum not in EMPTY}
        empty = tuple(sorted(own.keys() - full.keys()))
        replica = f"{checker.name}/{unit}" if dps > 1 else checker.name
        yield Held(replica, checker.engine.kind, by, checker.dtype, tensor, full, empty, seconds)


def _vllm_shards(answer: Any) -> Iterator[_Shard]:
    for key, checksum in answer["checksums"].items():
        if (match := _VLLM_KEY.fullmatch(key)) is None:
            raise ValueError(f"the key {key[:80]!r}, wanted dp0:pp0:pcp0:tp0:NAME")
        dp, pp, pcp, tp = map(int, match.groups()[:4])
        yield (dp, pp, pcp, tp), printable(match[5]), checksum


def _sglang_shards(answer: Any) -> Iterator[_Shard]:
    for rank in answer["ranks"]:
        told: Any = rank["parallelism_info"]
        # one for each model: the target and its drafts
        place: Any = told[0] if isinstance(told, list) and told else told
        dp, pp, tp = (place[name] for name in ("dp_rank", "pp_rank", "tp_rank"))
        if any(type(each) is not int or not 0 <= each < 10**6 for each in (dp, pp, tp)):
            raise ValueError(f"the ranks {str((dp, pp, tp))[:60]}, wanted numbers")
        for name, checksum in rank["checksums"].items():
            yield (dp, pp, 0, tp), printable(name), checksum


_SHARDS = {"vllm": _vllm_shards, "sglang": _sglang_shards}


def _checked(shards: Sequence[_Shard], kind: str) -> Sequence[_Shard]:
    """The shards. ValueError unless there are checksums of this kind, one for each tensor and rank, under names that fit."""
    if not shards:
        raise ValueError("no checksum")
    for _, name, checksum in shards:
        if not isinstance(checksum, str) or CHECKSUM[kind].fullmatch(checksum) is None:
            raise ValueError(f"{name[:60]!r} has {str(checksum)[:40]!r}, wanted hexadecimal digits")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"a name of {len(name):,} characters")
    (most, times), *_ = Counter((place, name) for place, name, _ in shards).most_common(1)
    if times > 1:
        raise ValueError(f"{most[1][:60]!r} twice of one rank")
    return shards
