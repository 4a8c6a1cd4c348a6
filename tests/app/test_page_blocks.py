"""The blocks of a page: each face draws every one of them, and no text of a run becomes markup."""

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import polars as pl
import pytest
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest
from support.edge_runs import made
from support.hostile import HOSTILE
from support.pages_open import Open, plain

from ratioscope.app import blocks
from ratioscope.app.blocks import Block, Paragraph, Section, text_table
from ratioscope.app.cli import blocks_printed
from ratioscope.app.dashboard import blocks_drawn
from ratioscope.app.dashboard.panels import widgets
from ratioscope.app.documents import document, html, markdown, material
from ratioscope.app.documents.html import Inside, charts_of, whole
from ratioscope.app.documents.material import read_view
from ratioscope.app.documents.report import html_report, markdown_report
from ratioscope.app.pages import pages
from ratioscope.app.pages.corrections import corrections
from ratioscope.app.pages.face import PAPER, Choice, Number, Several, Switch
from ratioscope.app.pages.pages import PAGES, Page
from ratioscope.app.pages.scope import Scope
from ratioscope.ingest.rows.part import part_of
from ratioscope.ingest.run import open_run

TEXT = HOSTILE[0]
SAFE: dict[type, Callable[[], Block]] = {
    blocks.Heading: lambda: blocks.Heading(TEXT),
    blocks.Paragraph: lambda: Paragraph(f"{TEXT} `{TEXT}`", "absent", TEXT),
    blocks.Facts: lambda: blocks.Facts([(TEXT, TEXT)]),
    blocks.Cards: lambda: blocks.Cards([(TEXT, TEXT, TEXT)]),
    blocks.Table: lambda: text_table(TEXT, ("a", TEXT), [(TEXT, TEXT)]),
    blocks.Beside: lambda: blocks.Beside("b", ((Paragraph(TEXT),), (Paragraph(TEXT),))),
    blocks.At: lambda: blocks.At("place", (Paragraph(TEXT),)),
    blocks.Box: lambda: blocks.Box("box", (Paragraph(TEXT),)),
    blocks.Action: lambda: blocks.Action("a", TEXT, blocks.Link("overview")),
    blocks.Actions: lambda: blocks.Actions("as", (blocks.Action("a2", TEXT, blocks.Link("overview"), TEXT),)),
    blocks.TintedSequence: lambda: blocks.TintedSequence(TEXT, TEXT, TEXT, "", TEXT),
    blocks.Code: lambda: blocks.Code([TEXT]),
    blocks.Json: lambda: blocks.Json(TEXT, {TEXT: TEXT}),
    blocks.Links: lambda: blocks.Links("links", [(TEXT, TEXT, blocks.Link("overview"), TEXT)]),
    blocks.Verdict: lambda: blocks.Verdict("act", TEXT, [(TEXT, TEXT)], lambda theme: "", 0.5, None),
    blocks.Drawer: lambda: blocks.Drawer(TEXT, lambda: (Paragraph(TEXT),)),
}
INSIDE = Inside(lambda chart: pytest.fail("no chart"), lambda path: f"#{path}", frozenset({"overview"}))


def test_every_face_draws_every_block() -> None:
    every = set(get_args(Block))
    faces = (blocks_drawn._DRAWN, html._MARKUP, markdown._MARKDOWN, blocks_printed._PRINTED)
    assert all(set(face) == every for face in faces)


def test_few_blocks_are_drawn_by_one_face_alone_and_no_face_names_a_page() -> None:
    left_out = {kind.__name__ for kind, draw in html._MARKUP.items() if draw is html._left_out}
    assert left_out == {"Waiting", "Numbers"}, "paper waits for nothing, and has its numbers in tables"
    unprinted = {kind.__name__ for kind, draw in blocks_printed._PRINTED.items() if draw is blocks_printed._left_out}
    assert unprinted == {"Action", "Actions", "Chart", "Charts", "Numbers", "Waiting"}, (
        "a terminal cannot act, draw or wait"
    )
    limits = ((blocks_drawn, 340), (widgets, 260), (html, 345), (markdown, 240), (blocks_printed, 260))
    for module, lines in limits:
        source = inspect.getsource(module)
        assert len(source.splitlines()) < lines, f"{module.__name__} is growing: is a block missing?"
        assert not [page.path for page in PAGES if f'"{page.path}"' in source]


def test_a_page_that_is_added_to_the_list_is_on_each_face_and_what_it_has_printed_in_the_report(
    runs: Path, monkeypatch: pytest.MonkeyPatch, opened: Open
) -> None:
    def added(scope: Scope) -> Iterator[Block]:
        yield Paragraph(f"added over {len(scope.recorded)} steps of {scope.gap}")

    def printed(scope: Scope) -> Iterator[Section]:
        yield Section("printed", "What is printed", lambda: added(scope))

    every = (*PAGES, Page("Record", "added", "Added", "A page of a test.", added, printed=printed))
    monkeypatch.setattr(document, "PAGES", every)
    monkeypatch.setattr(material, "PAGES", every)
    run = material.material(open_run(made(runs, "one_step")))
    text, report = document.one_file(run), html_report(run)
    assert 'id="added"' in text and "added over 1 steps of mismatch" in text
    assert '<h2 id="printed">What is printed</h2>' in report and "added over 1 steps of mismatch" in report
    assert "## What is printed\n\nadded over 1 steps of mismatch" in markdown_report(run)
    monkeypatch.setattr(pages, "PAGES", every)
    assert "added over 1 steps of mismatch" in plain(opened("added", "one_step"))


