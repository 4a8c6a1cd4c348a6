"""What of the OpenRLHF adapter needs no OpenRLHF; its own code is driven in upstream/test_openrlhf_adapter.py."""

from types import SimpleNamespace
from typing import Any

from ratioscope.collectors.adapters.openrlhf import OpenRlhfRecorder
from ratioscope.collectors.watching.hooks import Call

ARGS = SimpleNamespace(critic=SimpleNamespace(freezing_steps=-1), train=SimpleNamespace(async_enable=False))


def versions(*calls: str, resumed: int = 0) -> list[int | None]:
    """The rollout version at each step of training. calls: a step, or a broadcast of weights, in their order."""
    said = list[str]()
    recording: Any = SimpleNamespace(
        rollout_version=None, has_collector=False, say_once=lambda kind, *_: said.append(kind), event=print
    )
    trainer: Any = SimpleNamespace(
        args=ARGS, strategy=SimpleNamespace(), replay_buffer=SimpleNamespace(items=[]), broadcast_to_vllm=print
    )
    recorder, found = OpenRlhfRecorder(recording), list[int | None]()
    recorder._resumed = resumed
    for call in calls:
        if call == "broadcast":
            recorder.weights_sent(Call(trainer, {}))
        else:
            recorder.step_begins(Call(trainer, {}))
            found.append(recorder._rollout_version(trainer, resumed + len(found) + 1))
    assert (None in found) == ("no_rollout_versions" in said)
    return found


def test_a_version_is_the_step_of_the_last_broadcast() -> None:
    assert versions("step", "broadcast", "step", "step", "broadcast", "step") == [0, 1, 1, 3]
    assert versions("broadcast", "step", "broadcast", "step", resumed=7) == [7, 8]
    assert versions("step", "broadcast", "step", resumed=7) == [None, 8]
