"""Golden vectors of score centering, made by running the trainers' own functions on the CPU.

    python tests/upstream/score_centering_vectors.py DIR > tests/data/golden/score_centering/vectors.json

DIR holds the files of TRAINERS, each in a folder of the trainer's name, at its path of the repository. The named definitions
of a file are executed, without the rest of it, so nothing that they do not use is imported. Each trainer's term is linear in
the log-probs of the head, with detached coefficients: these are the gradient of its loss over the advantage, with the sign of
what is subtracted. A loss that takes the sampled token, too, gives its weight beside them.
"""

import ast
import json
import math
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

TIS, LOW, HIGH = 2.0, 0.5, 5.0
CASES = {"head of 4": (9, 4, 0.6), "far apart": (9, 4, 2.5), "whole vocabulary": (5, 5, 0.6), "bfloat16": (5, 5, 0.6)}
"""Name -> (vocabulary, tokens of the head, spread of the gap in the logits)."""
ROWS, ADVANTAGE = 6, -1.5
Term = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, str], Any]
"""(trainer's head, rollout's head, trainer's and rollout's log-prob of the sampled token, mode) -> loss of each token."""


@dataclass(frozen=True)
class Trainer:
    """A trainer's own score centering."""

    source: str
    """Repository, file and commit."""
    files: tuple[tuple[str, tuple[str, ...]], ...]
    """Files below the trainer's folder, and the definitions that are taken from each."""
    term: Callable[[dict[str, Any]], Term]
    """The call of these definitions."""
    modes: tuple[str, ...] = ("one", "clamp", "zero")
    """As `Centering.outside`: no weights, TIS at 2, IcePop from 0.5 to 5."""
    cases: tuple[str, ...] = tuple(CASES)
    has_sampled: bool = True
    """True if the loss contains the sampled token."""


def definitions(folder: Path, files: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, Any]:
    """The named functions, classes and constants of the files, executed one after the other."""
    given = {"torch": torch, "Tensor": torch.Tensor, "math": math, "dataclass": dataclass, "field": field}
    space: dict[str, Any] = {**vars(typing), **given, "tinker": SimpleNamespace(Datum=Any)}
    for name, wanted in files:
        text = (folder / name).read_text()
        if name.endswith(".md"):
            text = next(block for block in text.split("```python\n") if block.startswith("import torch")).split("```")[
                0
            ]
        body = [node for node in ast.parse(text).body if _name(node) in wanted]
        exec(compile(ast.Module(body, []), name, "exec"), space)
    return space


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    return node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""


def _authors(own: dict[str, Any]) -> Term:
    weights = {"one": torch.ones_like, "clamp": own["tis_weight"], "zero": own["mis_weight"]}

    def term(p: torch.Tensor, q: torch.Tensor, y: torch.Tensor, y_rollout: torch.Tensor, mode: str) -> Any:
        ids, last = torch.arange(p.shape[1]).expand(p.shape), torch.full((len(p),), p.shape[1])
        whole, advantage = torch.cat((p, y[:, None]), 1), torch.full((len(p),), ADVANTAGE)
        return own["score_centering_loss"](whole, q, ids, last, y_rollout, advantage, weights[mode])

    return term


def _skyrl(own: dict[str, Any]) -> Term:
    weights = {"one": own["_identity_weight"], "zero": own["_mis_weight"]}

    def term(p: torch.Tensor, q: torch.Tensor, y: torch.Tensor, y_rollout: torch.Tensor, mode: str) -> Any:
        ids, k = torch.arange(p.shape[1]), p.shape[1]
        rows = zip(torch.cat((p, y[:, None]), 1), q, y_rollout, strict=True)
        loss = own["_reference_loss_single_token"]
        return torch.stack(
            [loss(row, head, ids, k, sampled, ADVANTAGE, weights[mode], 1e-6) for row, head, sampled in rows]
        )

    return term


def _miles(own: dict[str, Any]) -> Term:
    modes = {"one": "none", "clamp": "tis", "zero": "mis"}
    bounds = {"tis_clip": TIS, "mis_low": LOW, "mis_high": HIGH}

    def term(p: torch.Tensor, q: torch.Tensor, y: torch.Tensor, y_rollout: torch.Tensor, mode: str) -> Any:
        every, advantage = torch.ones_like(p, dtype=torch.bool), torch.full((len(p),), ADVANTAGE)
        return own["score_centering_loss"](y, p, y_rollout, q, every, advantage, mode=modes[mode], **bounds)[0]

    return term


