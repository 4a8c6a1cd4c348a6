"""Folders as people have them: rows among settings, optimizer states, logs, links and files of other names."""

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.hostile_dumps import SHAPES, Shape, json_lines
from support.imported import DUMPS, imported, rejected

from ratioscope.app.cli import main
from ratioscope.ingest.importers.neighbours import NEIGHBOURS, neighbour

BY_NAME = {shape.name: shape for shape in SHAPES}
ROWS = BY_NAME["nemo-rl"]
FOLDERS = {
    "open-instruct": ("open-instruct", ("run_metadata.jsonl",)),
    "nemo-rl": ("nemo-rl", (
        "val_data_step1.jsonl", "step_1/training_info.json", "step_1/train_dataloader.pt", "step_1/config.yaml",
        "step_1/rollouts.pt", "step_1/replacement_reserve.pt", "step_1/policy/weights/model.safetensors",
        "step_1/policy/optimizer/__0_0.distcp", "step_1/policy/weights/common.pt", "step_1/policy/tokenizer/tokenizer.json")),
    "slime": ("slime", ("rollout/global_dataset_state_dict_3.pt", "iter_3/mp_rank_00/model_optim_rng.pt", "latest")),
    "miles": ("miles", (
        "rank_0_00001_advantages.pt", "rng.pt", "training_state_rank0.pt", "adapter_megatron_rank0.pt",
        "dashboard_cache/rollout_3.sources.json")),
    "prime-rl": ("prime-rl", (
        "checkpoints/step_1/trainer/rank_0.pt", "checkpoints/step_1/orchestrator/progress.pt", "configs/orchestrator.json",
        "configs/rl.toml", "logs/trainer.log")),
    "trl": ("table", (
        "checkpoint-1/optimizer.pt", "checkpoint-1/scheduler.pt", "checkpoint-1/rng_state_0.pth", "checkpoint-1/scaler.pt",
        "checkpoint-1/model-00001-of-00002.safetensors", "checkpoint-1/model.safetensors.index.json",
        "checkpoint-1/training_args.bin", "checkpoint-1/config.json", "checkpoint-1/generation_config.json",
        "checkpoint-1/tokenizer_config.json", "checkpoint-1/special_tokens_map.json", "checkpoint-1/chat_template.jinja",
        "wandb/run-1/files/wandb-metadata.json", "wandb/run-1/files/wandb-summary.json", "README.md")),
    "skyrl": ("table", ("global_step_1/trainer_state.pt", "global_step_1/data.pt", "latest_ckpt_global_step.txt")),
    "verl": ("table", (
        "global_step_1/data.pt", "global_step_1/actor/model_world_size_2_rank_0.pt",
        "global_step_1/actor/optim_world_size_2_rank_1.pt", "global_step_1/actor/extra_state_world_size_2_rank_0.pt",
        "global_step_1/actor/fsdp_config.json", "latest_checkpointed_iteration.txt", "night_runs/GBS4_N2_in4_out8/1/meta.json")),
    "areal": ("table", ("recover/dataloader_info.pkl", "recover/step_info.json", "value_head.pt", "version.json")),
    "roll": ("table", ("world_size_2_rank_0.pt", "worker_state_last.json", "timeline-step-1.json", "optimizer.pt")),
    "openrlhf": ("table", ("mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", ".DS_Store")),
}  # fmt: skip
"""Trainer -> the shape of its rows, and files that its own code or that of its libraries writes beside them."""


def folder_of(shape: Shape, names: tuple[str, ...], folder: Path) -> Path:
    folder.mkdir(parents=True)
    shape.write(folder / shape.file, [shape.row])
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"\x80 no file of a known kind\n")
    return folder