@pytest.mark.parametrize("kind", SAFE, ids=lambda kind: kind.__name__)
def test_text_of_a_run_is_text_in_a_file(kind: type) -> None:
    made_blocks = whole([SAFE[kind]()])
    text = html.markup(made_blocks, INSIDE)
    assert TEXT not in text and "<script" not in text and "<img" not in text
    parsed = MarkdownIt("commonmark").enable("table").parse(markdown.markdown(made_blocks))
    inside = [each for token in parsed for each in (token, *(token.children or ()))]
    assert not [each for each in inside if each.type.startswith("html") and each.content != "<br>"]
    assert not {"link_open", "image", "fence"} & {each.type for each in inside}


@pytest.mark.parametrize("kind", SAFE, ids=lambda kind: kind.__name__)
def test_text_of_a_run_commands_no_terminal(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    odd = "a\x1b[31mb\r\u202ec"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "TEXT", odd)
        blocks_printed.print_blocks([SAFE[kind]()])
    said = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e"} & set(said) and ("a␛[31mb" in said or kind in (blocks.Action, blocks.Actions))


def test_paper_takes_the_usual_answer_and_picks_nothing() -> None:
    asked = (Choice("a", "a", ("x", "y"), "y"), Several("b", "b", ("x",), str), Number("c", "c", 2.5), Switch("d", "d"))
    assert [PAPER.ask(question) for question in asked] == ["y", [], 2.5, False]
    assert PAPER.picked("rows", 3) is None and PAPER.remembered("key", 4) == 4
    with PAPER.row("row"), PAPER.working("reading") as tell:
        tell(1, 2)


def test_the_blocks_of_a_drawer_are_made_once_for_a_file() -> None:
    opened: list[int] = []

    def inside() -> Iterator[Block]:
        opened.append(1)
        yield Paragraph("inside")

    made_blocks = whole([blocks.Drawer("more", inside)])
    assert not [*charts_of(made_blocks)]
    assert html.markup(made_blocks, INSIDE).count("inside") == 1 and opened == [1]


def test_a_long_table_says_how_many_rows_it_leaves_out() -> None:
    table = blocks.Table("rows", pl.DataFrame({"n": range(html.ROWS + 5)}))
    text = html.markup([table], INSIDE)
    assert text.count("<tr>") == html.ROWS + 1 and f"the first {html.ROWS} of {html.ROWS + 5} rows" in text
    assert f"The first {markdown.ROWS} of {html.ROWS + 5} rows" in markdown.markdown([table])


def test_a_part_of_a_run_is_the_same_on_paper(runs: Path) -> None:
    run = open_run(made(runs, "stale"))
    key, wanted = run.metrics("token_class").select("token_class", "mismatch/tokens").row(0)
    part = Scope(read_view(run), "mismatch", only=part_of(f"token_class={key}"), from_rows=True)
    assert part.course()["mismatch/tokens"].sum() == wanted


def test_corrections_on_paper_take_the_token_rows_of_all_steps_or_none(runs: Path) -> None:
    def said(name: str) -> str:
        found = corrections(Scope(read_view(open_run(made(runs, name))), "mismatch"))
        return " ".join(block.text for block in found if isinstance(block, Paragraph))

    assert "not here" not in said("stale") and "mismatch over 12 steps ·" in said("stale")
    assert "which 4 of 10,000 steps have" in said("many_steps") and "over 10,000 steps ·" in said("many_steps")


def test_a_page_that_a_test_writes_is_drawn_with_its_choices_and_picks() -> None:
    app = AppTest.from_function(_script, default_timeout=60).run()
    assert not app.exception, [box.value for box in app.exception]
    assert app.selectbox(key="which").value == "one" and "one" in app.markdown[0].value
    assert app.expander[0].label == "more" and app.button(key="press").label == "press"
    app.button(key="press").click().run()
    assert app.session_state["pressed"] == 1
    app.selectbox(key="which").set_value("two").run()
    assert "two" in app.markdown[0].value


def _script() -> None:
    from collections.abc import Iterator

    import streamlit as st

    from ratioscope.app.blocks import Action, Block, Drawer, Paragraph
    from ratioscope.app.dashboard.blocks_drawn import drawn
    from ratioscope.app.dashboard.model.view import SERVED
    from ratioscope.app.pages.face import Choice
    from ratioscope.app.pages.scope import Scope
    from ratioscope.app.pages.view import View

    def press() -> None:
        st.session_state["pressed"] = st.session_state.get("pressed", 0) + 1

    def page(scope: Scope) -> Iterator[Block]:
        chosen = scope.face.ask(Choice("which", "which", ("one", "two"), "one"))
        yield Paragraph(f"chosen: {chosen}")
        yield Drawer("more", lambda: (Paragraph("inside"),))
        yield Action("press", "press", press)

    drawn(page, Scope(View("", 0, SERVED)))
