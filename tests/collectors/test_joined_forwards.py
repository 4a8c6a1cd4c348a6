"""Two ranks that decide about a second forward without a driver: none of them ever waits for one that does not come."""

import subprocess
import sys
from pathlib import Path

from ratioscope.collectors.adapters.slime.second_forward import all_are_ready, all_left_notes, leave_note

RANK = """
import sys, types
import torch, torch.distributed as distributed
from ratioscope import SelfNoise
from ratioscope.collectors.adapters.slime.second_forward import SlimeAgain
from ratioscope.collectors.watching.hooks import Call
from ratioscope.collectors.watching.recording import Recording

folder, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=2)
def forward_only(*given, **named):
    distributed.all_reduce(torch.ones(1))  # the weights are sharded
    if kind == "fails" and rank == 1 and len(forwards) == 1:
        raise RuntimeError("this rank alone, behind its last collective call")
    forwards.append(1)
    return {"log_probs": [torch.zeros(2)]}

modules = {"actor": {"forward_only": forward_only, "get_log_probs_and_entropy": None},
           "data": {"get_data_iterator": lambda data: [data]}}
for name, values in modules.items():
    sys.modules[f"slime.backends.megatron_utils.{name}"] = types.SimpleNamespace(**values)
arguments = types.SimpleNamespace(use_routing_replay=False, custom_megatron_before_log_prob_hook_path=None,
                                  micro_batch_size=2, use_dynamic_batch_size=False)
actor = types.SimpleNamespace(args=arguments, model=[torch.nn.Linear(1, 1)])
place = types.SimpleNamespace(place=lambda: types.SimpleNamespace(speaks=False, writes=False))
for number, kind in enumerate(("both", "absent", "unready", "fails")):
    again, forwards = SlimeAgain(Recording(f"{folder}/run", {"self_noise": SelfNoise(1, 1)}, "slime"), place), []
    for step in range(10 * number, 10 * number + 5):
        if kind != "absent" or rank == 0:
            is_short = kind == "unready" and rank == 1 and step % 10 == 2
            again.begins(step, {"tokens": [] if is_short else [1, 2]})
            again.old_scored(Call(actor, {"store_prefix": ""}))
        distributed.all_reduce(torch.ones(1))  # the update
    print("forwards", kind, len(forwards))
distributed.destroy_process_group()
"""


JOINED = {
    "both": (4, 4),  # the first step has no notes of one before it
    "absent": (0, 0),
    "unready": (1, 1),
    "fails": (2, 1),  # the other stops at the next
}
"""Kind of a training of five steps -> the forwards of each rank that came to their end."""


def test_two_ranks_join_each_forward_or_none(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(tmp_path), str(rank)], stdout=-1, stderr=-1, text=True)
        for rank in range(2)
    ]
    try:
        found = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], found
    for number, (out, _) in enumerate(found):
        told = {line.split()[1]: int(line.split()[2]) for line in out.splitlines() if line.startswith("forwards")}
        assert told == {kind: both[number] for kind, both in JOINED.items()}


def test_one_process_agrees_with_itself() -> None:
    leave_note(3)
    assert all_left_notes(99) and all_are_ready(True) and not all_are_ready(False)
