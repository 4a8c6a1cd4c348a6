"""The report: three twins of one set of numbers, in one file that loads, sends and runs nothing it did not bring."""

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from markdown_it import MarkdownIt
from support.edge_runs import made
from support.hostile import HOSTILE
from support.hostile_report import hostile as hostile
from support.real_runs import records
from support.recorded import recorded
from support.run_folders import FakeWriter, only, write_run_file
from support.site import charts_in

from ratioscope import open_run
from ratioscope.app import figures
from ratioscope.app.documents import drawings
from ratioscope.app.documents import json as json_twin
from ratioscope.app.documents.json import json_report
from ratioscope.app.documents.material import Material, material
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.pages.gap_slices import slices_of_gap
from ratioscope.app.pages.timeline import POINTS
from ratioscope.app.presentation.cause_facts import settings_of
from ratioscope.app.presentation.digits import plus_minus
from ratioscope.app.presentation.escape import visible
from ratioscope.app.presentation.json_values import jsonable
from ratioscope.app.presentation.metric_places import GROUPS
from ratioscope.app.presentation.theme import DARK, LIGHT
from ratioscope.ingest.analysis.diagnosis import diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS
from ratioscope.metrics.grading.limits import limits_of

RENDERERS = (html_report, markdown_report, json_report)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded("trl_vllm_stale4", tmp_path_factory.mktemp("runs") / "stale")


@pytest.fixture(scope="module")
def data(folder: Path) -> Material:
    return material(open_run(folder), options=("-o", "stale.html"))


@pytest.fixture(scope="module")
def html(data: Material) -> str:
    return html_report(data)


@pytest.fixture(scope="module")
def live(data: Material) -> str:
    return html_report(data, interactive=True)


@pytest.fixture(scope="module")
def twin(data: Material) -> dict[str, Any]:
    parsed = json.loads(json_report(data))
    assert isinstance(parsed, dict)
    return parsed


class Page(HTMLParser):
    """A document's tags with attributes, its text outside scripts and styles, and the contents of those."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag if tag in self.inside else self._open

    def handle_endtag(self, tag: str) -> None:
        self._open = "" if tag == self._open else self._open

    def handle_data(self, data: str) -> None:
        (self.inside[self._open] if self._open else self.texts).append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


@pytest.mark.parametrize("kind", ["html", "live"])
def test_the_file_refers_to_nothing_outside_itself(kind: str, request: pytest.FixtureRequest) -> None:
    page = Page(request.getfixturevalue(kind))
    assert not {tag for tag, _ in page.tags} & {
        "link",
        "iframe",
        "img",
        "object",
        "embed",
        "base",
        "form",
        "video",
        "audio",
    }
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "action", "background", "ping", "data", "poster"} & set(attributes), tag
        own = "data:image/png;base64," if tag == "image" else "#"
        assert attributes.get("href", own).startswith(own), attributes  # type: ignore[union-attr]
        assert not [name for name in attributes if name.startswith("on")]
    style = re.sub(r"url\(\"?data:font/woff2;base64,[A-Za-z0-9+/=]+\"?\)", "", "".join(page.inside["style"]))
    assert "@import" not in style and "url(" not in style and "//" not in style
    assert not re.search(r"(https?:)?//", page.text)


def policy_of(page: Page) -> str:
    return next(
        a["content"] or "" for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )


def test_the_policy_allows_one_style_and_no_script(html: str) -> None:
    page = Page(html)
    digest = base64.b64encode(hashlib.sha256("".join(page.inside["style"]).encode()).digest()).decode()
    assert policy_of(page) == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )
    assert not any(tag == "script" for tag, _ in page.tags)
    assert not any("style" in attributes for _, attributes in page.tags)


def test_the_policy_allows_these_scripts_and_nothing_else(live: str) -> None:
    page = Page(live)
    policy = policy_of(page)
    assert policy.startswith("default-src 'none'")
    assert "'unsafe-eval'" not in policy and "http" not in policy
    data_block, *scripts = page.inside["script"]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts}
    directive = next(part for part in policy.split(";") if part.strip().startswith("script-src"))
    assert set(directive.split()[1:]) == hashes
    assert json.loads(data_block)


def test_plotly_is_embedded_once_and_only_on_request(html: str, live: str) -> None:
    assert live.count("* plotly.js (cartesian - minified) v") == 1
    assert "plotly" not in html.lower() and len(html) < len(live) / 3


def themed(drawing: dict[str, Any], theme: str) -> Any:
    """The figure as the page's script puts it together."""

    def merged(before: Any, changes: Any) -> Any:
        if not isinstance(changes, dict):
            return changes
        after = dict(before) if isinstance(before, dict) else list(before)
        for key, change in changes.items():
            place = key if isinstance(after, dict) else int(key)
            after[place] = merged(before[place], change)
        return after

    return merged(drawing["light"], drawing["dark"]) if theme == "dark" else drawing["light"]