def _correction(call: Callable[..., Any]) -> Term:
    """A loss of the centering term alone, as its trainer adds it: the advantage times the correction."""
    return lambda p, q, y, y_rollout, mode: ADVANTAGE * call(p, q, mode)


def _by_mode(own: dict[str, Any], names: dict[str, str]) -> Term:
    bounds = {"one": {}, "clamp": {"low": 0.0, "high": TIS}, "zero": {"low": LOW, "high": HIGH}}

    def call(p: torch.Tensor, q: torch.Tensor, mode: str) -> Any:
        found = own["score_centering_correction"](p, q, mode=names[mode], **bounds[mode])
        return found[0] if isinstance(found, tuple) else found

    return _correction(call)


def _verl(own: dict[str, Any]) -> Term:
    settings = {"one": (None, TIS), "clamp": ("token", TIS), "zero": ("token", f"{LOW}_{HIGH}")}
    weight, correct = own["score_centering_weight_fn"], own["score_centering_correction"]
    return _correction(lambda p, q, mode: correct(p, q, weight(*settings[mode]))[0])


def _prime_rl(own: dict[str, Any]) -> Term:
    config = SimpleNamespace(eps=2.0, max_importance_ratio=TIS, adv_tau=1.0, score_centering=True)

    def term(p: torch.Tensor, q: torch.Tensor, y: torch.Tensor, y_rollout: torch.Tensor, mode: str) -> Any:
        """No probability moves by 2, so the weight is TIS. The head is the whole support, and each side's mass on it is 1."""
        every, advantage = torch.ones(len(p), dtype=torch.bool), torch.full((len(p),), ADVANTAGE)
        given = own["LossInputs"](y, y_rollout, None, advantage, every, None, p, q)
        return own["IPOLoss"](config).loss(given).loss

    return term


def _fireworks(own: dict[str, Any]) -> Term:
    def term(p: torch.Tensor, q: torch.Tensor, y: torch.Tensor, y_rollout: torch.Tensor, mode: str) -> Any:
        """One masked position comes first: it has no head, and adds nothing."""
        n, k = p.shape
        sampled = torch.cat((torch.zeros(1, k + 1), torch.cat((y[:, None], p), 1)))
        active = torch.zeros(n + 1, k + 1)
        active[1:, 0] = 1
        inputs = {
            "target_tokens": SimpleNamespace(shape=[n + 1, k + 1]),
            "weights": SimpleNamespace(data=active.flatten().tolist()),
        }
        config = own["ScoreCenteringConfig"](top_k=k)
        loss = own["make_score_centering_loss_fn"]([ADVANTAGE], [[[-math.inf] * k, *q.tolist()]], config)
        return loss([SimpleNamespace(loss_fn_inputs=inputs)], [sampled.flatten()])[0]

    return term


