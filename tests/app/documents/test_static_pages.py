"""The pages of a run as files: what is in them, what is left out, and what they replace."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.edge_runs import made
from support.hostile import HOSTILE
from support.one_value import FACTS, values_of
from support.real_runs import records
from support.recorded import recorded
from support.run_folders import by_step
from support.site import material_of

from ratioscope.app import cli
from ratioscope.app.browser.policy import digest_source, inline_scripts
from ratioscope.app.documents.document import FIRST, PATHS, file_name, files, folder_of, one_file
from ratioscope.app.documents.material import Material, material
from ratioscope.app.export import site_folder
from ratioscope.app.pages.pages import TOPICS
from ratioscope.app.pages.scorecard import value_of
from ratioscope.errors import ConfigError
from ratioscope.ingest.run import open_run

SECRET = "hf_abcdefghijklmnopqrst"
TEXT = "a very private answer"


@pytest.fixture(scope="module")
def stale(runs: Path) -> Material:
    return material_of(runs, "stale")


@pytest.fixture(scope="module")
def pages(stale: Material) -> dict[str, str]:
    return files(stale)


def test_there_is_a_file_for_each_page_and_each_leads_to_all(pages: dict[str, str]) -> None:
    assert set(pages) == {FIRST, *(f"{path}.html" for path in PATHS - {"overview"})}
    for text in pages.values():
        head, *tabs = (
            re.findall(r'href="([^"]+)"( aria-current="\w+")?', nav) for nav in re.findall(r"<nav.*?</nav>", text)
        )
        assert len(head) == len(TOPICS) - 1, "no topic is left out but Runs, of which a run that stands alone has none"
        reached = {name for nav in (head, *tabs) for name, _ in nav}
        assert reached == {FIRST, "why.html", "fix.html", "charts.html", "samples.html", "record.html"} | {
            name for name, _ in (tabs[0] if tabs else ())
        }
        assert [sum(bool(here) for _, here in nav) for nav in (head, *tabs)] == [1, *(1 for _ in tabs)]
    assert {name for text in pages.values() for name in re.findall(r'href="([^"]+\.html)"', text)} == set(pages)


def test_a_slice_of_one_value_is_a_sentence_as_on_the_live_page(pages: dict[str, str], runs: Path) -> None:
    healthy = files(material_of(runs, "healthy"))["where.html"]
    assert "By version lag: nothing to compare, every token has 0." in unescape(healthy)
    assert 'data-figure="slice_lag"' not in healthy and 'data-figure="slice_position"' in healthy
    assert 'data-figure="slice_lag"' in pages["where.html"] and "nothing to compare" not in pages["where.html"]


def test_equal_runs_give_equal_bytes(pages: dict[str, str], stale: Material) -> None:
    again = material(open_run(stale.run.path))
    assert files(again) == pages and one_file(again) == one_file(stale)


def test_the_policy_allows_the_scripts_of_the_page_and_no_other(pages: dict[str, str], stale: Material) -> None:
    for text in (*pages.values(), one_file(stale)):
        policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0]
        wanted = [digest_source(script) for script in inline_scripts(text) if not script.startswith("{")]
        assert re.findall(r"'sha256-[^']*'", policy) == wanted
        assert policy.startswith("default-src 'none'") and "unsafe-eval" not in policy
        assert not re.findall(
            r'(?:src|href)="(?!#|data:image/svg|[a-z]+\.html)[^"]*"',
            text.partition("<body>")[2].partition("<script>")[0],
        )


def test_a_fact_has_one_value_in_pages_report_and_terminal(
    pages: dict[str, str], stale: Material, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {name: _plain(text) for name, text in pages.items()}
    path = str(stale.run.path)
    for verb in ("info", "diagnose"):
        assert cli.main([verb, path]) == 0
        told[verb] = capsys.readouterr().out
    assert cli.main(["report", path, "-o", str(tmp_path / "report.md")]) == 0
    told["report"] = (tmp_path / "report.md").read_text()
    for fact, pattern in FACTS.items():
        found = values_of(pattern, told)
        assert len(found) >= 3, (fact, found)
        assert len(set().union(*found.values())) == 1, (fact, found)


def test_a_page_with_another_share_than_the_diagnosis_says_why(pages: dict[str, str]) -> None:
    explained = "it reads at most 12 steps, the worst ones among them, and compares tokens of equal probability"
    assert explained in _plain(pages["staleness.html"])
    assert re.search(r"At the \d+ steps read, the gap is", _plain(pages["why.html"]))


def _plain(page: str) -> str:
    """The words of a page, without scripts, styles and tags."""
    body = re.sub(r"<(script|style).*?</\1>", "", page.partition("<body")[2], flags=re.DOTALL)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def test_the_pages_say_what_the_dashboard_says(pages: dict[str, str], stale: Material) -> None:
    title = stale.head.title
    assert title.split("'")[0] in pages[FIRST]
    size = next(score for score in stale.scores if (score.gap, score.name) == (stale.gap, "kl_k3"))
    assert value_of(size) in _plain(pages["staleness.html"]), "the error is that of every other page"
    assert "of the KL in" in pages["where.html"] and "explained by lag" in pages["staleness.html"]
    assert f"{len(stale.view.events_and_alerts().alerts)} alerts" in pages["alerts.html"]
    assert stale.reproduction.digest[:12] in pages["record.html"]


def test_hostile_text_stays_text(runs: Path) -> None:
    text = one_file(material_of(runs, "hostile"))
    found = Tags()
    found.feed(text)
    assert not {tag for tag, _ in found.tags} & {"iframe", "object", "embed", "form", "base", "link"}
    assert [tag for tag, _ in found.tags].count("script") == 5
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith("#")
        assert (attributes.get("src") or "data:image/svg").startswith("data:image/svg")
    assert HOSTILE[0] not in text


class Tags(HTMLParser):
    """Every tag of a page, with its attributes, as a browser reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "private"
    lengths = [len(row or ()) for row in by_step(records("trl_vllm_stale4"))[0]["rollout_logprobs"].to_pylist()]
    recorded(
        "trl_vllm_stale4", folder, steps=1, name="/home/ann/secret-run", token_texts=[[TEXT] * size for size in lengths],
        prompt_texts=[f"{TEXT} {SECRET}"] * len(lengths),
    )  # fmt: skip
    return folder


