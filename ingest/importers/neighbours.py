"""The files that trainers keep beside the rows that are imported, known by their names: they hold no rows of training."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from .compression import plain_name
from .detection import candidates, promised


@dataclass(frozen=True)
class Neighbour:
    """Files of one kind."""

    what: str
    """The content of such a file, in words."""
    files: str
    """A regular expression of the end of its path, below the folder that is imported."""
    by: str
    """The programs that write it."""


HIDDEN = Neighbour("hidden files", r"\.[^/]*", "editors and file systems")
NEIGHBOURS = (
    HIDDEN,
    Neighbour("facts of a run", r".*_metadata\.jsonl", "open-instruct: name, commit, model and time"),
    Neighbour("facts of a run", r"meta\.json", "verl, beside its cache of rollouts"),
    Neighbour("facts of a run", r"manifest\.json", "rlprobe and miles"),
    Neighbour("facts of a dataset", r"(?:dataset_info|dataset_dict|state)\.json", "Hugging Face datasets"),
    Neighbour("index of rows", r"(?:stream|annotations/[^/]+)\.index\.jsonl", "prime-rl"),
    Neighbour("rollouts that have not ended", r"live/(?:[0-9a-f]{32}\.jsonl|pending/[^/]+\.json)", "prime-rl"),
    Neighbour("facts of a run", r"monitors/(?:file/(?:plan|eval)|prime/run)\.json", "prime-rl"),
    Neighbour("copy of rows", r"cache-[0-9a-f]+[^/]*\.arrow", "Hugging Face datasets: made of the rows beside it"),
    Neighbour("rows of validation", r"val_data_step\d+\.jsonl", "NeMo-RL: no step trains on them"),
    Neighbour("rows of validation", r"val_step\d+\.json", "verl: no step trains on them"),
    Neighbour("position in the data", r"global_dataset_state_dict_\d+\.pt", "slime and miles"),
    Neighbour("position in the data", r"train_dataloader[^/]*\.pt", "NeMo-RL"),
    Neighbour("position in the data", r"data(?:_\d+)?\.pt", "verl and SkyRL"),
    Neighbour("position in the data", r"dataloader(?:_info)?\.(?:pkl|json)", "AReaL and the Fireworks cookbook"),
    Neighbour("groups that await a step", r"(?:rollouts|replacement_reserve)\.pt", "NeMo-RL: no step trained on them"),
    Neighbour("gradients of a check", r"rank_\d+_\d{5}_\w+\.pt", "miles"),
    Neighbour("copy of dumps", r"rollout_(?:eval_)?\d+\.sources\.json", "miles' dashboard"),
    Neighbour("state of a trainer", r"(?:training_state_rank\d+|trainer_state)\.pt|worker_state_\w+\.json",
              "SkyRL, miles and ROLL"),
    Neighbour("state of a trainer", r"(?:progress|rng|rng_state(?:_\d+)?|scheduler|scaler|optimizer[^/]*)\.pth?",
              "prime-rl, miles, ROLL and the trainers of Hugging Face"),
    Neighbour("state of a trainer", r"(?:\w+_)?info\.json|version\.json", "NeMo-RL and AReaL"),
    Neighbour("state of a trainer", r"worker_\d+\.pkl", "AReaL"),
    Neighbour("weights and optimizer", r"(?:model|optim|extra_state)_world_size_\d+_rank_\d+\.pt", "verl and AReaL"),
    Neighbour("weights and optimizer", r"world_size_\d+_rank_\d+\.pt|[^/]*_(?:model|optim)_states\.pt|latest",
              "ROLL and DeepSpeed"),
    Neighbour("weights and optimizer", r"[^/]*\.distcp|(?:common|mp_rank_\d+[^/]*|model_optim_rng|distrib_optim)\.pt",
              "Megatron and torch"),
    Neighbour("weights and optimizer", r"(?:trainer|weights)/(?:rank_\d+|model)\.pt", "prime-rl"),
    Neighbour("weights", r"(?:model|adapter_model|pytorch_model)[^/]*\.(?:safetensors|bin)|(?:adapter_)?model\.pt|[^/]*\.gguf",
              "Hugging Face"),
    Neighbour("weights", r"[^/]*_?adapter(?:_megatron[^/]*)?\.pt|value_head\.pt", "verl, miles and AReaL"),
    Neighbour("settings of a model", r"(?:config|generation_config|adapter_config|fsdp_config|transformer_config|metadata"
              r"|(?:video_)?(?:pre)?processor_config|chat_template|[^/]*\.index)\.json", "Hugging Face"),
    Neighbour("settings of a model", r"(?:tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json",
              "Hugging Face"),
    Neighbour("settings of a run", r"(?:inference|trainer|orchestrator|rl|sft|evals|job|settings)\.json", "prime-rl and others"),
    Neighbour("settings of a run", r"(?:wandb-(?:metadata|summary)|swanlab-metadata)\.json|training_args\.bin",
              "W&B, SwanLab and Hugging Face"),
    Neighbour("times of calls", r"(?:timeline[^/]*|prof_rank-\d+|profile_[^/]*|[^/]*\.trace|traces)\.json", "profilers"),
    Neighbour("settings and logs", r"[^/]*\.(?:ya?ml|toml|log|txt|md|out|err|sh|py|jinja|cfg|ini|html|png|svg)", "people"),
)  # fmt: skip


def neighbour(path: str) -> Neighbour | None:
    """The kind of neighbour that a path below a folder is, compressed or not; None for a file that may hold rows.

    A file whose name promises a dump is none, unless it is hidden.

    >>> neighbour("rollouts/mine_metadata.jsonl").what
    'facts of a run'
    >>> neighbour("step_3/rank_0.jsonl") is None
    True
    """
    name = plain_name(PurePosixPath(path).as_posix())
    neighbour = next((each for each in NEIGHBOURS if re.search(rf"(?:^|/)(?:{each.files})$", name)), None)
    return None if neighbour is not None and neighbour is not HIDDEN and promised(path, candidates(path)) else neighbour
