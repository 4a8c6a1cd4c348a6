"""The documentation is generated, current, and shows only what exists."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from support.paths import ROOT

import ratioscope
from ratioscope.app.cli import application
from ratioscope.collectors.trainers import ADAPTERS
from ratioscope.errors import RatioscopeError
from ratioscope.metrics.card import card, lines
from ratioscope.metrics.definitions.registry import METRICS
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.record import RECORD


def script(name: str) -> ModuleType:
    """A script of docs/, which is no package; it finds its neighbours by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        return importlib.import_module(name)


def test_the_generated_pages_are_current() -> None:
    for name, text in script("tables").pages().items():
        assert (ROOT / "docs" / name).read_text() == text, f"run `make docs`: docs/{name} is out of date"


def test_each_trainer_has_a_page_in_the_menu_that_says_what_a_run_may_lack() -> None:
    menu = (ROOT / "mkdocs.yml").read_text()
    for adapter in ADAPTERS:
        page = (ROOT / "docs" / "trainers" / f"{adapter.name}.md").read_text()
        assert f"          - {adapter.title}: trainers/{adapter.name}.md\n" in menu
        assert all(f"`{hook.module}.{hook.name}`" in page for hook in adapter.load().HOOKS)
        lacks = page.partition("## What a run may lack")[2].partition("\n## ")[0]
        assert lacks.count("\n* ") >= 2, adapter.name
        assert "%s" not in lacks, "a message as it is before its name is put in"


def test_the_condition_of_the_samplers_log_probs_is_the_one_that_the_recorder_names() -> None:
    """Its words in code, such as `use_vllm=True`, stand in the adapter's own message of absent log-probs."""
    compared = 0
    for adapter in ADAPTERS:
        assert adapter.rollout_by_default or adapter.rollout_setting, adapter.name
        folder = ROOT / "collectors" / "adapters" / adapter.name.replace("miles", "slime")
        text = "".join(re.sub(r'"\n\s+"', "", path.read_text()) for path in sorted(folder.glob("*.py")))
        if "NO_ROLLOUT = " in text:
            named = re.findall(r"`([^`]+)`", adapter.rollout_setting)
            assert not [name for name in named if name not in text and name.partition("=")[0] not in text], adapter.name
            compared += len(named)
    assert compared > 8


def test_the_picture_and_the_page_of_the_rooms_are_what_the_imports_give() -> None:
    for name, text in script("rooms").written().items():
        assert (ROOT / "docs" / name).read_text() == text, f"run `make docs`: docs/{name} is out of date"


def test_the_picture_of_the_whole_path_is_current() -> None:
    drawn = (ROOT / "docs" / "pictures" / "how_it_works.svg").read_text()
    assert drawn == script("how_it_works").picture(), "run `make docs`"


def test_floors_follow_from_imports_and_a_circle_has_none() -> None:
    floors = script("rooms").floors
    found = {"low": frozenset(), "high": frozenset({"low", "middle"}), "middle": frozenset({"low"})}
    assert floors(found) == [["high"], ["middle"], ["low"]]
    with pytest.raises(AssertionError, match="import each other"):
        floors({"a": frozenset({"b"}), "b": frozenset({"a"})})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: a link or an anchor that leads nowhere ends the build, but not with --quiet."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        build, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_the_site_has_every_page_and_all_links_and_anchors_of_it_lead_somewhere(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(site).with_suffix("") for page in site.rglob("*.html")}


@pytest.mark.slow
def test_the_old_address_of_a_page_for_developers_leads_to_the_new_one(site: Path) -> None:
    for name in ("architecture", "rooms", "recording", "scale", "performance", "dependencies", "release"):
        assert f"url=develop/{name}.html" in (site / f"{name}.html").read_text()
    assert 'href="develop/dashboard.html"' in (site / "dashboard.html").read_text(), "the user's page has that address"


@pytest.mark.slow
def test_a_page_of_the_site_loads_nothing_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:link|script|img|iframe)\b[^>]*?(?:href|src)=\"?((?:https?:)?//[^\" >]*)", page.read_text()
        )
        assert not loaded, page.name