def test_no_secret_and_no_home_folder_leaves_and_no_text_with_no_text(private: Path) -> None:
    with_text, without = (one_file(material(open_run(private), text=text)) for text in (True, False))
    assert TEXT in with_text and TEXT not in without
    for text in (with_text, without):
        assert "/home/ann" not in text and str(private) not in text
    assert "Texts were left out (--no-text)" in without


def test_a_bundle_replaces_a_bundle_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    site_folder.write_folder(folder, {"index.html": "one", "old.html": "old"}.items())
    site_folder.write_folder(folder, {"index.html": "two"}.items())
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", site_folder.MARK]
    assert (folder / "index.html").read_text() == "two"
    assert folder.stat().st_mode & 0o777 == 0o700 and (folder / "index.html").stat().st_mode & 0o777 == 0o600
    (folder / "CNAME").write_text("mine")
    with pytest.raises(ConfigError, match="files that no bundle wrote, such as CNAME"):
        site_folder.write_folder(folder, {"index.html": "three"}.items())
    assert (folder / "index.html").read_text() == "two" and [path.name for path in tmp_path.iterdir()] == ["pages"]


def test_a_folder_of_somebody_else_a_link_and_a_run_are_refused(tmp_path: Path, private: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "index.html").write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(mine)
    for place in (mine, link, private, private / "pages", mine / "index.html"):
        with pytest.raises(ConfigError):
            site_folder.write_folder(place, {"index.html": "x"}.items())
    assert (mine / "index.html").read_text() == "mine" and not (private / "pages").exists()


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    site_folder.write_folder(tmp_path / "pages", {"index.html": "x"}.items())
    assert (tmp_path / "pages" / "index.html").read_text() == "x"


