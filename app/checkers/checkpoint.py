"""The checksums that an engine would give if it held the weights of a checkpoint: cast, fused and cut as the engine holds them.

The rules are those of Llama and its relatives in vLLM 0.32.0 and SGLang 0.5.23 (layers/linear.py, vocab_parallel_embedding.py).
A tensor that no rule covers has no checksum here: it is never called equal. An engine may hold a tensor in yet another form
(packed, quantised), so a checksum that differs proves nothing by itself: see `references.py`.
"""

import hashlib
import mmap
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ratioscope.arrays import Array
from ratioscope.errors import SourceError
from ratioscope.flat_json import loaded
from ratioscope.ingest.importers.arrays import stored_tensors
from ratioscope.ingest.importers.restricted.tensors import widened
from ratioscope.weights import FUSED

from .answers import Held

Rule = Literal["whole", "rows", "columns", "heads", "vocabulary"]
"""The part of a tensor that each of the tensor-parallel ranks holds."""
FAMILIES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures of config.json whose modules have the names of RULES in both engines."""
RULES: tuple[tuple[re.Pattern[str], Rule], ...] = (
    (re.compile(r"(.*\.)?(embed_tokens|lm_head)\.weight"), "vocabulary"),
    (re.compile(r".*\.qkv_proj\.(weight|bias)"), "heads"),
    (re.compile(r".*\.gate_up_proj\.(weight|bias)"), "rows"),
    (re.compile(r".*\.(o_proj|down_proj)\.weight"), "columns"),
    (re.compile(r".*\.(o_proj|down_proj)\.bias"), "whole"),
    (re.compile(r"(.*\.)?\w*norm\.weight"), "whole"),
)
"""Name in the engine -> its part."""
VOCABULARY_MULTIPLE = 64
"""Rows of the vocabulary are filled up with zeros to a multiple of this."""
FLOATS = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""dtype of an engine -> type of a safetensors file."""
_Place = tuple[int, int]
"""(one of the tensor-parallel ranks, their number)."""
_RANKS = re.compile(r"((?:[a-z]+\d+:)*)(.*)", re.DOTALL)
_CAST_AT_ONCE = 1 << 24  # elements; bounds the copies in float32


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of a folder, mapped from its files."""

    tensors: Mapping[str, tuple[str, Array]]
    """Name -> (type, array): see `stored_tensors`."""
    config: Mapping[str, Any]
    """The content of config.json."""

    @property
    def is_known(self) -> bool:
        """True if RULES are those of its architecture."""
        own = self.config.get("architectures")
        return isinstance(own, list) and bool(set(map(str, own)) & set(FAMILIES))

    def checksums(self, name: str, of: Held) -> tuple[str, ...]:
        """The checksums that this tensor of the engine may have, one for each algorithm; () where no mapping is known."""
        ranks, own = _RANKS.fullmatch(name).groups()  # type: ignore[union-attr]  # the last group takes any text
        rule: Rule | None = next((rule for pattern, rule in RULES if pattern.fullmatch(own)), None)
        stored = [self.tensors.get(part) for part in self._parts(own, of.kind)]
        if rule is None or not self.is_known or None in stored:
            return ()
        tensor = re.search(r"(?<![a-z])tp(\d+):", ranks)
        place = int(tensor[1]) if tensor else 0, of.shards
        pieces = []
        for part, (kind, array) in enumerate(filter(None, stored)):
            shard = self._shard(array, rule, part, place)
            cast = None if shard is None else _cast(shard, kind, FLOATS.get(of.dtype, kind))
            if cast is None:
                return ()
            pieces.append(cast)
        octets = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        return tuple(algorithm(octets) for algorithm in ALGORITHMS[of.kind])

    def _parts(self, name: str, kind: str) -> Sequence[str]:
        """Names in the checkpoint of the tensors that the engine holds as one, one behind the other."""
        for module, parts in FUSED[kind].items():
            before, found, after = name.rpartition(f".{module}.")
            if found:
                return [f"{before}.{part}.{after}" for part in parts]
        is_tied = name == "lm_head.weight" and name not in self.tensors and bool(self.config.get("tie_word_embeddings"))
        return ["model.embed_tokens.weight" if is_tied else name]

    def _shard(self, array: Array, rule: Rule, part: int, place: _Place) -> Array | None:
        """The part of a tensor that a rank holds; None if it cannot be cut so."""
        rank, ranks = place
        if rule == "whole" or (ranks == 1 and rule != "vocabulary"):
            return array
        if rule == "columns":
            return _cut(array, 1, place) if array.ndim == 2 else None
        if rule == "vocabulary":
            rows = -(-len(array) // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
            filled = np.zeros((rows - len(array), *array.shape[1:]), array.dtype)
            return _cut(np.concatenate([array, filled]) if len(filled) else array, 0, place)
        if rule == "heads" and part:
            heads = self.config.get("num_key_value_heads", self.config.get("num_attention_heads"))
            if type(heads) is not int or not 0 < heads:
                return None
            if heads < ranks:  # several ranks hold the same head
                return _cut(array, 0, (rank // (ranks // heads), heads))
        return _cut(array, 0, place)


def _cut(array: Array, axis: int, place: _Place) -> Array | None:
    """An equal share of the array along an axis; None if it has none."""
    rank, ranks = place
    if array.ndim <= axis or array.shape[axis] % ranks:
        return None
    size = array.shape[axis] // ranks
    return array[(slice(None),) * axis + (slice(rank * size, (rank + 1) * size),)]


def _cast(array: Array, kind: str, wanted: str) -> Array | None:
    """The bytes of the array as numbers of this type, rounded as torch does; None between other types than FLOATS."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if kind == wanted:
        return flat.view(np.uint8)
    if not {kind, wanted} <= set(FLOATS.values()):
        return None
    parts = (flat[at : at + _CAST_AT_ONCE] for at in range(0, max(len(flat), 1), _CAST_AT_ONCE))
    wide = (widened(part) if kind == "BF16" else part.astype(np.float32) for part in parts)
    return np.concatenate([_rounded(part, wanted) for part in wide])


