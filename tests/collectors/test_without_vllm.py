"""The rollout_func of docs/without_vllm.md, in TRL's own GRPOTrainer: both log-probs and the version are on record."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.tiny_trl import PROMPTS, datasets, tiny_model, tiny_tokenizer, trl

import ratioscope

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]


def test_the_rollout_func_of_the_page_gives_trl_both_log_probs_without_vllm(tmp_path: Path) -> None:
    page, known = (ROOT / "docs" / "without_vllm.md").read_text(), dict[str, Any]()
    exec(re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[-1], known)
    settings: dict[str, Any] = dict(
        output_dir=str(tmp_path / "trl"), use_cpu=True, max_steps=3, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=8, temperature=0.9, learning_rate=1e-3, beta=0.0, report_to=[], save_strategy="no",
        dataloader_pin_memory=False, disable_tqdm=True, bf16=False, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=tiny_model(),
        reward_funcs=lambda completion_ids, **_: [float(len(ids)) for ids in completion_ids],
        args=trl.GRPOConfig(**settings),
        train_dataset=datasets.Dataset.from_dict({"prompt": list(PROMPTS)}),
        processing_class=tiny_tokenizer(),
        rollout_func=known["rollout_func"],
    )
    attachment = ratioscope.attach(trainer, tmp_path / "run")
    trainer.train()
    attachment.detach()
    run = ratioscope.open_run(tmp_path / "run")
    assert run.gaps == ("mismatch", "total", "drift") and run.steps == [1, 2, 3]
    rows = run.metrics(by=("step", "lag"), names=["kl_k3", "sequences"])
    assert rows["lag"].to_list() == ["0", "0", "0"]
    assert all(1e-9 < size < 0.1 for size in rows["mismatch/kl_k3"]), "bfloat16 alone lies between the two"
