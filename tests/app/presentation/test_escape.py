"""No foreign text is anything but text in any sink."""

import csv
import io
import re
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.hostile import HOSTILE
from support.sizes import examples

from ratioscope.app.presentation import escape

SINKS: tuple[Callable[[str], str], ...] = (
    escape.html, escape.markdown, escape.csv, escape.terminal, escape.plotly, escape.streamlit_label,
)  # fmt: skip
FOREIGN = st.one_of(
    st.text(st.characters(codec=None), max_size=40),
    st.text("<>&\"'`*_[](){}!|~$#@:=+-.\\/ \n\t\r1wGHh%", max_size=40),
    st.sampled_from([text for text in HOSTILE if len(text) < 1000]),
)
LAW = examples(200)


def parsed_html(document: str) -> tuple[list[str], str]:
    """The tags, comments and declarations met, and the text."""
    structure: list[str] = []
    text: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            structure.append(f"<{tag} {attrs}>")

        def handle_endtag(self, tag: str) -> None:
            structure.append(f"</{tag}>")

        def handle_comment(self, data: str) -> None:
            structure.append(data)

        def handle_data(self, data: str) -> None:
            text.append(data)

    reader = Reader(convert_charrefs=True)
    reader.feed(document)
    reader.close()
    return structure, "".join(text)


def plain(text: str) -> str:
    """The text without the guards our own functions put in."""
    return text.replace("\u2060", "")


@given(FOREIGN)
@LAW
def test_html_holds_the_visible_text_and_no_element(text: str) -> None:
    assert parsed_html(escape.html(text)) == ([], escape.visible(text))


@given(FOREIGN)
@LAW
def test_an_html_attribute_cannot_be_left(text: str) -> None:
    for quote in "\"'":
        structure, _ = parsed_html(f"<i title={quote}{escape.html(text)}{quote}>")
        assert structure == [f"<i {[('title', escape.visible(text))]}>"]


@given(FOREIGN, st.sampled_from(["{}", "- {}", "# {}", "Run {} of today", "> {}"]))
@LAW
def test_markdown_is_text_wherever_it_is_put(text: str, frame: str) -> None:
    shown = escape.visible(text).strip()
    tokens = MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(frame.format(escape.markdown(text)))
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "text_special"}
    if shown:
        content = plain("".join(child.content for child in inline))
        assert content.split() == plain(frame.lstrip("-#> ").format(shown)).split()


@given(FOREIGN)
@LAW
def test_a_markdown_table_keeps_its_cells(text: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {escape.markdown(text)} | after |"
    tokens = MarkdownIt("commonmark").enable("table").parse(table)
    assert [token.type for token in tokens].count("td_open") == 2
    assert tokens[-4].content == "after" or any(t.content == "after" for t in tokens)


@pytest.mark.parametrize(
    "text", ["@maintainer", "fixes #1", "GH-1", "https://evil.example", "www.evil.example", ":smile:"]
)
def test_markdown_wakes_no_renderer_that_reads_plain_text(text: str) -> None:
    patterns = r"@\w", r"#\d", r"GH-\d", r"https?://", r"www\.", r":\w+:"
    assert any(re.search(pattern, text) for pattern in patterns)
    assert not any(re.search(pattern, escape.markdown(text)) for pattern in patterns)


@given(FOREIGN)
@LAW
def test_no_sink_lets_an_invisible_or_line_breaking_character_through(text: str) -> None:
    for sink in SINKS:
        bad = {c for c in plain(sink(text)) if c != " " and unicodedata.category(c)[0] in "CZ"}
        assert not bad, sink
        assert plain(sink(text)).encode("utf-8") is not None


@given(FOREIGN)
@LAW
def test_a_csv_cell_is_never_a_formula_and_reads_back(text: str) -> None:
    cell = escape.csv(text)
    assert cell.lstrip(" \"'")[:1] not in tuple("=+-@＝＋－＠") or cell.startswith("'")
    out = io.StringIO()
    csv.writer(out).writerow([cell, "after"])
    assert next(csv.reader(io.StringIO(out.getvalue()))) == [cell, "after"]


@given(FOREIGN)
@LAW
def test_plotly_gets_no_tag_template_or_formula(text: str) -> None:
    shown = escape.plotly(text)
    assert not set("<>{$") & set(shown)
    assert parsed_html(shown) == ([], escape.visible(text))


@given(FOREIGN)
@LAW
def test_a_streamlit_label_has_all_punctuation_escaped_and_no_pattern_left(text: str) -> None:
    shown = escape.streamlit_label(text)
    unescaped = re.sub(r"\\[!-/:-@\[-`{-~]", "", shown)
    assert not re.search(r"[!-/:-@\[-`{-~]", unescaped)
    after_parsing = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown)
    assert not re.search(r":[\w+-]+:|:material/|:\w+\[|https?://|www\.|[\w.]@\w", after_parsing)
    assert plain(after_parsing) == plain(escape.visible(text))


def test_json_in_a_script_element_cannot_end_it() -> None:
    import json

    for text in HOSTILE:
        shown = escape.script_json(json.dumps({"text": text}, ensure_ascii=False))
        assert not set("<>&\u2028\u2029") & set(shown)
        assert json.loads(shown) == {"text": text}


def test_invisible_characters_have_names_one_can_look_up() -> None:
    assert escape.visible("a\u202eb\x00\x1b\n\t\x7f\xa0\ud800") == "a⟨U+202E⟩b␀␛↵⇥␡⍽⟨U+D800⟩"


def test_a_cut_says_how_much_is_missing() -> None:
    assert escape.html("x" * 1_000_000, limit=3) == "xxx… (+999,997 characters)"
    assert escape.visible("abc", limit=3) == "abc"


def test_ordinary_text_of_any_language_is_left_alone() -> None:
    text = "Ünïcödé 数学 हिन्दी العربية 😀 e=mc²"
    assert escape.terminal(text) == text
