"""The facts of a run from run.json, and the line of context that follows from them."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.recorded import recorded

import ratioscope
from ratioscope.ingest.analysis.comparability import run_facts
from ratioscope.ingest.analysis.grades import floors_of, verdict_of
from ratioscope.ingest.analysis.known_context import plain_reference, reference_of
from ratioscope.metrics.known.references import RunFacts


def facts(**config: Any) -> RunFacts:
    return run_facts({"config": config})


@pytest.mark.parametrize(
    ("name", "billions", "moe", "hybrid", "vision"),
    [
        ("Qwen/Qwen3-30B-A3B", 30, True, False, False),
        ("/models/qwen2.5_0.5b_instruct/", 0.5, False, False, False),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1.5, False, False, False),
        ("Qwen/Qwen3.5-35B-A3B", 35, True, True, False),
        ("Qwen/Qwen2.5-VL-7B-Instruct", 7, False, False, True),
        ("SmolLM2-135M-Instruct", 0.135, False, False, False),
        ("meta-llama/Llama-3.1-8B", 8, False, False, False),
        ("our-own-model", None, None, None, None),
    ],
)
def test_a_name_tells_size_and_kind(
    name: str, billions: float | None, moe: bool | None, hybrid: bool | None, vision: bool | None
) -> None:
    found = facts(model=name)
    assert (found.billions, found.moe, found.hybrid, found.vision) == (billions, moe, hybrid, vision)


def test_each_trainer_keeps_the_model_under_its_own_key() -> None:
    verl = {"actor_rollout_ref": {"model": {"path": "Qwen/Qwen3-8B"}}, "critic": {"model": {"path": "other-70B"}}}
    assert facts(**verl).model == "Qwen/Qwen3-8B"
    assert facts(args={"hf_checkpoint": "/data/GLM-5.2", "num_experts": 160}).moe is True
    assert facts(args={"ref_hf_checkpoint": "x"}).model is None


def test_autocast_decides_over_the_weights_and_quantization_over_both() -> None:
    assert facts(engine="vLLM 0.32 bfloat16", model_dtype="torch.float32", args={"bf16": True}).trainer == "bfloat16"
    assert facts(engine="vLLM 0.32 fp8").engine == "float8"
    assert facts(engine="vLLM 0.32 bfloat16", quantization="nvfp4").engine == "float4"


def test_the_line_has_the_range_its_sources_and_the_own_floor() -> None:
    run = ratioscope.open_run(ROOT / "sample_data" / "runs" / "trl-vllm-stale")
    found = reference_of(run, "mismatch")
    assert found.reference is not None and found.reference.name == "dense small bf16"
    assert (
        "usual for dense models up to 1B in bf16: K3 0.001 to 0.0025 (engine and trainer that compute the same bits reach 0), "
        in found.words
    )
    assert found.words.endswith(f"this run's own floor: {floors_of(run)['mismatch']:.3g}")
    plain = plain_reference(found)
    assert plain["published"]["estimator"].startswith("K3 per token")
    assert len(plain["published"]["measurements"]) == 4


def test_a_record_without_the_facts_says_which_and_how_to_record_them(tmp_path: Path) -> None:
    run = ratioscope.open_run(recorded("lcpp_q4_1", tmp_path / "run", steps=2))
    before = verdict_of(run).severity
    words = reference_of(run, "mismatch").words
    assert "no published range: the model's name, the engine's precision and the trainer's precision are not" in words
    call = re.search(r"record them with (Collector\(.*\))", words)
    assert call is not None
    config = ast.literal_eval(ast.parse(call[1], mode="eval").body.keywords[0].value)  # type: ignore[attr-defined]
    assert config == {"model": "Qwen/Qwen3-8B", "engine": "vLLM 0.32 bfloat16", "model_dtype": "bfloat16"}
    assert verdict_of(run).severity == before