def _rounded(numbers: Array, wanted: str) -> Array:
    """float32 numbers in another type, to the nearest one, ties to even; a NaN of bfloat16 is torch's."""
    if wanted != "BF16":
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16 if wanted == "F16" else np.float32).view(np.uint8)
    bits = numbers.view(np.uint32)
    nearest = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), nearest.astype(np.uint16)).view(np.uint8)


def checkpoint(folder: Path) -> Checkpoint:
    """The safetensors files of a folder and its config.json. SourceError says what is missing."""
    config = _json(folder / "config.json")
    tensors = dict[str, tuple[str, Array]]()
    for file in _files(folder):
        for name, stored in stored_tensors(_mapped(file)).items():
            if name in tensors:
                raise SourceError(
                    f"{folder} has two tensors of the name {name[:80]!r}; wanted the files of one checkpoint"
                )
            tensors[name] = stored
    return Checkpoint(tensors, config)


def _files(folder: Path) -> Iterator[Path]:
    """The files that the index names; without an index every safetensors file."""
    index = folder / "model.safetensors.index.json"
    places = _json(index).get("weight_map") if index.is_file() else None
    if places is not None:
        names = set(map(str, places.values())) if isinstance(places, dict) else {""}
        if any(not name.endswith(".safetensors") or Path(name).name != name for name in names):
            raise SourceError(f"{index} names other files than safetensors beside it; wanted those of one checkpoint")
    else:
        names = {file.name for file in folder.glob("*.safetensors")}
    if not names:
        raise SourceError(f"{folder} holds no safetensors file; wanted a checkpoint that save_pretrained wrote")
    yield from (folder / name for name in sorted(names))


def _mapped(file: Path) -> memoryview:
    try:
        with file.open("rb") as opened:
            return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise SourceError(f"{file} cannot be read: {error}; wanted a safetensors file") from None


def _json(file: Path) -> dict[str, Any]:
    try:
        content = loaded(file.read_bytes())
    except (OSError, ValueError) as error:
        raise SourceError(f"{file} cannot be read: {str(error)[:100]}; wanted an object of JSON") from None
    if not isinstance(content, dict):
        raise SourceError(f"{file} is no object of JSON; wanted that of a checkpoint")
    return content


TILE = 8192
"""32-bit words that share a sum."""
_AT_ONCE = 128
"""Tiles that are hashed together: 4 MB of words. It changes no checksum."""
_SEED = 0x243F6A88
_SEEDS = (_SEED, ((_SEED * 0x9E3779B1) ^ 0xDEADBEEF) & 0xFFFFFFFF)
_PLACES = ((0x27D4EB2D, 15), (0x165667B1, 13))
"""(factor, rotation) of the place of a word under each seed."""


def sha256(octets: Array) -> str:
    """vLLM's checksum of these bytes. octets: uint8, one dimension, contiguous."""
    return hashlib.sha256(octets.data).hexdigest()


def sha256_short(octets: Array) -> str:
    """SGLang's checksum on the CPU."""
    return sha256(octets)[:16]


def tile_hash(octets: Array) -> str:
    """SGLang's checksum on a GPU."""
    words = np.concatenate([octets, np.zeros(-len(octets) % 4, np.uint8)]).view("<u4")
    total = 0
    for start in range(0, len(words), TILE * _AT_ONCE):
        total += sum(map(int, _tiles(words, start, min(start + TILE * _AT_ONCE, len(words)))))
    return f"{_splitmix64(total & 0xFFFFFFFFFFFFFFFF):016x}"


def _tiles(words: Array, start: int, stop: int) -> Array:
    """The hash of each tile between these places; uint64."""
    place = np.arange(start, stop, dtype=np.uint64).astype(np.uint32)
    length = np.uint32(len(words) * 4 & 0xFFFFFFFF)
    halves = []
    for seed, (factor, turn) in zip(_SEEDS, _PLACES, strict=True):
        rotated = (place << np.uint32(turn)) | (place >> np.uint32(32 - turn))
        mixed = _mixed(words[start:stop] ^ ((place * np.uint32(factor) + np.uint32(seed)) ^ rotated))
        sums = np.add.reduceat(mixed, np.arange(0, stop - start, TILE), dtype=np.uint32)
        halves.append(_mixed(sums ^ length).astype(np.uint64))
    return (halves[0] << np.uint64(32)) | halves[1]


def _mixed(x: Array) -> Array:
    """MurmurHash3's finaliser of 32 bits (Appleby 2011)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    mixed: Array = x ^ (x >> np.uint32(16))
    return mixed


def _splitmix64(x: int) -> int:
    """The finaliser of splitmix64 (Steele 2014)."""
    mask = 0xFFFFFFFFFFFFFFFF
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


ALGORITHMS: Mapping[str, tuple[Callable[[Array], str], ...]] = {
    "vllm": (sha256,), "sglang": (tile_hash, sha256_short),
}  # fmt: skip
"""Kind of engine -> the checksums that it can make. The answer does not name the one: whichever equals is it."""
