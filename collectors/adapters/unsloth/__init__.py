"""unsloth (written from 2026.10.9): the trainers that it generates from TRL's source, each watched while it trains.

UnslothGRPOTrainer    rollout, old, current and reference log-probs of each micro-batch, where its own loss takes them:

    _generate, _generate_and_score_completions    as in TRL's trainer, whose source unsloth generates them from
    compute_loss                    one micro-batch, which is recorded here when its loss is done
    grpo_accumulated_loss           its result has the importance weights, 0 for tokens that are rejected
    UnslothEfficientGRPO.apply      current, old and reference log-probs and the mask, as the loss takes them

UnslothRLOOTrainer    its loss is TRL's, so TRL's recorder watches it

The generated module holds copies of unsloth_zoo's functions, so these are watched there and not in unsloth_zoo. Compiled code is
not touched: a wrapper inside it would change how it is compiled. unsloth is AGPL-3.0; nothing of it is copied here.

unsloth packs the rows of a micro-batch to the left, so a row's completion begins at a column of its own in what the loss takes.
Rollout log-probs are read from the batch: the loss gets none if nothing corrects with them, and fills unscored ones. Sampled
tokens that equal the padding token are in no mask, because unsloth's loss drops them. The entropies stay inside unsloth's loss,
and so does the off-policy mask, which is computed in compiled code.
"""

import inspect
import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ...adapter import installed
from ...foreign import Tensor, Trainer
from ...watching.hooks import Call, Hook, Refused, install, install_on
from ...watching.patches import Patches
from ...watching.recording import Recording
from ..trl.attaching import TRAIN, Starter, begin, is_attached
from ..trl.columns import RATIO as BATCHS
from ..trl.columns import is_rloo, rollout_of
from ..trl.foreign import UNSLOTH, is_unsloths
from ..trl.recorder import MAKING, GrpoRecorder, Scores

HOOKS = (TRAIN, *(Hook(name, f"{name}.train", before="begin", after="end", needed=False) for name in UNSLOTH))
"""The generated classes keep the `train` that transformers had when they were made."""
NEEDED = "unsloth's {} has no {}, so nothing is recorded; training goes on. This adapter is written for 2026.10.9"


def recorder(recording: Recording) -> Starter:
    """Attaches to unsloth's trainers while they train."""
    return Starter(recording, lambda trainer: is_unsloths(trainer) and not is_attached(trainer), start)


def start(trainer: Trainer, recording: Recording) -> Callable[[], None]:
    """Wraps methods of the trainer and two functions of its generated module; the returned call undoes it."""
    made = GrpoRecorder if is_rloo(trainer) else UnslothRecorder
    lacking = [name for name in made.WRAPPED if not callable(getattr(trainer, name, None))]
    if made is UnslothRecorder:
        lacking += UnslothRecorder.lacking(trainer)
    if lacking:
        raise Refused(NEEDED.format(type(trainer).__name__, ", ".join(lacking)))
    return begin(trainer, recording, made, installed("unsloth"))


OWN_LOSS = Hook("", "compute_loss", before="loss_begins", after="loss_ends", failed="loss_begins")
LOSS, FUNCTION = "grpo_accumulated_loss", "UnslothEfficientGRPO"
NO_OFF_POLICY_MASK = (
    "off_policy_mask_threshold is on, and unsloth computes its mask inside compiled code: loss_mask does not show the "
    "sequences that it leaves out"
)
RATIO, REJECTIONS = 4, "rollout_rs"
"""The place of the importance weights in the result of the loss; the setting of unsloth's own rejection."""

Inputs = Mapping[str, Any]


