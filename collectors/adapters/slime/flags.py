"""The functions that slime's own flags can name, for jobs whose processes nothing can prepare.

RATIOSCOPE_RUN names the run folder, or `ratioscope_run` in the file of --custom-config-path, which reaches all processes with the
arguments.

    --custom-rollout-log-function-path   rollout_log                rollout manager: rollout log-probs, versions, facts
    --custom-megatron-init-path          megatron_init              training ranks: puts the hooks on, everything is recorded
    --rollout-data-postprocess-path      rollout_data_postprocess   instead of it, without a hook: old, reference, advantages
    --custom-tis-function-path           tis                        beside it: the masks after the correction, and old where
                                                                    it is computed in the loss

A function of the user's that one of ours takes the place of is named in the same file (`ratioscope_tis_function_path` and so
on) and called in its place; without one, slime's default is. What it returns is returned unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ...environment import environment_options, install
from ...process.notice import warn
from ...process.variables import LAUNCH, RUN
from ...watching.hooks import is_watched
from ...watching.recording import Recording
from .batch import Rollout
from .names import Names, hooks
from .rollout import RolloutSide, own_function_argument
from .train import TrainSide
from .versions import Arguments

Tensor = Any


class Flags:
    """The functions for one trainer. What this process records by them is kept here, as the trainer knows them by path only."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.recording: Recording | None = None
        self._rollouts: RolloutSide | None = None
        self._training: TrainSide | None = None
        self._told: set[int] = set()

    def megatron_init(self, args: Arguments) -> None:
        """`--custom-megatron-init-path`: records this rank as `ratioscope run` would."""
        _put_hooks_on(args)
        if (own := self._own(args, "custom_megatron_init_path")) is not None:
            own(args)

    def rollout_log(
        self, rollout_id: int, args: Arguments, samples: Any, rollout_extra_metrics: Any, rollout_time: float
    ) -> bool:
        """`--custom-rollout-log-function-path`: False, so that the trainer goes on to log what it logs.

        Where the training ranks have hooks by our flag, this process gets its own with the first rollout, so that versions
        reach them.
        """
        recording = self._recording_of(args)
        if recording is not None and not self._is_watched(self._names.sampled):
            if self._rollouts is None:
                self._rollouts = RolloutSide(recording, self._names)
            side = self._rollouts
            recording.watch(lambda: side.record(rollout_id, args, samples))
            if str(getattr(args, "custom_megatron_init_path", None)).startswith("ratioscope."):
                _put_hooks_on(args)
        own = self._own(args, "custom_rollout_log_function_path")
        return bool(own(rollout_id, args, samples, rollout_extra_metrics, rollout_time)) if own is not None else False

    def rollout_data_postprocess(self, args: Arguments, rollout_id: int, rollout_data: dict[str, Any]) -> None:
        """`--rollout-data-postprocess-path`: after the user's own, which may filter."""
        recording, side = self._recording_of(args), None
        if recording is not None and not self._is_watched(self._names.loss):
            if self._training is None:
                self._training = TrainSide(recording, self._names)
            side = self._training
            recording.watch(lambda: side.begin(args, rollout_id, rollout_data, {}))
        if (own := self._own(args, "rollout_data_postprocess_path")) is not None:
            own(args, rollout_id, rollout_data)
        if side is not None and recording is not None:
            self._told = set()
            recording.watch(lambda: self._record_batch(side, args))

    def tis(self, args: Arguments, **given: Any) -> tuple[Tensor, Sequence[Tensor], Mapping[str, Tensor]]:
        """`--custom-tis-function-path`: what the user's own function or the trainer's default returns.

        With --get-mismatch-metrics alone, for which there is no default, the loss stays as it is and the default's metrics are
        logged.
        """
        own = self._own(args, "custom_tis_function_path")
        function = own if own is not None else _named(self._names.tis)
        loss, masks, metrics = function(args=args, **given)
        if own is None and not args.use_tis:
            loss, masks = given["pg_loss"], given["loss_masks"]
        side, recording = self._training, self.recording
        if side is not None and side.rollout is not None and recording is not None:
            rollout = side.rollout
            recording.watch(lambda: self._record_correction(side, rollout, args, given, masks))
        return loss, masks, metrics

    def _record_batch(self, side: TrainSide, args: Arguments) -> None:
        rollout = side.rollout
        if rollout is None:
            return
        data = rollout.data
        corrected = str(getattr(args, "custom_tis_function_path", None)).startswith("ratioscope.")
        batch = {**data, "unconcat_tokens": data["tokens"]}
        side.log(
            rollout,
            batch,
            None if corrected and (args.use_tis or args.get_mismatch_metrics) else data["loss_masks"],
            minibatch=None,
            old_logprobs=data.get("log_probs"),
            entropy=data.get("entropy"),
        )

    def _record_correction(
        self, side: TrainSide, rollout: Rollout, args: Arguments, given: Mapping[str, Any], masks: Sequence[Tensor]
    ) -> None:
        rows = rollout.rows_of(given["loss_masks"])
        if self._told & set(rows):  # --recompute-loss-function: once more in the backward pass
            return
        self._told |= set(rows)
        names = ("tokens", "advantages", "ref_log_probs", "max_seq_lens")
        batch = {
            name: [values[row] for row in rows] for name in names if (values := rollout.data.get(name)) is not None
        }
        batch |= {**given, "unconcat_tokens": batch["tokens"]}
        scored = {} if rollout.data.get("log_probs") else {"old_logprobs": given["train_log_probs"]}
        if scored:  # one optimizer step: the current log-probs, detached, are what the loss takes for old
            scored["current_logprobs"] = given["train_log_probs"]
        side.log(rollout, batch, masks, minibatch=0 if scored else None, **scored)

    def _recording_of(self, args: Arguments) -> Recording | None:
        if self.recording is None and (run := _run_folder(args)):
            _name_launch()
            self.recording = Recording(run, environment_options(), self._names.adapter)
        return self.recording

    def _is_watched(self, name: str) -> bool:
        module, _, function = name.partition(":")
        found = [hook for hook in hooks(self._names) if (hook.module, hook.name) == (module, function)]
        return module in sys.modules and any(is_watched(hook) for hook in found)

    def _own(self, args: Arguments, flag: str) -> Any:
        path = getattr(args, own_function_argument(flag), None)
        return None if path is None else _named(self._names.load_function)(path)


def _put_hooks_on(args: Arguments) -> None:
    if run := _run_folder(args):
        os.environ[RUN] = run
        _name_launch()
        install()


def _run_folder(args: Arguments) -> str | None:
    found = getattr(args, "ratioscope_run", None) or os.environ.get(RUN)
    if not found:
        _say_no_folder()
    return found


@cache
def _say_no_folder() -> None:
    warn("nothing is recorded: set RATIOSCOPE_RUN, or ratioscope_run in the file of --custom-config-path")


def _name_launch() -> None:
    """Names this start of the job after Ray's session and job, the same in all processes, where nobody has named it."""
    node = getattr(getattr(getattr(sys.modules.get("ray"), "_private", None), "worker", None), "_global_node", None)
    session, job = getattr(node, "session_name", None), os.environ.get("RAY_JOB_ID")
    if session and job:
        os.environ.setdefault(LAUNCH, f"{session}-{job}")


def _named(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(sys.modules[module], function)