TRAINERS = {
    "authors": Trainer(
        "README of the authors' repository of arXiv:2609.20807, its PyTorch text",
        (("README.md", ("score_centering_loss", "tis_weight", "mis_weight")),), _authors,
    ),
    "skyrl": Trainer(
        "NovaSky-AI/SkyRL at b49e6757, tests/backends/skyrl_train/utils/test_score_centering.py: what its loss must equal",
        (("tests/test_score_centering.py", ("_reference_loss_single_token", "_identity_weight", "_mis_weight")),), _skyrl,
        ("one", "zero"),
    ),
    "miles": Trainer(
        "radixark/miles at 857598ff, miles/backends/training_utils/loss_hub/score_centering.py",
        (("loss_hub/score_centering.py", ("importance_weights", "score_centering_loss")),), _miles,
    ),
    "slime": Trainer(
        "THUDM/slime at 2e5cd7cd, slime/utils/score_centering.py; importance_weights from vllm-project/vime at 2b83ea20",
        (("slime/utils/ppo_utils.py", ("importance_weights",)),
         ("slime/utils/score_centering.py", ("score_centering_correction",))),
        lambda own: _by_mode(own, {"one": "none", "clamp": "tis", "zero": "mis"}), has_sampled=False,
    ),
    "verl": Trainer(
        "verl-project/verl at c6236f51, verl/trainer/ppo/score_centering.py; _parse_rollout_is_threshold from verl 0.9.1",
        (("verl/trainer/ppo/rollout_corr_helper.py", ("_parse_rollout_is_threshold",)),
         ("verl/trainer/ppo/score_centering.py", ("score_centering_weight_fn", "score_centering_correction"))),
        _verl, has_sampled=False,
    ),
    "molt": Trainer(
        "molt-rl 0.2.1, molt/models/score_centering.py",
        (("molt/models/score_centering.py", ("importance_weights", "score_centering_correction")),),
        lambda own: _by_mode(own, {"one": "none", "clamp": "clip", "zero": "mask"}), has_sampled=False,
    ),
    "fireworks": Trainer(
        "fw-ai/cookbook at 69a36e52, training/utils/rl/score_centering.py",
        (("training/utils/rl/score_centering.py",
          ("PUBLIC_DEFAULT_TOP_LOGPROBS", "MAX_SCORE_CENTERING_TOP_K", "ScoreCenteringConfig",
           "validate_score_centering_config", "make_score_centering_loss_fn")),),
        _fireworks, ("one",),
    ),
    "prime_rl": Trainer(
        "PrimeIntellect-ai/prime-rl of autumn 2026, src/prime_rl/trainer/rl/loss.py, with eps 2",
        (("trainer/rl/loss.py", ("LossInputs", "LossOutputs", "_safe_mean", "_mismatch_kl_from_log_ratio",
                                 "_capped_importance_ratio", "IPOLoss")),),
        _prime_rl, ("clamp",), ("whole vocabulary",),
    ),
}  # fmt: skip


def drawn(case: str, seed: int) -> dict[str, torch.Tensor]:
    """Log-probs of a case: both sides at the rollout's likeliest tokens (ROWS, k), and at one sampled token (ROWS,)."""
    vocabulary, k, gap = CASES[case]
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(ROWS, vocabulary, generator=generator)
    rollout = (logits + gap * torch.randn(ROWS, vocabulary, generator=generator)).log_softmax(-1)
    train, ids = logits.log_softmax(-1), rollout.topk(k, -1).indices
    sampled = torch.multinomial(rollout.exp(), 1, generator=generator)
    found = {"trainer": train.gather(1, ids), "rollout": rollout.gather(1, ids)}
    found |= {"trainer_sampled": train.gather(1, sampled)[:, 0], "rollout_sampled": rollout.gather(1, sampled)[:, 0]}
    return {name: value.bfloat16().float() if case == "bfloat16" else value for name, value in found.items()}


def coefficients(term: Term, given: dict[str, torch.Tensor], mode: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(the coefficient of each log-prob of the head in what is subtracted, (ROWS, k); the sampled token's weight, (ROWS,))."""
    head = given["trainer"].clone().requires_grad_()
    sampled = given["trainer_sampled"].clone().requires_grad_()
    loss = term(head, given["rollout"], sampled, given["rollout_sampled"], mode).sum()
    found = torch.autograd.grad(loss, (head, sampled), allow_unused=True)
    own = torch.zeros(ROWS) if found[1] is None else found[1]
    return found[0] / ADVANTAGE, -own / ADVANTAGE


def main(folder: Path) -> None:
    given = {case: drawn(case, seed) for seed, case in enumerate(CASES)}
    terms = {name: trainer.term(definitions(folder / name, trainer.files)) for name, trainer in TRAINERS.items()}
    vectors = []
    for name, trainer in TRAINERS.items():
        for case in trainer.cases:
            for mode in trainer.modes:
                head, weight = coefficients(terms[name], given[case], mode)
                row = {"trainer": name, "case": case, "mode": mode, "head": rounded(head)}
                vectors.append(row | ({"sampled": rounded(weight)} if trainer.has_sampled else {}))
    inputs = {case: {name: rounded(value) for name, value in values.items()} for case, values in given.items()}
    sources = {name: trainer.source for name, trainer in TRAINERS.items()}
    lines = ",\n".join(json.dumps(row) for row in vectors)
    print(f'{{"sources": {json.dumps(sources, indent=1)},\n"inputs": {json.dumps(inputs)},\n"vectors": [\n{lines}]}}')


def rounded(values: torch.Tensor) -> Any:
    """Numbers of 7 digits, which float32 has."""
    return json.loads(json.dumps(values.tolist()), parse_float=lambda text: float(f"{float(text):.7g}"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