def test_the_figures_are_the_dashboards(html: str, live: str, folder: Path) -> None:
    embedded = json.loads(Page(live).inside["script"][0])
    run = open_run(folder)
    metric = BY_NAME["kl_k3"]
    for theme in (LIGHT, DARK):
        drawn = figures.metric_over_steps(
            run.metrics(),
            metric,
            "mismatch",
            limits=limits_of(metric, "mismatch"),
            events=run.events,
            theme=theme,
            points=POINTS,
        )
        assert themed(embedded["mismatch-kl_k3"], theme.name) == json.loads(drawn.to_json(engine="json") or "")
    assert {"severity", "heat-token", "weights-token", "survival-sequence", "drift-ppo_kl"} <= set(embedded)
    for document in (html, live):
        assert {a.get("data-figure") for _, a in Page(document).tags} - {None} == set(embedded)


def test_the_dark_figures_are_the_light_ones_and_what_differs(data: Material) -> None:
    for name, chart in charts_in(data).items():
        light, dark = (json.loads(chart.figure(theme).to_json(engine="json") or "") for theme in (LIGHT, DARK))
        assert themed({"light": light, "dark": drawings.difference(light, dark)}, "dark") == dark, name
        assert light != dark


def test_the_three_twins_say_the_same_numbers(data: Material, html: str, twin: dict[str, Any], folder: Path) -> None:
    run = open_run(folder)
    whole = run.metrics(by=()).row(0, named=True)
    scores = {(score["gap"], score["name"]): score for score in twin["scores"]}
    assert {f"{gap}/{name}" for gap, name in scores} == {
        f"{g}/{m.name}" for g in run.gaps for m in METRICS if g in m.gaps
    }
    for (gap, name), score in scores.items():
        assert score["value"] == whole[f"{gap}/{name}"]
        assert score["value"] is not None or score["absent"].startswith("because ")
    shown = plus_minus(whole["mismatch/kl_k3"], whole["mismatch/kl_k3_se"])
    assert shown in Page(html).text and shown in markdown_report(data)
    assert twin["steps"]["mismatch/kl_k3"] == run.metrics()["mismatch/kl_k3"].to_list()
    tokens = twin["distributions"][0]
    assert sum(tokens["by_step"]["count"]) == sum(tokens["whole_run"]["count"]) == whole["mismatch/tokens"]


