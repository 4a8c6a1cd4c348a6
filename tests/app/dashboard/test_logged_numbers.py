"""The trainer's own numbers of a scalar log: picked on Metrics, and drawn on every page of a log without a metric of ours."""

import json
from pathlib import Path

import pytest
from support.pages_open import Open, charts, html, plain
from support.pages_read import PageRead, Read

from ratioscope.app.cli import main
from ratioscope.app.dashboard.model.view import SERVED
from ratioscope.app.pages import logged_numbers
from ratioscope.app.pages.pages import PAGES
from ratioscope.app.pages.view import View

REWARD, LOSS, AGAIN = (
    "critic/rewards/mean",
    "actor/pg_loss",
    "ratioscope import early.jsonl -o early-again --dialect verl@VERSION",
)
K3, CLIP, SCORE = "rollout_corr/k3_kl", "actor/pg_clipfrac", "critic/score<b>"


def _imported(folder: Path, name: str, numbers: tuple[str, ...], dialect: str = "verl@0.9.1") -> Path:
    rows = [{"step": step, **{number: step / 10 for number in numbers}} for step in range(1, 7)]
    rows[2][numbers[-1]], rows[3][numbers[-1]] = float("inf"), float("nan")
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run = folder / name
    assert main(["import", str(folder / f"{name}.jsonl"), "-o", str(run), "--dialect", dialect]) == 0
    return run


def _titles(app: PageRead) -> list[str]:
    return [json.loads(each)["layout"]["title"]["text"] for each in charts(app)]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _imported(tmp_path_factory.mktemp("logs"), "theirs", (K3, CLIP, SCORE))


@pytest.fixture(scope="module")
def early(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log whose trainer's version the import was not told."""
    names = (CLIP, "training/rollout_probs_diff_mean", LOSS, K3, "critic/rewards/max", REWARD)
    return _imported(tmp_path_factory.mktemp("logs"), "early", names, "verl")


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _imported(tmp_path_factory.mktemp("logs"), "unknown", (CLIP, SCORE))


def test_a_number_is_drawn_once_it_is_picked_with_what_is_known_of_it(opened: Open, known: Path) -> None:
    before = len(charts(opened("charts", known)))
    app = opened("charts", known, logged=[K3, SCORE])
    canonical, own = charts(app)[before:]
    assert "drawn as mismatch/kl_k3" in canonical and K3 in canonical
    assert "its definition is not known" in own and "critic/score&lt;b&gt;" in own and "score<b>" not in own
    values = json.loads(own)["data"][0]["customdata"]
    assert values[0] == "0.1" and values[5] == "0.6"
    assert "∞" in own, own


def test_the_overview_of_a_log_offers_nothing_that_wants_tokens(opened: Open, known: Path) -> None:
    app = opened("overview", known)
    assert {"to_checks"} <= {button.key for button in app.button} and not {"to_why"} & {b.key for b in app.button}
    assert "only" not in {field.key for field in app.text_input} and "no standard error · step 6" in html(app)


def test_health_of_a_log_counts_no_sequence_that_nobody_offered(read: Read, known: Path) -> None:
    shown = read("record", known)
    assert "collector <b>none: this run was imported from a scalar log" in html(shown) and "●" not in html(shown)
    assert "Nothing was dropped" not in plain(shown) and "offered" not in html(shown)


def test_a_metric_that_the_log_lacks_is_named_and_has_no_empty_chart(read: Read, known: Path) -> None:
    app = read("charts", known)
    (only,) = charts(app)
    assert "kl_k3" in only
    assert "the log has no number of their definition: abs_log_ratio, ess_token" in plain(app)


def test_two_runs_are_two_lines_and_a_name_that_no_run_has_is_none(read: Read, known: Path, unknown: Path) -> None:
    app = read("charts", [known, unknown], run="theirs", **{"with": "unknown"}, logged=[CLIP, "nothing/of/the/kind"])
    both = json.loads(charts(app)[-1])
    assert {trace["name"] for trace in both["data"] if "name" in trace} >= {"theirs", "unknown"}
    assert both["layout"]["title"]["text"] == CLIP


@pytest.mark.parametrize("page", [page.path for page in PAGES if page.reads_tokens])
def test_a_page_about_tokens_says_that_the_log_has_none(opened: Open, early: Path, page: str) -> None:
    app = opened(page, early)
    assert "Import the log again with the version that wrote it" in plain(app)
    assert "because this run was imported from a scalar log: it holds no tokens" in plain(app) and not charts(app)


def test_a_number_that_is_called_as_a_column_has_values_of_its_own_to_download(tmp_path: Path) -> None:
    view = View(str(_imported(tmp_path, "odd", ("run", CLIP))), 0, SERVED)
    for name, column in (("run", "logged/run"), (CLIP, CLIP)):
        assert logged_numbers._rows((("odd", view),), name, None).columns == ["run", "step", column]


def test_overview_draws_what_the_log_has_and_names_the_rest(read: Read, known: Path) -> None:
    app = read("overview", known)
    kl, *own = _titles(app)
    assert "kl_k3" in kl and own == [CLIP, "critic/score&lt;b&gt;"]
    assert "number of their definition: kl_direct" in plain(app) and "such a log has not" in plain(app)


def test_a_log_without_a_version_is_drawn_with_the_import_that_recovers_more(read: Read, early: Path) -> None:
    titles = _titles(read("overview", early))
    assert "prob_diff" in titles[0] and titles[1:3] == [REWARD, LOSS] and len(titles) == 6
    assert _titles(read("charts", early)) == [REWARD, LOSS]
    assert AGAIN in read("overview", early).codes and AGAIN in read("why", early).codes


@pytest.mark.parametrize("page", ["overview", "charts", "why"])
def test_a_log_without_a_metric_of_ours_says_so_and_draws_what_it_holds(read: Read, unknown: Path, page: str) -> None:
    app = read(page, unknown)
    assert "none of them is a metric of ratioscope" in plain(app) and "updates by itself" not in plain(app)
    assert len(charts(app)) == 2


def test_a_recorded_run_has_no_list_of_logged_numbers(opened: Open) -> None:
    app = opened("charts", "stale")
    assert not [box for box in app.multiselect if "own numbers" in box.label]
