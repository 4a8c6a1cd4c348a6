"""The chaos suite, small: every scenario of tests/chaos at a size for every change. `make chaos` runs them at full size."""

from pathlib import Path

import pytest
from chaos.aliasing import aliased
from chaos.blocked import blocked
from chaos.crowd import crowded
from chaos.dead_writers import writers_killed
from chaos.ends import ended
from chaos.experiments import mixed
from chaos.faults import faulted
from chaos.flips import flipped
from chaos.forks import forked
from chaos.full_disk import filled
from chaos.handlers import handled
from chaos.hung import hung
from chaos.kills import killed
from chaos.power_cut import power_cut
from chaos.restarts import restarted
from chaos.small_files import limited
from chaos.tampering import tampered
from chaos.threadless import threadless
from chaos.truncation import truncated

SEED = 5


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_what_was_acknowledged_survives_a_kill_at_any_instant_and_nothing_half_is_read(tmp_path: Path) -> None:
    figures = killed(tmp_path, kills=20, seed=SEED, is_synced=False)
    assert not figures.wrong
    assert figures.counts["kills"] == 20 and figures.counts["acknowledged"]


def test_a_flipped_bit_anywhere_gives_equal_data_or_is_named(tmp_path: Path) -> None:
    figures = flipped(tmp_path, flips=60, seed=SEED)
    assert not figures.wrong
    assert figures.counts["named"] > 40


def test_a_commit_log_cut_at_any_length_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    figures = truncated(tmp_path, seed=SEED, stride=500)
    assert not figures.wrong
    assert figures.counts["lengths"] > 2000


def test_a_full_disk_costs_rows_for_as_long_as_it_is_full_and_no_statistics(tmp_path: Path) -> None:
    figures = filled(tmp_path, seed=SEED)
    assert not figures.wrong
    assert figures.counts["steps_with_statistics"] == figures.counts["steps"] > figures.counts["steps_with_rows"]


def test_log_returns_and_the_queue_is_bounded_while_the_disk_hangs(tmp_path: Path) -> None:
    assert not blocked(tmp_path, calls=60, seed=SEED).wrong


def test_readers_never_see_a_part_of_what_a_writer_wrote_at_once(tmp_path: Path) -> None:
    figures = crowded(tmp_path, writers=4, steps=4, seed=SEED)
    assert not figures.wrong
    assert figures.counts["looks"] >= 2


def test_children_forked_and_spawned_in_the_middle_record_what_they_log(tmp_path: Path) -> None:
    assert not forked(tmp_path, forks=8, seed=SEED).wrong


def test_no_failing_call_reaches_training_or_loses_what_was_acknowledged(tmp_path: Path) -> None:
    figures = faulted(tmp_path, seed=SEED, stride=17)
    assert not figures.wrong
    assert figures.counts["file_calls_failed"] > 4 and figures.counts["Arrow_calls_failed"] > 4


def test_ranks_started_again_alone_or_together_show_every_step_once(tmp_path: Path) -> None:
    figures = restarted(tmp_path, ranks=3, steps=10, seed=SEED)
    assert not figures.wrong
    assert figures.counts["ranks_started_again"] and figures.counts["jobs_started_again"]


def test_several_experiments_in_one_folder_lie_in_runs_of_their_own(tmp_path: Path) -> None:
    figures = mixed(tmp_path, experiments=3, ranks=2, starts=2, seed=SEED)
    assert not figures.wrong
    assert figures.counts["killed"]


def test_what_was_acknowledged_survives_a_power_cut_at_any_instant(tmp_path: Path) -> None:
    figures = power_cut(tmp_path, steps=2, seed=SEED, stride=12)
    assert not figures.wrong
    assert figures.counts["acknowledged"] == 2 and figures.counts["runs_read"] > 20


def test_files_that_may_not_grow_cost_what_is_told_and_nothing_else(tmp_path: Path) -> None:
    figures = limited(tmp_path, limits=(4, 96), seed=SEED)
    assert not figures.wrong
    assert figures.counts["with_statistics"] and figures.counts["told_as_not_written"]


def test_a_file_that_is_emptied_removed_or_replaced_is_named_or_missed_by_nobody(tmp_path: Path) -> None:
    figures = tampered(tmp_path, seed=SEED, stride=4)
    assert not figures.wrong
    assert figures.counts["acts"] > 10


def test_a_trainer_that_is_ended_loses_no_more_than_its_last_moment(tmp_path: Path) -> None:
    figures = ended(tmp_path, trainers=3, seed=SEED)
    assert not figures.wrong
    assert figures.counts["steps_on_disk"] > 10


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
def test_what_was_logged_is_recorded_in_whatever_form_it_came_and_however_it_was_changed_afterwards(
    tmp_path: Path,
) -> None:
    figures = aliased(tmp_path, calls=4, seed=SEED)
    assert not figures.wrong
    assert figures.counts["columns"] > 300


def test_three_dead_writers_and_the_thread_after_them_leave_a_run_that_nobody_doubts(tmp_path: Path) -> None:
    figures = writers_killed(tmp_path, trainers=2, seed=SEED)
    assert not figures.wrong
    assert figures.counts["writers_killed"] == 9 and figures.counts["acknowledged"] > 20


def test_a_folder_that_hangs_holds_no_call_of_the_trainers_up(tmp_path: Path) -> None:
    figures = hung(tmp_path, runs=2, seed=SEED)
    assert not figures.wrong
    assert figures.counts["sequences"] and figures.counts["hung_at_the_close"]


def test_where_no_thread_or_process_can_be_started_training_goes_on_and_all_is_counted(tmp_path: Path) -> None:
    figures = threadless(tmp_path, runs=3, seed=SEED)
    assert not figures.wrong
    assert figures.counts["threads_refused"] and figures.counts["written"]


def test_handlers_that_raise_hang_or_call_back_neither_reach_training_nor_lose_anything_uncounted(
    tmp_path: Path,
) -> None:
    figures = handled(tmp_path, runs=3, seed=SEED)
    assert not figures.wrong
    assert figures.counts["notices"] >= 3