class UnslothRecorder:
    """Watches one trainer and logs each micro-batch."""

    WRAPPED = tuple(hook.name for hook in (*MAKING, OWN_LOSS))

    def __init__(self, trainer: Trainer, recording: Recording) -> None:
        self._trainer, self._recording = trainer, recording
        self._rows = GrpoRecorder(trainer, recording)
        self._parameters = tuple(inspect.signature(_module(trainer)[FUNCTION].forward).parameters)[1:]
        self._given: dict[str, Any] | None = None
        self._weights: Tensor = None

    @staticmethod
    def lacking(trainer: Trainer) -> list[str]:
        """The functions that the generated module lacks, in words."""
        module = _module(trainer)
        if missing := [name for name in (LOSS, FUNCTION) if name not in module]:
            return missing
        parameters = inspect.signature(module[FUNCTION].forward).parameters
        wanted = ("_new_logps", "_old_logps", "_ref_logps", "_mask", "extra_kwargs")
        return [f"{FUNCTION}.forward({name})" for name in wanted if name not in parameters]

    def put_on(self, patches: Patches) -> None:
        """Wraps the trainer's methods, and the two functions of its module."""
        install_on(self._trainer, MAKING, self._rows, self._recording, patches)
        install(OWN_LOSS, self, self._recording, patches, owner=self._trainer)
        names = _module(self._trainer)
        install(Hook("", LOSS, after="weighed"), self, self._recording, patches, owner=sys.modules[names["__name__"]])
        install(Hook("", "apply", before="taken"), self, self._recording, patches, owner=names[FUNCTION])

    def taken(self, call: Call) -> None:
        """Keeps what the loss takes, by the names of its parameters."""
        taken, *_ = call.arguments.values()  # `apply(cls, *args, **kwargs)`
        self._given = dict(zip(self._parameters, taken, strict=False))

    def weighed(self, call: Call) -> None:
        """Keeps the importance weights."""
        self._weights = call.result[RATIO] if len(call.result) > RATIO + 1 else None

    def loss_begins(self, call: Call) -> None:
        self._given = self._weights = None

    def loss_ends(self, call: Call) -> None:
        given, weights = self._given, self._weights
        self._given = self._weights = None
        if given is not None:
            self._record(call.given[1], given, weights)

    def _record(self, inputs: Inputs, given: Mapping[str, Any], weights: Tensor) -> None:
        settings = given["extra_kwargs"] or {}
        if settings.get("off_policy_mask_threshold") is not None:
            step = self._trainer.state.global_step + 1
            self._recording.say_once("no_off_policy_mask", step, NO_OFF_POLICY_MASK, logging.WARNING)
        own = _OwnColumns(inputs, given["_new_logps"], self._trainer.processing_class.pad_token_id)
        is_bypass = inputs.get("unsloth_rollout_logps_as_old") is not None
        of_loss = {
            "old_per_token_logps": None if is_bypass else given["_old_logps"],
            "ref_per_token_logps": given["_ref_logps"],
        }
        columns = {name: values for name, values in inputs.items() if name not in of_loss}
        columns |= {name: own(values) for name, values in of_loss.items() if values is not None}
        columns |= {"completion_mask": own.mask, BATCHS: None}  # the weights that unsloth computed are in `kept`
        kept = {} if settings.get("entropy_mask") is None else {"other": own(settings["entropy_mask"])}
        if weights is not None and weights.numel() and settings.get("loss_type") != "vespo":
            kept |= _kept(own(weights) != 0, settings, columns)
        self._rows.record(columns, Scores(own(given["_new_logps"]), None, kept, has_no_old=is_bypass))


class _OwnColumns:
    """Moves values (B, W) of the loss to the columns of the batch (B, T).

    unsloth moves every padding token of a row to its end, so a completion begins behind its prompt, and tokens behind a sampled
    padding token stand one column earlier. Such a token has no column. Rows with images or videos are not moved.
    """

    def __init__(self, inputs: Inputs, values: Tensor, pad: int) -> None:
        ids = inputs["completion_ids"]
        self.mask = inputs["completion_mask"]
        self._index: Tensor = None
        if any(inputs.get(name) is not None for name in ("pixel_values", "pixel_values_videos")):
            return
        self.mask = self.mask * (ids != pad)
        first = values.shape[1] - ids.shape[1] - (inputs["prompt_ids"] == pad).sum(1, keepdim=True)
        self._index = (first + (ids != pad).cumsum(1) - 1).clamp(min=0, max=values.shape[1] - 1)

    def __call__(self, values: Tensor) -> Tensor:
        return values.detach() if self._index is None else values.detach().gather(1, self._index)


def _kept(kept: Tensor, settings: Mapping[str, Any], inputs: Inputs) -> dict[str, Tensor]:
    """Reason -> (B, T), false for tokens that the correction rejects; {} if it rejects none."""
    if settings.get(REJECTIONS) is not None:
        return {"other": kept}
    mode = settings.get("vllm_importance_sampling_mode") or ""
    if not mode.endswith("_mask"):
        return {}
    rollout, old = rollout_of(inputs), inputs.get("old_per_token_logps")
    if not mode.startswith("token") or rollout is None or old is None:
        return {"sequence": kept}
    return {"high": kept | ~(old > rollout), "low": kept | (old > rollout)}


def _module(trainer: Trainer) -> dict[str, Any]:
    """The names of the module that unsloth generated; {} if it is not there."""
    generated = next((base for base in type(trainer).__mro__ if base.__name__ in UNSLOTH), object)
    return vars(sys.modules[generated.__module__]) if generated.__module__ in sys.modules else {}
