"""Rows of AReaL as its loss was given them, read from spies around AReaL's functions, and equality to the last bit."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

driving: Any = importlib.import_module("upstream.areal_drive")


@dataclass
class Expected:
    """A sequence as AReaL's loss was given it, prompt cut off by hand."""

    step: int
    minibatch: int
    columns: dict[str, list[Any] | None]


def expected(trace: Mapping[str, Any]) -> dict[tuple[int, tuple[int, ...]], Expected]:
    """(step, tokens) -> what the loss held of that sequence, read from spies around AReaL's functions."""
    batches, found = trace["batches"], {}
    for visit in trace["visits"]:
        step = visit.arguments["current_version"]
        lengths = sequence_lengths(visit, batches[step])
        ends = np.cumsum(lengths)
        for (ids, versions), end, length in zip(tokens_of(visit, batches[step], lengths), ends, lengths, strict=True):
            span = slice(int(end - length), int(end))
            mask = visit.data["loss_mask"][span].bool()
            if not mask.any():
                continue
            where = torch.nonzero(mask).flatten()
            inside = slice(int(where[0]), int(where[-1]) + 1)

            def of(tensor: Any, span: slice = span, inside: slice = inside) -> list[Any]:
                values: list[Any] = tensor[span][inside].tolist()
                return values

            tokens = ids[inside.start + 1 : inside.stop + 1]
            columns: dict[str, list[Any] | None] = {
                "current_logprobs": of(visit.arguments["logprobs"]),
                "entropy": of(visit.arguments["entropy"]),
                "rollout_logprobs": of(visit.data["logprobs"]),
                "old_logprobs": of(visit.data["prox_logp"]) if visit.data.get("prox_logp") is not None else None,
                "reference_logprobs": of(visit.data["ref_logp"]) if "ref_logp" in visit.data else None,
                "advantages": of(visit.data["advantages"]),
                "mask": of(visit.data["loss_mask"].bool()),
                "loss_mask": of(visit.left),
                "rollout_versions": versions[inside.start + 1 : inside.stop + 1],
                "token_ids": tokens,
            }
            found[step, tuple(tokens)] = Expected(step, visit.update - trace["minibatches"] * step, columns)
    return found


def sequence_lengths(visit: Any, batch: list[dict[str, Any]]) -> list[int]:
    if "cu_seqlens" in visit.data:
        lengths: list[int] = torch.diff(visit.data["cu_seqlens"]).tolist()
        return lengths
    return [len(ids) for ids, _ in sampled_with(batch) if ids in tree_sequences(visit, batch)]


def tree_sequences(visit: Any, batch: list[dict[str, Any]]) -> list[list[int]]:
    """The sequences of a tree, told by their versions: the loss has them packed in the order of the batch."""
    trie = visit.data["trie_node"]
    minibatch = [ids for ids, _ in sampled_with(batch)]
    paths = []
    for sequence in trie.all_sequence_ids:
        spans = trie.get_sequence_tree_indices(sequence)
        paths.append(
            [int(token) for begin, end in spans for token in visit.data["input_ids"].reshape(-1)[begin : end + 1]]
        )
    return [ids for ids in minibatch if ids in paths]


def tokens_of(visit: Any, batch: list[dict[str, Any]], lengths: list[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Tokens and versions of each sequence of the visit, as they were sampled."""
    if "cu_seqlens" not in visit.data:
        wanted = tree_sequences(visit, batch)
        yield from (pair for pair in sampled_with(batch) if pair[0] in wanted)
        return
    ends = np.cumsum(lengths)
    known = {tuple(ids): versions for ids, versions in sampled_with(batch)}
    for end, length in zip(ends, lengths, strict=True):
        ids = visit.data["input_ids"].reshape(-1)[int(end - length) : int(end)].tolist()
        yield ids, known[tuple(ids)]


def sampled_with(batch: list[dict[str, Any]]) -> list[tuple[list[int], list[int]]]:
    """Tokens and versions of all sequences that the engine gave."""
    pairs = []
    for group in batch:
        for row, attention in enumerate(group["attention_mask"]):
            length = int(attention.sum())
            pairs.append((group["input_ids"][row, :length].tolist(), group["versions"][row, :length].tolist()))
    return pairs


def sampled_answer(batch: list[dict[str, Any]], tokens: list[int]) -> tuple[int, dict[str, Any], int]:
    for number, group in enumerate(batch):
        for row, attention in enumerate(group["attention_mask"]):
            length = int(attention.sum())
            if group["input_ids"][row, driving.PROMPT : length].tolist() == tokens:
                answer = {name: value[row][:length] if value.ndim > 1 else value[row] for name, value in group.items()}
                return number, answer, row
    raise AssertionError("no answer has these tokens")


def same(left: Any, right: Any) -> bool:
    """True if two structures are equal to the last bit."""
    if isinstance(left, torch.Tensor | np.ndarray):
        return left.dtype == right.dtype and bool(np.array_equal(np.asarray(left), np.asarray(right), equal_nan=True))
    if isinstance(left, Mapping):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and (left == right or type(left).__name__ == "TrieNode")


def untimed(log: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in log.items() if not name.startswith("timeperf")}
