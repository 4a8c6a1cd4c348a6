"""docs/develop/performance.md: slopes, tables, and contenders that take turns."""

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """(the page's script, its plots). The modules lie beside the pages that they write."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    for name in ("performance", "loglog", "drawing"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import loglog  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]
    import performance  # type: ignore[import-not-found]  # pyright: ignore[reportMissingImports]

    return performance, loglog


@given(st.floats(-2, 3), st.floats(0.01, 100))
def test_the_slope_of_a_power_law_is_its_power(power: float, factor: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "docs")
        import loglog  # pyright: ignore[reportMissingImports]

        sizes = (10.0, 100.0, 1e4)
        values = [(factor * size**power,) * 2 for size in sizes]
        found, error = loglog.slope(loglog.Curve("line", sizes, values))
        assert found == pytest.approx(power, abs=1e-9) and error == pytest.approx(0, abs=1e-6)
        assert loglog.last_slope(loglog.Curve("line", sizes, values)) == pytest.approx(power, abs=1e-9)


OURS = {"name": "ours", "values": [1.0, 2.0, 3.0]}


def table(*theirs: float) -> dict[str, Any]:
    rows = [OURS, {"name": "theirs", "values": list(theirs)}]
    return {"kind": "Table", "name": "log", "title": "Log", "unit": "ms", "against": "ours", "rows": rows}


def test_a_table_states_medians_and_ratios_with_the_range_of_their_rounds(scripts: tuple[Any, Any]) -> None:
    lines = list(scripts[0]._table(table(10.0, 30.0, 60.0)))
    assert lines[0] == "|  | median [ms] | against ours | in single rounds |"
    assert lines[2:] == ["| ours | 2 | 1 | |", "| theirs | 30 | 15 | 10.5 to 19.5 |"]


@pytest.mark.parametrize(
    ("theirs", "is_quick", "wanted"),
    [
        ((11.0, 30.0, 99.0), False, ["1 of 1 ratios agree"]),
        ((18.0, 38.0, 57.0), False, ["1 of 1 ratios agree"]),
        ((5.0, 8.0, 9.0), False, ["0 of 1 ratios agree", "Log: theirs 4 (3.1 to 4.9), before 15 (10.5 to 19.5)"]),
        ((5.0, 8.0, 9.0), True, ["0 of 0 ratios agree"]),
    ],
)
def test_a_measurement_names_the_ratios_that_differ_from_the_one_before(
    theirs: tuple[float, ...], is_quick: bool, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.performance.ratios import differences

    before = {"log": {"is_quick": False, "parts": [table(10.0, 30.0, 60.0)]}}
    lines = differences(before, {"log": {"is_quick": is_quick, "parts": [table(*theirs)]}})
    assert len(lines) == len(wanted) and all(map(str.startswith, lines, wanted))


def test_a_plot_holds_every_point_and_name(scripts: tuple[Any, Any]) -> None:
    curve = scripts[1].Curve("log", (1e3, 1e6), ((1.0, 2.0), (50.0, 60.0)))
    picture = scripts[1].plot([curve], "Log", "tokens", "ms")
    assert picture.count("<circle") == 2 and ">log</text>" in picture and "nan" not in picture


def test_contenders_take_turns_and_the_first_round_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.performance.measured import in_turns

    order: list[str] = []
    ticks = iter(range(1000))
    works = {name: lambda name=name: order.append(name) for name in "abc"}
    rows = in_turns(works, 2, clock=lambda: float(next(ticks)))
    assert "".join(order) == "abcbcacab"
    assert [(row.name, row.values) for row in rows] == [(name, (1.0, 1.0)) for name in "abc"]
    assert not math.isnan(rows[0].values[0])


def test_the_page_is_what_its_figures_give(scripts: tuple[Any, Any]) -> None:
    docs = ROOT / "docs"
    wanted = scripts[0].files(json.loads((docs / "performance.json").read_text()))
    assert {name: (docs / name).read_text() for name in wanted} == wanted
    drawn = {path.name for path in (docs / "pictures").glob("performance_*.svg")}
    assert drawn == {name.removeprefix("pictures/") for name in wanted if name.endswith(".svg")}


def test_a_contender_that_cannot_run_is_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, scripts: tuple[Any, Any]
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.performance.workers import OURS, Worker, calls, told_missing

    given: dict[str, list[str]] = {"files": [], "columns": []}
    absent = Worker("engines:scan", given, str(ROOT / "no" / "python"))
    with Worker("engines:nothing", given, OURS) as broken, Worker("engines:scan", given, OURS) as present:
        workers = {"absent": absent, "broken": broken, "present": present}
        assert list(calls(workers, "work")) == ["present"] and present("work").wall >= 0
        missing = told_missing(workers)
    assert missing[0] == "absent: not measured, because `make bench` could not make its environment."
    assert missing[1].startswith("broken: not measured, because AttributeError: ") and len(missing) == 2
    rows = [{"name": "present", "values": [1.0]}]
    lines = scripts[0]._table({"unit": "s", "against": "present", "rows": rows, "missing": missing})
    assert list(lines)[-1] == "\n" + " ".join(missing)
