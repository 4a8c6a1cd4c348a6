"""Functions for slime's own flags, for jobs whose processes cannot get import hooks from the environment.

RATIOSCOPE_RUN gives the run folder, or `ratioscope_run` in the file of --custom-config-path, which all processes get with the
arguments.

    --custom-rollout-log-function-path   rollout_log                rollout manager: rollout log-probs, versions, facts
    --custom-megatron-init-path          megatron_init              training ranks: installs the hooks, which record everything
    --rollout-data-postprocess-path      rollout_data_postprocess   instead of the hooks: old, reference, advantages
    --custom-tis-function-path           tis                        beside it: the masks after the correction, and old if the
                                                                    loss computes it

If a flag already names a function of the user, give that function in the same file (`ratioscope_tis_function_path` and so on).
Ours calls it, or slime's default without one, and returns its result unchanged.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from ...environment import environment_options, install
from ...foreign import Tensor
from ...process.notice import warn
from ...process.variables import LAUNCH, RUN
from ...watching.hooks import is_watched
from ...watching.recording import Recording
from .batch import Rollout
from .names import Names, hooks
from .rollout import RolloutSide, own_function_argument
from .train import TrainSide
from .versions import Arguments


class Flags:
    """The functions for one trainer, and the state of this process's recording.

    The trainer finds the functions by their path and keeps no state between calls.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self.recording: Recording | None = None
        self._rollouts: RolloutSide | None = None
        self._training: TrainSide | None = None
        self._recorded_rows: set[int] = set()

    def megatron_init(self, args: Arguments) -> None:
        """`--custom-megatron-init-path`: records this rank as `ratioscope run` does."""
        _install_hooks(args)
        if (own := self._own(args, "custom_megatron_init_path")) is not None:
            own(args)

    def rollout_log(
        self, rollout_id: int, args: Arguments, samples: Any, rollout_extra_metrics: Any, rollout_time: float
    ) -> bool:
        """`--custom-rollout-log-function-path`: returns False without a user's function, so that the trainer logs as usual.

        If our flag installs hooks in the training ranks, the first rollout installs hooks in this process too, which send the
        versions to the ranks.
        """
        recording = self._recording_of(args)
        if recording is not None and not self._is_watched(self._names.sampled):
            if self._rollouts is None:
                self._rollouts = RolloutSide(recording, self._names)
            side = self._rollouts
            recording.watch(lambda: side.record(rollout_id, args, samples))
            if str(getattr(args, "custom_megatron_init_path", None)).startswith("ratioscope."):
                _install_hooks(args)
        own = self._own(args, "custom_rollout_log_function_path")
        return bool(own(rollout_id, args, samples, rollout_extra_metrics, rollout_time)) if own is not None else False

    def rollout_data_postprocess(self, args: Arguments, rollout_id: int, rollout_data: dict[str, Any]) -> None:
        """`--rollout-data-postprocess-path`: records after the user's own function, which may filter."""
        recording, side = self._recording_of(args), None
        if recording is not None and not self._is_watched(self._names.loss):
            if self._training is None:
                self._training = TrainSide(recording, self._names)
            side = self._training
            recording.watch(lambda: side.begin(args, rollout_id, rollout_data, {}))
        if (own := self._own(args, "rollout_data_postprocess_path")) is not None:
            own(args, rollout_id, rollout_data)
        if side is not None and recording is not None:
            self._recorded_rows = set()
            recording.watch(lambda: self._record_batch(side, args))

    def tis(self, args: Arguments, **given: Any) -> tuple[Tensor, Sequence[Tensor], Mapping[str, Tensor]]:
        """`--custom-tis-function-path`: the result of the user's own function, or of the trainer's default.

        With --get-mismatch-metrics alone the trainer has no default function. The loss then does not change, and the metrics of
        vanilla TIS are logged.
        """
        own = self._own(args, "custom_tis_function_path")
        function = own if own is not None else _named(self._names.tis)
        loss, masks, metrics = function(args=args, **given)
        if own is None and not args.use_tis:
            loss, masks = given["pg_loss"], given["loss_masks"]
        side, recording = self._training, self.recording
        if side is not None and side.rollout is not None and recording is not None:
            rollout = side.rollout
            recording.watch(lambda: self._record_correction(side, rollout, given, masks))
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
        self, side: TrainSide, rollout: Rollout, given: Mapping[str, Any], masks: Sequence[Tensor]
    ) -> None:
        rows = rollout.rows_of(given["loss_masks"])
        if self._recorded_rows & set(rows):  # --recompute-loss-function calls the loss again in the backward pass
            return
        self._recorded_rows |= set(rows)
        names = ("tokens", "advantages", "ref_log_probs", "max_seq_lens")
        batch = {
            name: [values[row] for row in rows] for name in names if (values := rollout.data.get(name)) is not None
        }
        batch |= {**given, "unconcat_tokens": batch["tokens"]}
        scored = {} if rollout.data.get("log_probs") else {"old_logprobs": given["train_log_probs"]}
        if scored:  # with one optimizer step the loss uses the detached current log-probs as old
            scored["current_logprobs"] = given["train_log_probs"]
        side.log(rollout, batch, masks, minibatch=0 if scored else None, **scored)

    def _recording_of(self, args: Arguments) -> Recording | None:
        if self.recording is None and (run := _run_folder(args)):
            _name_launch()
            self.recording = Recording(run, environment_options(), self._names.adapter)
            self.recording.computed_apart = True
        return self.recording

    def _is_watched(self, name: str) -> bool:
        module, _, function = name.partition(":")
        matching = [hook for hook in hooks(self._names) if (hook.module, hook.name) == (module, function)]
        return module in sys.modules and any(is_watched(hook) for hook in matching)

    def _own(self, args: Arguments, flag: str) -> Any:
        path = getattr(args, own_function_argument(flag), None)
        return None if path is None else _named(self._names.load_function)(path)


def _install_hooks(args: Arguments) -> None:
    if run := _run_folder(args):
        os.environ[RUN] = run
        _name_launch()
        install()


def _run_folder(args: Arguments) -> str | None:
    folder = getattr(args, "ratioscope_run", None) or os.environ.get(RUN)
    if not folder:
        _say_no_folder()
    return folder


@cache
def _say_no_folder() -> None:
    warn("nothing is recorded: set RATIOSCOPE_RUN, or ratioscope_run in the file of --custom-config-path")


def _name_launch() -> None:
    """Sets the launch name, unless it is set, to Ray's session and job, which are the same in all processes."""
    node = getattr(getattr(getattr(sys.modules.get("ray"), "_private", None), "worker", None), "_global_node", None)
    session, job = getattr(node, "session_name", None), os.environ.get("RAY_JOB_ID")
    if session and job:
        os.environ.setdefault(LAUNCH, f"{session}-{job}")


def _named(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(sys.modules[module], function)