def test_every_field_and_metric_is_documented() -> None:
    pages = script("tables").pages()
    assert all(f"`{field.name}`" in pages["record.md"] for field in RECORD)
    assert all(f"## {metric.name}\n" in pages["metrics.md"] for metric in METRICS)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_trainer_calls_a_metric_of_ours_exists(name: str) -> None:
    known = {f"{gap}/{metric.name}" for metric in METRICS for gap in metric.gaps}
    assert {full for full in dialect(name).CANONICAL.values() if full is not None} <= known
    assert set(dialect(name).NOTES) and dialect(name).VERSIONS


def test_a_card_is_found_with_or_without_its_gap_and_names_the_same_elsewhere() -> None:
    entry = card("mismatch/kl_k3")
    assert entry == card("kl_k3")
    assert {place.trainer for place in entry.elsewhere} >= {"verl", "nemo_rl"}
    assert any(heading == "formula" and "exp(x)" in text for heading, text in lines(entry))


def test_an_unknown_metric_offers_close_ones() -> None:
    with pytest.raises(RatioscopeError, match="kl_k3"):
        card("kl_k4")


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
IMPORTED = {"pyyaml": "yaml"}
"""Packages that are imported under another name."""
UNSEEN = {"orjson"}
"""Packages that another one imports where it finds them, see docs/develop/dependencies.md."""


def packages(requirements: Sequence[str]) -> set[str]:
    return {re.split(r"[\[<>=]", requirement)[0] for requirement in requirements}


def test_a_line_that_installs_ratioscope_does_so_from_a_checkout_and_names_extras_that_exist() -> None:
    """No index has it, and who needs an extra has all else installed: there its name is enough."""
    for page in (ROOT / "README.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")):
        text = page.read_text()
        assert not re.search(r"install (--\S+ )*'?ratioscope\b", text), page.name
        extras = {extra for found in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in found.split(",")}
        assert extras <= set(EXTRAS), page.name
    assert "pip install '.[dashboard]'" in (ROOT / "README.md").read_text()


def test_what_an_extra_installs_is_used_and_has_its_reason() -> None:
    named = {extra: packages(wanted) for extra, wanted in EXTRAS.items() if extra != "all"}
    code = "\n".join(
        file.read_text() for room in ("app", "metrics", "ingest", "collectors") for file in (ROOT / room).rglob("*.py")
    )
    for package in set().union(*named.values()) - UNSEEN:
        name = IMPORTED.get(package, package)
        assert re.search(rf"^\s*(import|from) {name}\b|import_module\(\"{name}\"\)", code, re.MULTILINE), package
    assert EXTRAS["all"] == [f"ratioscope[{','.join(named)}]"]
    rows = re.findall(
        r"^\| ([\w-]+) \| (?:base[^|]*|`\[(\w+)\]`) \|",
        (ROOT / "docs" / "develop" / "dependencies.md").read_text(),
        re.MULTILINE,
    )
    reasons = {extra: {package for package, of in rows if of == extra} for extra in named}
    assert reasons == named and {package for package, of in rows if not of} == packages(PROJECT["dependencies"])


ROOM_PAGES = sorted(ROOT.glob("[a-z]*/README.md"))
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "CHANGELOG.md",
    *ROOM_PAGES,
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "develop").glob("*.md")),
)
WRITTEN = [page for page in PAGES if page.stem not in ("metrics", "record", "trainers", "rooms", "reliability", "api")]
"""Pages that are written by hand."""
LOGGED = tuple(f"ratioscope/{name}" for name in ("mismatch/", "step", "severity", "worst_sequences", "run_state"))
"""Names in logs of a trainer or of W&B, which are no paths."""
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_the_links_and_pictures_of_the_pages_exist() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"


def named_code(page: Path) -> list[str]:
    """Dotted names of ours between backticks."""
    found = re.findall(r"`(ratioscope(?:\.\w+)+)(?:\([^`]*\))?`", page.read_text())
    no_code = ("ratioscope.schema", "ratioscope.writer", "ratioscope.toml")  # keys of a file's footer, and a file
    return [name for name in found if name not in no_code]


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_name_file_and_verb_that_a_page_mentions_exists(page: Path) -> None:
    text = page.read_text()
    for name in named_code(page):
        assert pkgutil.resolve_name(name) is not None
    rooms = "app|metrics|ingest|collectors|ratioscope|tests|benchmarks|docs|sample_data"
    for path in re.findall(rf"`((?:{rooms})/[\w./-]*)`", text):
        assert (ROOT / path).exists() or path.startswith(LOGGED), path
    typed = application()
    verbs = {verb.name for verb in typed.registered_commands} | {verb.name for verb in typed.registered_groups}
    for verb in re.findall(r"(?:`|^ {4}|\$ )ratioscope (\w+)", text, re.MULTILINE):
        assert verb in verbs, verb


