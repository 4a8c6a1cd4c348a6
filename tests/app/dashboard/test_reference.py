"""The pinned run of a folder of runs: pinned by the verb or a page, drawn faintly, and named on cards and under the verdict."""

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.pages_open import Open, charts, plain, well

from ratioscope.app.cli import main
from ratioscope.errors import ConfigError
from ratioscope.ingest.files.reference_file import REFERENCE_FILE, Pinned, pin, pinned, pinned_above, unpin
from ratioscope.ingest.run import open_run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a stale and a healthy run."""
    for name in ("stale", "healthy"):
        made(tmp_path / "runs", name)
    return tmp_path / "runs"


def cards(app: AppTest) -> str:
    return "".join(element.proto.body for element in app.html)


def test_the_pinned_run_is_on_every_chart_every_card_and_under_the_verdict(
    opened: Open, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "your pinned run" not in cards(opened("overview", project, run="stale"))
    assert main(["baseline", "pin", str(project / "healthy")]) == 0
    app = opened("overview", project, run="stale")
    kl = {name: open_run(project / name).metrics(by=())["mismatch/kl_k3"][0] for name in ("stale", "healthy")}
    times = f"{kl['stale'] / kl['healthy']:.2g}"
    assert f"{times} times your pinned run healthy" in plain(app) and "times your pinned run healthy" in cards(app)
    now = re.search(r"K3 now [^·]* times your pinned run healthy ·", plain(app))
    assert now is not None
    for verb in ("info", "diagnose"):
        assert main([verb, str(project / "stale")]) == 0
        assert now[0] in capsys.readouterr().out
    courses = [chart for chart in charts(app) if '"pinned run healthy"' in chart]
    assert len(courses) == 5 and all('"dash"' in chart for chart in courses)
    assert all('"pinned run healthy"' in chart for chart in charts(opened("charts", project, run="stale"))[:-1])
    assert "pinned run healthy" in "".join(charts(opened("where", project, run="stale")))
    beyond = next(chart for chart in charts(opened("distributions", project, run="stale")) if "Share beyond" in chart)
    assert '"pinned run healthy"' in beyond and "pinned run healthy:" in beyond and '"dash"' in beyond
    app.selectbox(key="baseline").set_value("no baseline").run()
    assert "your pinned run" not in plain(well(app)) + cards(app)
    assert "times your pinned run healthy" in cards(
        opened("overview", project, run="stale", baseline="reference healthy")
    )
    assert "this is the pinned run" in plain(opened("overview", project, run="healthy"))


def test_a_run_is_pinned_and_unpinned_on_a_page(opened: Open, project: Path) -> None:
    app = opened("compare", project, run="healthy")
    well(app.button(key="pin_healthy").click().run())
    assert pinned(project) == Pinned("run", "healthy") and "healthy is the pinned run of" in plain(app)
    assert app.button(key="pin_healthy").label == "unpin healthy"
    well(app.button(key="pin_healthy").click().run())
    assert pinned(project) is None


def test_a_pinned_run_that_cannot_be_shown_is_said(opened: Open, project: Path) -> None:
    pin(project, Pinned("run", "gone"))
    app = opened("overview", project, run="stale")
    assert "the pinned run gone is no run in its folder" in plain(app) and ":red[" not in plain(app)
    assert f"ratioscope baseline unpin {project}" in plain(app)
    pin(project, Pinned("baseline", "never-saved"))
    assert "never\\-saved, which is not saved here" in plain(opened("overview", project, run="stale")).replace(
        "never-saved, ", "never\\-saved, "
    )
    (project / REFERENCE_FILE).write_text("{")
    assert "pins nothing" in plain(opened("overview", project, run="stale"))


def test_the_pinned_run_is_compared_though_the_run_alone_is_served(opened: Open, project: Path) -> None:
    assert main(["baseline", "pin", str(project / "healthy")]) == 0
    app = opened("overview", project / "stale")
    assert "times your pinned run healthy" in cards(app) and ":red[" not in plain(app)
    (project.parent / "moved").mkdir()
    (project / "healthy").rename(project.parent / "moved" / "healthy")
    (project / "healthy").symlink_to(project.parent / "moved" / "healthy")
    app = opened("overview", project / "stale")
    assert "your pinned run" not in cards(app) and "the pinned run healthy is no run in its folder" in plain(app)


def test_page_and_terminal_find_the_pin_of_the_project_above_the_folder_of_a_run(
    opened: Open, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "tonight").mkdir()
    (project / "stale").rename(project / "tonight" / "stale")
    pin(project, Pinned("run", "healthy"))
    monkeypatch.chdir(project / "tonight")
    for verb in ("info", "diagnose"):
        assert main([verb, "stale"]) == 0
        assert "times your pinned run healthy" in capsys.readouterr().out
    assert "times your pinned run healthy" in cards(opened("overview", project, run="tonight/stale"))


def test_a_pin_above_in_a_folder_that_anybody_may_write_chooses_nothing(project: Path) -> None:
    pin(project, Pinned("run", "healthy"))
    run = project / "tonight" / "run"
    run.mkdir(parents=True)
    assert pinned_above(run) == (Pinned("run", "healthy"), project)
    project.chmod(0o777)
    assert pinned_above(run) == (None, run.parent) and pinned_above(project / "stale")[1] == project


@pytest.mark.parametrize("name", ["/etc", "../other", "a/../../b", "", ".", "a//b"])
def test_a_pinned_run_never_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        pin(tmp_path, Pinned("run", name))
    (tmp_path / REFERENCE_FILE).write_text(json.dumps({"schema": "ratioscope-reference/1", "run": name}))
    with pytest.raises(ConfigError, match="pins nothing"):
        pinned(tmp_path)


def test_what_cannot_be_pinned_is_refused_with_the_reason(project: Path, tmp_path: Path) -> None:
    assert main(["baseline", "pin", str(project / "healthy"), "in", str(tmp_path / "elsewhere")]) != 0
    assert main(["baseline", "pin", "never-saved", "in", str(project)]) != 0 and pinned(project) is None
    with pytest.raises(ConfigError, match="wanted a folder with a pinned run"):
        unpin(project)
    assert main(["baseline", "pin", str(project / "healthy"), "in", str(tmp_path)]) == 0
    assert pinned(tmp_path) == Pinned("run", "runs/healthy") and main(["baseline", "unpin", str(tmp_path)]) == 0