def test_nothing_is_left_of_a_folder_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted a folder"):
        site_folder.write_folder(tmp_path / "no" / "such" / "pages", {"index.html": "x"}.items())
    site_folder.write_folder(tmp_path / "pages", {"index.html": "old"}.items())
    with pytest.raises(UnicodeEncodeError):
        site_folder.write_folder(tmp_path / "pages", {"index.html": "new", "second.html": "\ud800"}.items())
    assert (tmp_path / "pages" / "index.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["pages"]


def test_the_form_of_the_output_selects_pages_or_the_zip_file(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(private)
    assert cli.main(["bundle", run]) == 0 and (tmp_path / "private.bundle.zip").read_bytes()[:2] == b"PK"
    assert cli.main(["bundle", run, "-o", "one.html", "--no-text"]) == 0
    assert TEXT not in (tmp_path / "one.html").read_text() and (tmp_path / "one.html").stat().st_mode & 0o777 == 0o600
    assert cli.main(["bundle", run, "-o", "pages"]) == 0 and (tmp_path / "pages" / FIRST).is_file()
    capsys.readouterr()
    assert cli.main(["bundle", run, "-o", "pages", "--sequences", "3"]) == 2
    assert "only a zip file takes it" in capsys.readouterr().err
    written = []
    for number, words in enumerate((["-o", "{}", "--no-text"], ["--no-text", "{}"], ["{}", "--no-text"], ["-o", "{}"])):
        assert cli.main(["bundle", run, *(word.format(f"{number}.zip") for word in words)]) == 0
        written.append(Path(f"{number}.zip").read_bytes())
    assert len(set(written)) == 1


def test_several_runs_are_listed_worst_first_and_lead_to_their_files(runs: Path, stale: Material) -> None:
    found = [material_of(runs, name) for name in ("empty", "healthy", "one_token", "hostile")]
    content = dict(folder_of([*found, stale]))
    start = content.pop(FIRST)
    rows = re.findall(r"<tr><td.*?</tr>", start)
    verdicts = [re.findall(r'class="word ([a-z ]+)"', row)[0] for row in rows]
    assert verdicts == ["act", "not measured", "healthy", "healthy", "healthy"]
    assert ">ended</td>" in rows[0], "the state of each run, as it is when the file is written"
    files = [re.findall(r'href="([^"]*)"', row)[0] for row in rows]
    assert sorted(files) == sorted(content) and files[0] == "stale.html" and len(set(files)) == 5
    assert "not available, because" in rows[1] and stale.head.title[1:10] in rows[0]
    assert HOSTILE[0] not in start and "<img" not in start
    assert all('<a href="index.html" title="key: g r">' in text for text in content.values())
    compared = _plain(content["stale.html"])
    assert "A: stale" in compared and "B: " in compared and "Pair by pair" not in compared and "compare" not in PATHS


def test_runs_of_one_name_have_a_file_each(stale: Material) -> None:
    assert [name for name, _ in folder_of([stale, stale, stale])] == [
        "stale.html",
        "stale-2.html",
        "stale-3.html",
        FIRST,
    ]
    assert file_name("Index", {FIRST}) == "index-2.html" and len(file_name("x" * 500, set())) < 80


def test_the_small_courses_of_all_runs_have_one_scale(runs: Path, stale: Material) -> None:
    healthy = material_of(runs, "healthy")
    start = dict(folder_of([healthy, stale]))[FIRST]
    high, low = (
        [float(y) for y in re.findall(r"[ML]\S+ (\S+?)(?=[LMh]|$)", course)]
        for course in re.findall(r'class="spark".*? d="([^"]*)"', start)
    )
    assert max(low) < 26 and sum(low) / len(low) > sum(high) / len(high) + 2  # y grows downwards


def test_a_bundle_of_a_folder_of_runs_is_a_folder_with_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one_token", "empty"):
        made(tmp_path / "runs", name)
    tree, pages = str(tmp_path / "runs"), tmp_path / "pages"
    assert cli.main(["bundle", tree, f"{tree}/empty", "-o", str(pages)]) == 0
    assert {path.name for path in pages.iterdir()} == {FIRST, "one_token.html", "empty.html", site_folder.MARK}
    assert "2 runs" in capsys.readouterr().out
    for ending in (".html", ".zip"):
        assert cli.main(["bundle", tree, "-o", f"{tmp_path / 'x'}{ending}"]) == 2
        assert "one file holds one run, and 2 runs were named" in capsys.readouterr().err
    (tmp_path / "no").mkdir()
    assert cli.main(["bundle", tree, str(tmp_path / "no"), "-o", str(tmp_path / "new")]) == 3
    assert "nothing has been recorded in it yet" in capsys.readouterr().err and not (tmp_path / "new").exists()
