"""Which tests `make quick` leaves out, besides those marked slow where they stand: whole files, and all that need a browser; and
which `make test` leaves to `make test-release`.
"""

from collections.abc import Callable, Collection
from fnmatch import fnmatch
from functools import cache
from inspect import getsource
from pathlib import Path

from hypothesis import is_hypothesis_test

from support.paths import TESTS
from support.sizes import FULL

QUICK = "not slow"
"""The expression of `make quick`. Under it the files below are not imported either: that alone costs seconds."""
ALONE = "release"
"""The expression of `make test-release`."""
FILES = {
    "app/dashboard": "Streamlit runs, and a browser",
    "bank": "some runs of the bank are recorded and diagnosed",
    "app/figures/test_honest_charts": "Streamlit runs",
    "app/browser/test_browser_policy": "a browser",
    "app/presentation/test_narrow": "a browser",
    "app/documents": "whole reports and pages, and a browser",
    "app/export/test_tables": "whole runs, exported at every level",
    "app/export/test_wandb_sync": "processes of W&B's own",
    "app/checkers": "torch, and servers",
    "app/cli": "whole commands, each in a process of its own",
    "app/test_golden_answers": "every verb and static page of every edge run",
    "app/test_topk_leaves_no_trace": "reports and exports of a whole run",
    "app/test_one_number": "every face of both shipped runs",
    "app/referee": "torch, and rows scored again",
    "collectors/adapters": "torch, and TRL's own trainers",
    "collectors/test_collector_inputs": "torch",
    "collectors/test_without_vllm": "torch, and TRL's own trainer",
    "collectors/test_prompt_ids": "torch",
    "collectors/test_collector_device": "torch",
    "collectors/test_self_noise": "torch",
    "collectors/test_joined_forwards": "torch, in two ranks",
    "collectors/test_collector_files": "runs are written whole, again and again",
    "collectors/test_collector_health": "files that may not grow, in processes of their own",
    "collectors/test_collector_ranks": "a process for each rank",
    "collectors/test_live_scalars": "values of a live run, again and again",
    "collectors/test_partial_restarts": "a process for each rank and restart",
    "collectors/test_starts": "a process for each start of a job",
    "collectors/test_intake": "processes that are killed",
    "collectors/test_topk": "torch",
    "collectors/test_writer_process": "a process for each writer",
    "collectors/test_hooks": "a process for each hook",
    "faults": "runs are labelled by their maker",
    "ingest/importers/test_topk_logs": "a process for each import",
    "ingest/importers/test_torch_files": "torch",
    "ingest/importers/test_wandb_log": "processes of W&B's own",
    "ingest/test_s3": "a store of four processes",
    "ingest/test_support": "a run for each example of its laws",
    "ingest/test_remote_runs": "whole runs, pushed and opened again",
    "ingest/test_remote_readings": "reports of whole runs",
    "ingest/test_hub": "a report of a whole run, and the imports of huggingface_hub",
    "ingest/importers/test_wandb_server": "processes of W&B's own",
    "ingest/test_bridge": "every dialect is tried on a whole run",
    "ingest/test_chain": "a log is cut and altered anywhere",
    "ingest/test_compaction": "killed at every call",
    "ingest/test_condensed": "killed at every call",
    "ingest/test_correction_job": "whole jobs",
    "ingest/test_decoded": "folders of millions of lines and files",
    "ingest/test_exactness": "whole runs, compared bit by bit",
    "ingest/test_growth": "runs of many steps are made and split",
    "ingest/test_index_corrections": "processes of their own, and whole runs",
    "ingest/test_kept_tables": "whole runs, opened again and again",
    "ingest/test_on_record": "runs are recorded and diagnosed for each fact",
    "ingest/test_own_correction": "settings and masks of whole runs",
    "ingest/test_sentinels": "runs are recorded and diagnosed for each pattern",
    "ingest/test_repair": "killed at every call",
    "ingest/importers/test_arrow_files": "torch",
    "ingest/importers/test_folders": "a folder of every trainer is imported",
    "ingest/importers/test_hostile_columns": "torch",
    "ingest/importers/test_hostile_rows": "files of every format, altered again and again",
    "ingest/importers/test_interrupted": "imports are ended anywhere",
    "ingest/importers/test_importing": "imports are ended anywhere",
    "ingest/importers/test_other_names": "dumps are packed, cut and imported again and again",
    "ingest/test_run": "rows of whole runs in every order of writers",
    "ingest/test_run_attempts": "runs that start again and again",
    "ingest/test_run_damage": "a bit is flipped everywhere",
    "ingest/test_run_growing": "a log is cut anywhere",
    "ingest/test_run_rows": "rows of whole runs are measured",
    "ingest/test_sequence_json": "sequences of whole runs, bit by bit",
    "ingest/test_step_bounds": "whole runs, and Streamlit",
    "ingest/test_verify": "every kind of damage to a whole run",
    "metrics/diagnosis/test_fault_causes": "every labelled run is diagnosed",
    "metrics/diagnosis/test_healthy_shapes": "a run is diagnosed in many shapes",
    "metrics/diagnosis/test_real_causes": "every real run is diagnosed",
    "metrics/dialects/test_dialect_trl_package": "TRL's own trainers",
    "metrics/test_agreement": "a process for each kind of processor",
    "metrics/test_merge": "many small parts",
    "metrics/test_metrics": "torch, and oracles in plain loops",
    "metrics/test_metrics_honesty": "thousands of runs for a rate",
    "metrics/test_metrics_sampled": "thousands of samples for a rate",
    "metrics/test_run_rules": "whole runs are graded by rules of their own",
    "metrics/test_torch_engine*": "torch",
    "project/test_added_metric": "every face draws",
    "project/test_chaos*": "processes are killed",
    "project/test_docs*": "the site is built, and its pages are run",
    "project/test_inside": "processes",
    "project/test_no_python_in_engines": "visitors of every table at once",
    "project/test_packaging": "a wheel is built",
    "project/test_reliability_page": "the chaos suite is imported",
    "upstream": "the trainers' own packages",
}
"""Files and folders of tests by their place, and what in them takes long."""
FIXTURES = frozenset({"browser", "dashboard", "opened"})
"""A test that asks for one of these drives a browser or runs Streamlit."""
RELEASE = {
    "project/test_benchmarks": "every benchmark is started",
    "project/test_docs_run": "the pages' Python and commands are run",
    "project/test_fetch_sources": "a checkout is fetched",
    "project/test_packaging": "a wheel is built",
    "project/test_performance_page": "a page that `make bench` writes",
    "project/test_reliability_page": "a page that `make chaos` writes",
}
"""Files of tests that `make test-release` runs alone: of packages, pages and benchmarks, which few changes touch."""
RELEASE_FIXTURES = frozenset({"site"})
"""A test that asks for one of these builds the site of docs/."""


