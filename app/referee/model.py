"""Loads the referee's model from a folder, and says which it is. Only this file and scoring import torch or transformers."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratioscope.errors import MissingExtra, SourceError

from .inputs import ModelBounds, Sequence_

if TYPE_CHECKING:
    from ratioscope.arrays import Singles

    from .scoring import Scoring

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
MOST_DIGESTED = 16 << 30
"""Bytes of weights up to which all of them are digested; of larger models the first and last megabyte of each file."""
_PIECE = 1 << 20


@dataclass(frozen=True)
class Referee:
    """A loaded model."""

    model: Any
    path: Path
    room: ModelBounds
    """The sequences that the model can read."""
    made_of: dict[str, Any]
    """Path, digest of the weights, dtype, device and versions, as a reading keeps them."""
    at_once: int = sys.maxsize
    """Sequences that are read together: all of a step, because batches are of sequences of about one length."""

    @property
    def name(self) -> str:
        return f"the checkpoint {self.path.name} in {self.made_of['dtype']} on {self.made_of['device']}"

    def scores(self, sequences: Sequence[Sequence_], how: "Scoring | None") -> "Iterator[tuple[int, Singles]]":
        """(index of a sequence, log-probs of its response tokens in nats), in the order of batches."""
        found: Iterator[tuple[int, Singles]] = import_module(".scoring", __package__).scores(self.model, sequences, how)
        return found


def demand_extra() -> None:
    """MissingExtra unless torch and transformers are installed."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise MissingExtra("rescore", "referee")


def referee(path: Path, *, device: str | None = None, dtype: str = "float32") -> Referee:
    """The model in this folder, ready to score. SourceError says what the folder lacks."""
    demand_extra()
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    transformers.utils.logging.disable_progress_bar()  # the verb has its own
    digest = weights_digest(path)
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path), dtype=getattr(torch, dtype), local_files_only=True, trust_remote_code=False
        )
        model = model.to(place).eval()
        room = ModelBounds(
            model.get_output_embeddings().weight.shape[0], _positions(model.config), f"the model {path.name}"
        )
        import_module(".scoring", __package__).demand_own_head(model, room.vocabulary)
    except Exception as error:  # transformers raises anything for a folder that it cannot read
        raise SourceError(
            f"{path} cannot be loaded: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}; wanted a"
            " folder with config.json and weights of a causal language model that transformers knows"
        ) from error
    versions = {name: version(name) for name in ("torch", "transformers")}
    made_of = {"model": str(path), "digest": digest, "dtype": dtype, "device": place, **versions}
    return Referee(model, path, room, made_of)


@lru_cache(maxsize=2)
def _loaded(path: Path, device: str, dtype: str) -> Any:
    return referee(path, device=device, dtype=dtype).model


def model_in(path: Path, beside: Any) -> Any:
    """The model in this folder, on the device and in the dtype of another one. The last two are kept."""
    return _loaded(path, str(beside.device), str(beside.dtype).removeprefix("torch."))


def tokenizer(path: Path | None) -> Any:
    """The tokenizer in this folder; None where there is none."""
    if path is None or not any(
        (path / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    ):
        return None
    transformers: Any = import_module("transformers")
    try:
        return transformers.AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise SourceError(f"the tokenizer in {path} cannot be loaded: {str(error)[:200]}") from error


def weights_digest(path: Path) -> str:
    """The sha256 of the weights in a folder, in the order of their files' names; "part:" before it where only parts were read."""
    if not (path / "config.json").is_file():
        state = "does not exist" if not path.exists() else "has no config.json"
        raise SourceError(
            f"{path} {state}; wanted a folder that save_pretrained wrote, with config.json and weights. Nothing is downloaded"
        )
    files = sorted({file for pattern in WEIGHTS for file in path.glob(pattern)})
    if not files:
        raise SourceError(f"{path} holds no weights: wanted a file such as model.safetensors")
    whole = sum(file.stat().st_size for file in files) <= MOST_DIGESTED
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        with open(file, "rb") as content:
            if whole:
                digest.update(hashlib.file_digest(content, "sha256").digest())
            else:
                digest.update(content.read(_PIECE))
                content.seek(-min(_PIECE, file.stat().st_size), 2)
                digest.update(content.read(_PIECE))
    return f"{'' if whole else 'part:'}{digest.hexdigest()}"


def _positions(config: Any) -> int | None:
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None