def unknown_options(text: str) -> list[str]:
    """Options behind a verb of ours, on its line or between its backticks, that the verb does not have."""
    verbs: dict[str, Any] = dict(typer.main.get_command(application()).commands)  # type: ignore[attr-defined]
    found: list[str] = []
    for verb, rest in re.findall(r"ratioscope ([a-z]+)((?: [^\n`|]*)?)", text):
        known, words = verbs.get(verb), re.split(r" -- |  +#", rest)[0]
        for word in words.split()[:1]:
            known = getattr(known, "commands", {}).get(word, known)  # `wandb sync`
        if known is None or hasattr(known, "commands"):
            continue
        has = {option for each in known.params for option in (*each.opts, *each.secondary_opts)}
        found += [f"{verb} {option}" for option in re.findall(r"(?<!\S)--?[a-z][\w-]*", words) if option not in has]
    return [option for option in found if not option.endswith(" --help")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_option_that_a_page_shows_exists(page: Path) -> None:
    assert not unknown_options(page.read_text())


def test_an_option_that_a_verb_lacks_is_found() -> None:
    text = "`ratioscope info RUN --pages` and `ratioscope wandb sync RUN --offline`; ratioscope run --out A -- x --y"
    assert unknown_options(text) == ["info --pages"]


@pytest.mark.parametrize("page", ROOM_PAGES, ids=lambda page: page.parent.name)
def test_the_page_of_a_room_is_short_and_names_every_folder_in_it(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 16
    folders = {path.parent.name for path in page.parent.glob("*/__init__.py")}
    assert not [folder for folder in folders if f"`{folder}" not in text.replace("/`", "`")]


WAYS = {
    "metrics": (
        "Add a metric",
        "Change what the verdict says",
        "Change the threshold of an alert",
        "Add a cause",
        "Add a dialect",
    ),
    "ingest": ("Add an importer", "Where results are cached", "Where a run is called live, silent or dead"),
    "collectors": (
        "Add an adapter",
        "Why the trainer does not wait",
        "What each step writes",
        "Where a step is dropped and counted",
        "Why a token is masked out",
    ),
    "app": ("Which file decides a colour", "How often a page looks for new steps"),
}
"""Questions of a newcomer, each answered on the page of one room: CONTRIBUTING.md leads to the page, the page to the code."""


@pytest.mark.parametrize("room", WAYS)
def test_a_newcomer_opens_two_pages_on_the_way_to_the_code(room: str) -> None:
    assert f"`{room}/README.md`" in (ROOT / "CONTRIBUTING.md").read_text()
    answers = dict(re.findall(r"^- \*\*(.*?):\*\* (.*)$", (ROOT / room / "README.md").read_text(), re.MULTILINE))
    for question in WAYS[room]:
        named = re.findall(r"`([\w/]+\.py)`", answers[question])
        assert named and all(_is_there(file, room) for file in named), question


@pytest.mark.parametrize("page", ROOM_PAGES, ids=lambda page: page.parent.name)
def test_each_file_that_the_page_of_a_room_names_is_there(page: Path) -> None:
    named = re.findall(r"`([\w/]+\.py)`", page.read_text())
    known = [file for file in named if not re.search(r"\b[A-Z]+\.py$", file)]  # NAME.py stands for any
    assert known and not [file for file in known if not _is_there(file, page.parent.name)]


def _is_there(file: str, room: str) -> bool:
    """True if the repository has the file by its path, or the room or the tests have one whose path ends so."""
    return (ROOT / file).exists() or any(any((ROOT / folder).rglob(file)) for folder in (room, "tests"))


def test_the_glossary_names_the_code_of_every_term() -> None:
    page = ROOT / "docs" / "glossary.md"
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")]
    terms = [row for row in rows if not row.startswith(("| ---", "| term"))]
    assert len(terms) > 30 and all(re.search(r"`ratioscope\.[\w.]+` \|$", row) for row in terms)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_of_a_page_begins_with_of_where_or_what(page: Path) -> None:
    """Such sentences keep their subject for last. A question may begin so, and a heading is no sentence."""
    text = re.sub(r"^(#|    ).*$", "", FENCED.sub("", page.read_text()), flags=re.MULTILINE)
    sentences = re.findall(r"(?:^|[.!:] |\| |\* |\n)((?:Of|Where|What) \w[^.?|]*.)", text)
    assert not [sentence for sentence in sentences if not sentence.endswith("?")]


APART = re.compile(r"[\d⁰-⁹] %(?![\w({])")
"""A percent sign that stands apart from its number; a sign before a letter is a format, such as %d."""


def test_a_percent_sign_stands_at_its_number_in_all_texts() -> None:
    found = [path for path in PAGES if APART.search(path.read_text())]
    sources = [path for room in ("app", "metrics", "ingest", "collectors") for path in (ROOT / room).rglob("*.py")]
    assert not found + [path for path in sources if any(APART.search(text) for text in _texts(path))]


def _texts(path: Path) -> Iterator[str]:
    """The constant texts of a file; in a formatted one 0 stands in place of each value."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"0{node.value}"  # a value may stand before it: 12 + " %"


@pytest.mark.slow
def test_the_gallery_shows_every_picture_and_the_site_its_dark_twin(site: Path) -> None:
    pictures = {path.name for path in (ROOT / "docs" / "gallery").glob("*.png")}
    on_page = set(re.findall(r"\(gallery/([\w-]+\.png)\)", (ROOT / "docs" / "gallery.md").read_text()))
    assert on_page == {name for name in pictures if not name.endswith("-dark.png")}
    on_site = set(re.findall(r"gallery/([\w-]+\.png)", (site / "gallery.html").read_text()))
    assert on_site == pictures


BESIDE = {"ratioscope.collectors.attach.Attachment", "ratioscope.collectors.watching.recording.AttachOptions"}
"""What `attach` returns and takes: no name to import, and worth a section of the page."""


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"^\| `(ratioscope\.\S+)` \| \S.*\.[\")]* \|$", page, re.MULTILINE))
    assert set(re.findall(r"^::: (\S+)$", script("site_pages").with_signatures(page), re.MULTILINE)) == documented
    assert ":::" not in page and "| `Run.diagnose` |" in page
    names = {
        f"ratioscope.{name}"
        for name in ratioscope.__all__
        if name not in ("__version__", "figures", "metrics", "weights")
    }
    names.add("ratioscope.weights.digests")
    names |= {f"ratioscope.metrics.{name}" for name in ratioscope.metrics.__all__}
    names |= {
        f"ratioscope.figures.{name}" for name, value in vars(ratioscope.figures).items() if is_public(name, value)
    }
    assert documented - BESIDE == names


def test_lines_of_arguments_in_a_docstring_become_a_list_and_prose_stays() -> None:
    with_lists = script("argument_lists").with_lists
    text = "Makes it.\n\nrank: of this process,\nelse 0.\nlow, high: ends.\n\nIt is fast: 3 ms."
    assert with_lists(text) == (
        "Makes it.\n\n* `rank`: of this process,\n  else 0.\n* `low`, `high`: ends.\n\nIt is fast: 3 ms."
    )


def is_public(name: str, value: object) -> bool:
    """True for a function or class that a package offers, and not for its modules."""
    return not name.startswith("_") and callable(value)


def test_the_changelog_is_by_version_and_begins_with_the_version_of_the_program() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    versions = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d|unreleased)", heading) for heading in headings]
    assert all(versions) and versions[0] is not None and versions[0][1] == ratioscope.__version__
    groups = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert groups <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_stated_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ratioscope.version.__version__"}
    stated = [
        path for path in (ROOT / "ratioscope").glob("*.py") if re.search(r'^__version__ = "', path.read_text(), re.M)
    ]
    assert [path.name for path in stated] == ["version.py"]