def is_slow(path: Path) -> bool:
    """True if a file or folder of tests is one of FILES or lies in one."""
    return _is_among(path, (*FILES,))


def is_for_release(path: Path, fixtures: Collection[str], test: Callable[..., None] | None) -> bool:
    """True if `make test-release` runs a test: at full size all those that have two sizes. test: its function."""
    has_sizes = FULL and (is_hypothesis_test(test) or _names_full(path, test))
    return has_sizes or _is_among(path, (*RELEASE,)) or not RELEASE_FIXTURES.isdisjoint(fixtures)


def may_be_for_release(path: Path) -> bool:
    """True if a file may hold a test that `make test-release` runs, by the words in it; each worker imports what it collects."""
    words = ("hypothesis", "import FULL", *(f"def {name}(" for name in RELEASE_FIXTURES))
    return path.suffix != ".py" or _is_among(path, (*RELEASE,)) or any(word in _read(path) for word in words)


def _names_full(path: Path, test: Callable[..., None] | None) -> bool:
    """True if the function or a decorator of it names FULL."""
    return test is not None and "import FULL" in _read(path) and "FULL" in getsource(test)


@cache
def _read(path: Path) -> str:
    return path.read_text()


@cache
def _is_among(path: Path, patterns: tuple[str, ...]) -> bool:
    if not path.is_relative_to(TESTS):
        return False
    place = path.relative_to(TESTS).with_suffix("")
    return any(fnmatch(each.as_posix(), pattern) for each in (place, *place.parents) for pattern in patterns)