def test_the_verdict_comes_first_in_all_of_them(data: Material, html: str, twin: dict[str, Any]) -> None:
    text = Page(html).text
    for words in (data.verdict.title, data.verdict.evidence, data.verdict.meaning, data.verdict.remedy, "step 4"):
        assert words in text
        assert visible(words) in markdown_report(data).replace("\\", "")
    head = data.head
    markdown = markdown_report(data)
    assert markdown.startswith(f"# ■ act: {head.title}\n\n- **size of the gap**: K3 now ")
    assert "- **when**: since step 4" in markdown.partition("##")[0]
    assert head.title.startswith("The sampler's weights are older than the trainer's")
    assert twin["head"] == {"severity": "act", "title": head.title, "facts": dict(head.facts)}
    assert list(twin)[:2] == ["schema", "head"]
    assert [label for label, _ in head.facts] == [
        "size of the gap", "when", "likely cause", "proof", "cost", "do in trl", "meanwhile", "next", "noise floor", "ruled out",
    ]  # fmt: skip
    assert (
        text.index(head.title) < text.index("every other metric of")
        and "high confidence" in dict(head.facts)["likely cause"]
    )
    cost = "8 of 12 steps are out of bounds, the first is 4; 6 are graded act. "
    assert dict(head.facts)["cost"] == cost + "The weights trained since then have learnt from them."
    for _, fact in head.facts:
        assert fact in text and visible(fact) in markdown.replace("\\", "")
    assert twin["verdict"]["severity"] == "act" and twin["verdict"]["since_step"] == 4
    assert twin["graded"] == {"healthy": 4, "watch": 2, "act": 6}


def test_a_checkpoint_is_named_only_if_the_record_has_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(folder)
    saved = pl.DataFrame({"step": [2, 3, 4], "event": ["weight_sync", "Checkpoint saved", "checkpoint"]})
    events = pl.concat([run.events, saved], how="diagonal_relaxed")
    monkeypatch.setattr(type(run), "events", property(lambda own: events))
    assert dict(material(run).head.facts)["cost"].endswith(" The last checkpoint on record before them is of step 3.")


def test_the_diagnosis_is_in_all_of_them(data: Material, html: str, twin: dict[str, Any], folder: Path) -> None:
    result = diagnosis_of(open_run(folder))
    found = result.diagnosis
    for document in (Page(html).text, markdown_report(data).replace("\\", "")):
        for item in found.likely:
            for words in (item.title[1:], item.proof, item.cause.remedy, item.cause.confirm):
                assert visible(words) in document
        others = [item.cause for item in found.excluded] + [item.cause for item in found.cannot_tell]
        assert all(cause.title[1:] in document for cause in others)
        assert "ruled out" in document and "do in trl" in document
    assert twin["diagnosis"]["answer"] == found.answer
    assert {name: twin["diagnosis"][name] for name in plain_diagnosis(result)} == jsonable(plain_diagnosis(result))


def test_what_is_not_available_says_why(data: Material, html: str) -> None:
    for document in (Page(html).text, markdown_report(data).replace("\\", "")):
        assert "not available, because the entropy of the later policy" in document
        assert "because engine replicas were not recorded" in document


def test_the_worst_sequences_are_those_with_the_largest_log_ratio(data: Material, folder: Path) -> None:
    everything = open_run(folder).sequences().sort("mismatch/max_abs_log_ratio", descending=True)
    worst = [item.facts["max_abs_log_ratio"] for item in data.worst]
    assert worst == everything["mismatch/max_abs_log_ratio"].head(10).to_list()


def test_lags_stand_in_their_order_with_all_their_tokens(data: Material) -> None:
    lag = next(place for place in data.view.of(slices_of_gap, data.gap) if place.slice == "lag")
    assert lag.frame is not None
    assert lag.frame["lag"].to_list() == ["0", "2", "4", "6"]
    assert lag.frame["mismatch/tokens"].sum() == 6488


def test_equal_inputs_give_equal_bytes(folder: Path, tmp_path: Path) -> None:
    paths = [f"x.{ending}" for ending in ("html", "md", "json")]
    code = f"from ratioscope.app.cli import main; print([main(['report', {str(folder)!r}, '-o', p]) for p in {paths}])"
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path / seed, env=environment
        )
    for path in paths:
        assert (tmp_path / "1" / path).read_bytes() == (tmp_path / "2" / path).read_bytes()