@pytest.mark.parametrize("trainer", FOLDERS)
def test_files_that_a_trainer_keeps_beside_its_rows_fail_no_import(
    trainer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape, names = BY_NAME[FOLDERS[trainer][0]], FOLDERS[trainer][1]
    folder = folder_of(shape, names, tmp_path / "dump")
    assert main(["import", str(folder), "-o", str(tmp_path / "run"), "--strict", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert sorted(name for held in report["beside"].values() for name in held) == sorted(names)
    assert report["sequences"] == 1 and not report["passed_over"] and not report["rejected"]


def test_a_report_names_the_files_beside_the_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(ROWS, ("optimizer.pt", "a.log", "b.log", "c.log", "d.log"), tmp_path / "dump")
    assert main(["import", str(folder), "-o", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "1 file beside the rows, state of a trainer: optimizer.pt" in said
    assert "4 files beside the rows, settings and logs: a.log, b.log, c.log, …" in said


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_file_of_rows_is_taken_for_one_beside_them(shape: Shape) -> None:
    assert neighbour(shape.file) is None and neighbour(f"step_3/{shape.file}.gz") is None


def test_a_file_with_the_name_of_a_dump_is_one_whatever_lies_in_it(tmp_path: Path) -> None:
    folder = folder_of(ROWS, ("step_2/rank_0.jsonl",), tmp_path / "dump")
    assert imported(folder, tmp_path / "run")[0] == 1
    (one,) = rejected(tmp_path / "run")
    assert one["file"] == "step_2/rank_0.jsonl" and one["reason"]


def test_each_neighbour_says_who_writes_it() -> None:
    assert all(each.what and each.files and each.by for each in NEIGHBOURS)


def test_a_named_file_is_read_though_its_name_is_that_of_a_neighbour(tmp_path: Path) -> None:
    shape = BY_NAME["slime"]
    shape.write(tmp_path / "data.pt", [shape.row])
    assert imported(tmp_path / "data.pt", tmp_path / "run")[0] == 0


def test_links_empty_files_and_files_without_rows_are_named_and_fail_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(ROWS, (), tmp_path / "dump")
    (folder / "empty.jsonl").touch()
    (folder / "answers.jsonl").write_text('{"question": 1}\n')
    (folder / "link.jsonl").symlink_to(folder / ROWS.file)
    (folder / "linked").symlink_to(folder, target_is_directory=True)
    assert main(["import", str(folder), "-o", str(tmp_path / "run"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    passed_over = {name.split(" ")[0] for name in report["passed_over"]}
    assert passed_over == {"empty.jsonl", "answers.jsonl", "link.jsonl", "linked"}


def test_a_folder_of_links_alone_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / "rows.jsonl").symlink_to(tmp_path)
    assert main(["import", str(tmp_path / "dump"), "-o", str(tmp_path / "run")]) == 3
    assert "only links, which are not followed" in capsys.readouterr().err


RENAMED = {
    "nemo_rl/train_data_step1.jsonl": ("tuesday.jsonl", 4),
    "nemo_rl_checkpoint/step_4/replay_buffer.pt": ("tuesday.pt", None),
    "slime/train_3.pt": ("tuesday.pt", 4),
    "skyrl/global_step_3_training_input_v040.pkl": ("tuesday.pkl", 4),
    "verl/gen_batch.dp": ("tuesday.dp", 4),
    "verl/tq_batch.pt": ("tuesday.pt", 4),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dump", RENAMED)
def test_a_dump_of_another_name_is_known_by_its_content(dump: str, packed: bool, tmp_path: Path) -> None:
    name, wanted = RENAMED[dump]
    data = (DUMPS / dump).read_bytes()
    (tmp_path / "dump").mkdir()
    (tmp_path / "dump" / (name + ".gz" * packed)).write_bytes(gzip.compress(data) if packed else data)
    code, rows = imported(tmp_path / "dump", tmp_path / "run")
    assert code == 0 and (len(rows) == wanted if wanted else rows)
    assert imported(DUMPS / dump, tmp_path / "named")[0] == 0
    trainers = [json.loads((tmp_path / name / "run.json").read_text())["trainer"] for name in ("run", "named")]
    assert trainers[0] == trainers[1] and trainers[0]


def test_a_checkpoint_of_hugging_face_is_imported_for_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = Shape("log", "trainer_state.json", {}, json_lines)
    folder = folder_of(shape, FOLDERS["trl"][1], tmp_path / "out")
    state = {"global_step": 2, "log_history": [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.25}]}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    assert main(["import", str(folder), "-o", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2


def test_rows_of_files_that_name_no_step_have_ids_of_their_own(tmp_path: Path) -> None:
    item = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    line = {"response": {"output": [item]}, "_ng_task_index": 0, "_ng_rollout_index": 0}
    for part in ("monday", "tuesday"):
        (tmp_path / "gym" / part).mkdir(parents=True)
        (tmp_path / "gym" / part / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    code, rows = imported(tmp_path / "gym", tmp_path / "run")
    assert code == 0
    assert [row["sequence_id"] for row in rows] == ["monday/rollouts-0-0-0-0", "tuesday/rollouts-0-0-0-0"]
    code, rows = imported(tmp_path / "gym" / "monday", tmp_path / "alone")
    assert code == 0 and [row["sequence_id"] for row in rows] == ["0-0-0-0"]


def test_a_file_whose_first_line_is_no_json_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"rollout_logprobs": [-0.5]}, indent=1))
    assert main(["import", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "run")]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "rows.jsonl (row 0: the line is no JSON (" in said


def test_two_runs_in_one_folder_are_told_apart(tmp_path: Path) -> None:
    for run in ("a", "b"):
        shutil.copytree(DUMPS / "nemo_rl", tmp_path / "both" / run)
    code, rows = imported(tmp_path / "both", tmp_path / "run")
    assert code == 1 and len(rows) == len(rejected(tmp_path / "run")) == 4
    assert all("of two runs, import each by itself" in each["reason"] for each in rejected(tmp_path / "run"))


def test_a_folder_of_which_nothing_is_imported_tells_how_much_and_what_else_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("completions_1.parquet", "completions_2.parquet"):
        pq.write_table(pa.table({"completion": ["x"], "advantage": [0.5], "step": [1]}), tmp_path / name)
    (tmp_path / "numbers.jsonl").write_text("".join(json.dumps({"step": n, "loss": 0.5}) + "\n" for n in range(3)))
    assert main(["import", str(tmp_path), "-o", str(tmp_path.parent / "run")]) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "it holds texts and rewards, no log-probs" in said and "1 more was rejected" in said
    assert "beside it: numbers.jsonl (a table of numbers by step; import it by itself)" in said
