"""What of the ms-swift adapter needs no ms-swift; its own code is driven in upstream/test_ms_swift_adapter.py."""

from types import SimpleNamespace
from typing import Any

from ratioscope.collectors.adapters.ms_swift.recorder import RAY, SwiftRecorder
from ratioscope.collectors.watching.hooks import Call


def test_a_worker_of_the_ray_entry_point_says_that_it_records_nothing() -> None:
    said: list[tuple[str, str]] = []
    recording: Any = SimpleNamespace(say_once=lambda kind, step, note, level=0: said.append((kind, note)))
    borrowed = SimpleNamespace(unwrapped_models=[SimpleNamespace(training=True)])  # swift/ray/megatron/loss/grpo.py
    recorder = SwiftRecorder(recording)
    recorder.loss_begins(Call(borrowed, {}))
    recorder.megatron_loss_ends(Call(borrowed, {"data": {}}))
    assert said == [("ray_entry_point", RAY)]