def test_without_text_no_text_is_in_any_of_them(tmp_path: Path) -> None:
    folder = recorded("lcpp_q4_1", tmp_path / "run", steps=1, prompt_texts=["a secret prompt"] * 32)
    run = open_run(folder)
    with_text, without = material(run), material(run, text=False)
    word = next(text for item in with_text.worst for text in item.tokens["token_text"] if len(text) > 5)
    for render in RENDERERS:
        assert "a secret prompt" in render(with_text) or render is markdown_report
        assert word in render(with_text)
        assert "a secret prompt" not in render(without) and word not in render(without).replace("plotly", "")
    assert "Texts were left out" in html_report(without)


def test_no_secret_and_no_home_folder_is_in_any_of_them(data: Material) -> None:
    for render in RENDERERS:
        document = render(data)
        assert "hf_abcdef" not in document and "/home/ann" not in document
    assert data.reproduction.config["learning_rate"] == 2e-5


def test_the_reproduction_names_version_digest_command_and_thresholds(data: Material, html: str, folder: Path) -> None:
    text = Page(html).text
    assert "ratioscope report stale -o stale.html" in text
    assert open_run(folder).digest in text
    assert "kl_k3_over_floor" in text and "convention: 3 times the floor watch" in text


def test_the_command_of_the_reproduction_runs_and_makes_the_same_report(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Path(shutil.copytree(made(runs, "one_step"), tmp_path / "- a run's"))
    monkeypatch.chdir(odd)
    run = open_run(Path())
    assert material(run).reproduction.command.endswith("-o report.html")
    data = material(run, options=("-o", "own.json"))
    name, *arguments = shlex.split(data.reproduction.command)
    assert name == "ratioscope"
    subprocess.run([sys.executable, "-m", "ratioscope", *arguments], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "own.json").read_text() == json_report(data)


def test_every_metric_has_its_meaning_and_every_link_its_target(html: str) -> None:
    page = Page(html)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    tips = {str(attributes["title"]) for tag, attributes in page.tags if tag == "code" and "title" in attributes}
    shown = [metric for metric in METRICS if metric.is_of("mismatch") and metric not in GROUPS["gradient"]]
    assert {metric.meaning for metric in shown} <= tips, "all but those of the advantages, which the run has not"
    assert BY_NAME["mean_weight_token"].formula in page.text, "no name of a metric is taken for a secret"
    links = {str(attributes["href"])[1:] for tag, attributes in page.tags if tag == "a"}
    assert links <= set(ids)


def test_the_documented_members_are_those_of_the_json_twin(twin: dict[str, Any]) -> None:
    documented = re.findall(r"^    ([a-z_, ]+?)  +\S", json_twin.__doc__ or "", re.MULTILINE)
    named = {name.strip() for line in documented for name in line.split(",")} - {""}
    assert set(twin) | {"support"} == named, "support is of a run with top-k alone"
    assert twin["schema"] == "ratioscope-report/1"


def test_hostile_text_is_text_in_the_html(hostile: Material, html: str) -> None:
    page = Page(html_report(hostile))
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in Page(html).tags}
    assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]
    assert not [a["href"] for tag, a in page.tags if tag == "a" and not str(a["href"]).startswith("#")]
    assert visible(HOSTILE[0]) in page.text
    assert "\x1b" not in page.text and "\u202e" not in page.text and "\x00" not in page.text


def inline(document: str) -> Iterator[Any]:
    for token in MarkdownIt("commonmark").enable("table").parse(document):
        yield token
        yield from token.children or ()


def code_in(tokens: list[Any]) -> list[list[str]]:
    """The lines of each block of code."""
    return [token.content.splitlines() for token in tokens if token.type == "code_block"]


def settings_in(read: Material) -> list[list[str]]:
    """The lines of the settings of each likely cause that has some."""
    known = read.view.diagnosis()
    assert known is not None and known.result is not None
    texts = (settings_of(item.cause.code, known.context) for item in known.result.diagnosis.likely)
    return [text.splitlines() for text in texts if text]


def test_nothing_is_escaped_twice_in_the_markdown(data: Material) -> None:
    tokens = list(inline(markdown_report(data)))
    cells = [token.content for token in tokens if token.type == "text"]
    assert {"KL [nats/token]", "kl_k3", "Mean |log-ratio| [nats]", "abs_log_ratio"} <= set(cells)
    assert not [cell for cell in cells if "\\" in cell or "`" in cell]


def test_settings_in_the_markdown_can_be_copied(data: Material) -> None:
    settings = settings_in(data)
    assert settings and code_in(list(inline(markdown_report(data)))) == settings
    assert "GRPOConfig(" in settings[0] and "    use_vllm=True," in settings[0]


def test_hostile_text_is_text_in_the_markdown(hostile: Material, data: Material) -> None:
    document = markdown_report(hostile)
    tokens = list(inline(document))
    kinds = {token.type for token in inline(markdown_report(data))}
    assert {token.type for token in tokens} <= kinds
    assert {token.content for token in tokens if token.type == "html_inline"} <= {"<br>"}
    assert not {"link_open", "image", "html_block", "fence"} & {token.type for token in tokens}
    assert code_in(tokens) == settings_in(hostile)
    assert not re.search(r"https?://|@\w|(?<!\w)#\d", document)


def test_hostile_text_is_data_in_the_json(hostile: Material) -> None:
    document = json_report(hostile)
    assert document.isascii() and json.loads(document)["run"] == HOSTILE[0]


def empty(folder: Path) -> Path:
    write_run_file(folder)
    return folder


def one_policy(folder: Path) -> Path:
    writer = FakeWriter(folder).open()
    writer.step(only(records("lcpp_q4_1").slice(0, 32), ["rollout"]))
    writer.close()
    return folder


@pytest.mark.parametrize("make", [empty, one_policy])
def test_a_run_without_anything_to_measure_gives_a_report_that_says_so(make: Any, tmp_path: Path) -> None:
    found = material(open_run(make(tmp_path / "run")))
    assert found.scores == () and found.worst == ()
    assert "not measured" in Page(html_report(found)).text
    assert "not measured" in markdown_report(found)
    facts = dict(found.head.facts)
    assert facts["confidence"] == "low" and facts["do"] == found.verdict.remedy
    assert "on record" in facts["measured"], "why there is nothing to diagnose, said once"
    assert "the run has no distribution of this gap" in Page(html_report(found)).text
    assert json.loads(json_report(found))["steps"] == {"step": []}


def test_what_is_missing_is_told_among_what_happened(tmp_path: Path) -> None:
    data = material(open_run(made(tmp_path, "holes")))
    gaps = data.view.of(recorded_events).filter(pl.col("kind") == "gap")
    assert len(gaps) and gaps["note"].str.contains("not on record").any()
    for text in (Page(html_report(data)).text, markdown_report(data), json_report(data)):
        assert "not on record" in text


def test_infinite_and_missing_values_are_told_apart(tmp_path: Path) -> None:
    zero = [[float("-inf"), -1.0, -2.0, -1.0]] * 4
    table = [[-1.0, -1.5, -2.0, -1.0]] * 4
    from ratioscope.collectors.collector import Collector

    with Collector(tmp_path / "run", strict=True) as collector:
        for step in range(3):
            collector.log(step=step, rollout_logprobs=table, old_logprobs=zero)
    found = material(open_run(tmp_path / "run"))
    twin = json.loads(json_report(found))
    scores = {score["name"]: score for score in twin["scores"]}
    assert scores["zero_weight_tokens"]["value"] == 12
    assert scores["log_ppl_old"]["value"] == "Infinity"
    assert "∞" in markdown_report(found) and "∞" in Page(html_report(found)).text
