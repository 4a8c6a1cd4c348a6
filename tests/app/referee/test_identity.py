"""`ratioscope identity`: recorded conversations of several turns, each with a fault of its own, against a real tokenizer."""

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chat import CHATML, FORGETFUL, TEMPLATES, WORDS, Recorded, rendered, saved, tokenizer

from ratioscope import Collector, open_run
from ratioscope.app.blocks import Markup
from ratioscope.app.cli import main
from ratioscope.app.documents.material import read_view
from ratioscope.app.pages.diagnosis import diagnosis as why
from ratioscope.app.pages.scope import Scope
from ratioscope.app.referee import rendered_turns
from ratioscope.app.referee.rendered_turns import ChatTokenizer, Comparison, Conversation, Found
from ratioscope.ingest.analysis.conversation_identity import identity_of
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.importers import confinement

OWN = tokenizer()
TALK = (
    ("system", "the tool reads a file"),
    ("user", "what is wrong with the number?"),
    ("assistant", "<think>\nit reads\n</think>\n\ncall the tool"),
    ("tool", "the file is wrong"),
    ("assistant", "it is the file"),
)
END = OWN.eos_token_id


def encoded(text: str, own: Any = OWN) -> list[int]:
    return list(own(text, add_special_tokens=False)["input_ids"])


def logged(
    root: Path, steps: Sequence[Sequence[Recorded]], text: Any = "ids", left_out: Sequence[str] = (), **more: Any
) -> Path:
    """A run with these sequences at each step, as the Collector records it."""
    with Collector(root, text=text) as collector:
        for step, sequences in enumerate(steps):
            logprobs = [[-0.5] * len(one.response) for one in sequences]
            columns: dict[str, Any] = {
                "rollout_logprobs": logprobs,
                "old_logprobs": logprobs,
                "token_ids": [one.response for one in sequences],
                "prompt_ids": [one.prompt for one in sequences],
                "mask": [one.mask for one in sequences],
            } | more
            kept = {name: value for name, value in columns.items() if name not in left_out}
            collector.log(step=step, **kept)
    return root


def asked(capsys: pytest.CaptureFixture[str], run: Path, folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON of the verb."""
    code = main(["identity", str(run), "--tokenizer", str(folder), "--json", *more])
    return code, json.loads(capsys.readouterr().out)


def compared(folder: Path, *conversations: Conversation) -> Found:
    """The comparison in this process."""
    own = Comparison(ChatTokenizer(folder), conversations)
    for one in conversations:
        own.add(one)
    return own.closed()


def conversation(one: Recorded, **more: Any) -> Conversation:
    return Conversation(0, "a", one.prompt, one.response, one.mask, **more)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("tokenizer") / "own")


def twice_begun() -> Recorded:
    made = rendered(OWN, TALK)
    return Recorded([OWN.bos_token_id, *made.prompt], made.response, made.mask)


def spelled_out() -> Recorded:
    """The first answer in ids of single letters, as a model may sample it."""
    made = rendered(OWN, TALK)
    until = made.mask.index(False) - 1
    letters = [id for letter in OWN.decode(made.response[:until]) for id in encoded(letter)]
    own = Recorded(made.prompt).add([*letters, END], sampled=True)
    first, last = until + 1, len(made.mask) - made.mask[::-1].index(False)
    return own.add(made.response[first:last], sampled=False).add(made.response[last:], sampled=True)


def without_end() -> Recorded:
    made = rendered(OWN, TALK)
    place = made.response.index(END)
    return Recorded(
        made.prompt,
        [*made.response[:place], *made.response[place + 1 :]],
        [*made.mask[:place], *made.mask[place + 1 :]],
    )


def without_line_break(of: Recorded | None = None, instead: Sequence[int] = ()) -> Recorded:
    """The tokens of a tool are put right behind the answer's end, or behind other ids."""
    made = of or rendered(OWN, TALK)
    place = made.response.index(END) + 1
    return Recorded(
        made.prompt,
        [*made.response[:place], *instead, *made.response[place + 1 :]],
        [*made.mask[:place], *[False] * len(instead), *made.mask[place + 1 :]],
    )


FAULTS = {
    "none": (rendered(OWN, TALK), (2, 0, 0), {}, {}),
    "two begins": (twice_begun(), (1, 0, 1), {"ids vanish": 1}, {"<|begin|>": [1, 0]}),
    "ids that encoding does not give": (spelled_out(), (1, 1, 0), {"the same text in other ids": 1}, {}),
    "no end of an answer": (without_end(), (1, 0, 1), {"ids are added": 1}, {"<|im_end|>": [0, 1]}),
    "both": (without_line_break(spelled_out(), encoded("a")), (0, 1, 1), {"other ids": 1}, {"<|im_end|>": [0, 1]}),
    "no line break": (without_line_break(), (1, 0, 1), {"ids are added": 1}, {}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_has_its_class_its_way_and_its_ids(folder: Path, name: str) -> None:
    sequence, classes, ways, special = FAULTS[name]
    found = compared(folder, conversation(sequence))
    assert found.is_rendered and not found.left_out
    assert tuple(found.classes[kind] for kind in ("clean", "realigned", "forked")) == classes
    assert found.ways == ways and len(found.examples) == sum(ways.values())
    assert {found.texts[id]: found.ids[id] for id in found.special} == special


def test_the_answer_is_the_share_of_turns_over_all_sequences(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = logged(tmp_path / "run", [[sequence] * 3 for sequence, *_ in FAULTS.values()])
    code, whole = asked(capsys, run, folder)
    assert code == 0 and whole["left_out"] == {} and whole["steps"] == [*range(6)]
    assert (whole["turns"], whole["clean"], whole["realigned"], whole["forked"]) == (36, 18, 6, 12)
    assert (
        whole["answer"] == "50% of 36 turns are trained on ids that rendering does not give: 6 realigned and 12 forked."
    )
    assert whole["special"] == {"<|begin|>": [3, 0], "<|im_end|>": [0, 6]}


def test_an_example_has_place_and_ids_of_the_difference(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = without_line_break()
    _, found = asked(capsys, logged(tmp_path / "run", [[own]]), folder)
    place = len(own.prompt) + own.response.index(END) + 1
    (line_break,) = encoded("\n")
    (example,) = found["examples"]
    assert (example["place"], example["turn"], example["class"]) == (place, 1, "forked")
    assert (example["lost"], example["gained"]) == ([], [line_break])
    assert found["ids"] == [{"id": line_break, "lost": 0, "gained": 1, "text": "\n"}]


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_that_a_template_rendered_are_clean(name: str, tmp_path: Path) -> None:
    own = tokenizer(TEMPLATES[name])
    place = saved(tmp_path / "own", template=TEMPLATES[name])
    for thought, options in THOUGHTS.get(name, [("", {})]):
        talk = [(role, thought * (role == "assistant") + text) for role, text in TALK[name == "Llama 2" :]]
        found = compared(place, conversation(rendered(own, talk, **options), is_whole=True))
        assert found.is_rendered and not found.left_out and not found.examples
        assert found.classes == {"clean": 2}


THOUGHTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "thinking begun in the prompt": [("<think>\n", {})],
    "a switch for thinking": [("", {}), ("<think>\n\n</think>\n\n", {"enable_thinking": False})],
}
"""Template -> what its answers begin with, under which options."""
OF_TRL = (
    "cohere_training", "gemma3", "gemma4", "lfm2", "llama3", "llama3_1", "llama3_2", "nemotron_3_nano", "phi3", "phi3_5",
    "qwen2_5", "qwen2_5_training", "qwen3", "qwen3_training", "qwen3_5_think_training", "qwen3_instruct_2507", "qwen3_vl",
)  # fmt: skip
WITHOUT_FORM = ("gptoss", "smolvlm")
"""Their answers have channels, or their contents are lists."""


def test_conversations_that_the_templates_in_trl_render_are_clean(tmp_path: Path) -> None:
    folder = files("trl") / "chat_templates"
    said = [*TALK[:2], ("assistant", "it is the file"), ("user", "it is wrong"), ("assistant", "call the tool")]
    classes = dict[str, dict[str, int]]()
    for name in (*OF_TRL, *WITHOUT_FORM):
        template = (folder / f"{name}.jinja").read_text()
        own = ChatTokenizer(saved(tmp_path / name, template=template))
        assert (own.form is None) == (name in WITHOUT_FORM), name
        if own.form is not None:
            compares = Comparison(own, [one := conversation(rendered(own.tokenizer, said))])
            compares.add(one)
            classes[name] = dict(compares.closed().classes)
    assert classes == dict.fromkeys(OF_TRL, {"clean": 2})


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=8), st.text("the file\n!é水", max_size=8).map(str.lstrip)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_said_is_clean_where_it_was_rendered(folder: Path, said: list[tuple[str, str]]) -> None:
    talk = [each for user, answer in said for each in (("user", user), ("assistant", answer))]
    found = compared(folder, conversation(rendered(OWN, talk), is_whole=True))
    assert found.classes == {"clean": len(said)} and not found.examples


def test_reasoning_that_a_template_forgets_realigns_the_turn_that_had_it(tmp_path: Path) -> None:
    place = saved(tmp_path / "own", template=FORGETFUL)
    found = compared(place, conversation(rendered(OWN, TALK)))
    assert found.classes == {"realigned": 1, "clean": 1} and found.ways == {"ids vanish": 1}


def test_an_answer_that_was_cut_off_is_clean_and_one_that_ended_must_have_its_end(folder: Path) -> None:
    made = rendered(OWN, TALK)
    cut = Recorded(made.prompt, made.response[:-1], made.mask[:-1])
    assert compared(folder, conversation(cut)).classes == {"clean": 2}
    found = compared(folder, conversation(cut, is_whole=True))
    assert found.classes == {"clean": 1, "realigned": 1} and found.ids == {END: [0, 1]}


def test_a_turn_outside_the_loss_is_no_trained_turn(folder: Path) -> None:
    made = spelled_out()
    in_loss = [place > made.mask.index(False) for place in range(len(made.mask))]
    assert compared(folder, conversation(made, in_loss=in_loss)).classes == {"clean": 1}


def test_without_a_template_answers_are_encoded_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = saved(tmp_path / "own", template=None)
    _, found = asked(capsys, logged(tmp_path / "run", [[spelled_out()]]), place)
    assert not found["is_rendered"] and (found["clean"], found["realigned"], found["forked"]) == (1, 1, 0)
    assert found["answer"].startswith("50% of 2 turns are trained on ids that encoding their text does not give")


def test_prompts_without_a_template_are_not_called_forked(folder: Path) -> None:
    raw = Recorded(encoded("the model reads")).add([*encoded(" a file"), END], sampled=True)
    alone = compared(folder, conversation(raw))
    assert not alone.is_rendered and alone.classes == {"clean": 1}
    beside = compared(folder, conversation(raw), conversation(rendered(OWN, TALK)))
    assert beside.classes == {"clean": 2} and beside.left_out == {rendered_turns.UNREAD: 1}


def test_turns_in_sequences_of_their_own_are_compared_with_what_was_held(folder: Path) -> None:
    made = rendered(OWN, TALK)
    cut = len(made.mask) - made.mask[::-1].index(False)
    until = made.mask.index(False)
    answers = {"clean": made.response[:until], "realigned": spelled_out().response[: spelled_out().mask.index(False)]}
    answers["forked"] = answers["clean"]
    for kind, first in answers.items():
        prompt = [*made.prompt, *made.response[:cut]]
        if kind == "forked":
            prompt = encoded(OWN.decode(prompt).replace("reads a file", "finds a file"))
        turns = [
            Conversation(0, "a", made.prompt, first, trajectory="one"),
            Conversation(0, "b", prompt, made.response[cut:], trajectory="one"),
        ]
        own = [
            each.classes for each in (compared(folder, *turns), compared(folder, turns[0]), compared(folder, turns[1]))
        ]
        assert own[2] == {"clean": 1}
        assert own[0] - own[1] == {kind: 1}, kind


def test_trajectories_are_read_from_the_record(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, held = rendered(OWN, TALK), spelled_out()
    cut = len(made.mask) - made.mask[::-1].index(False)
    later = Recorded([*made.prompt, *made.response[:cut]], made.response[cut:], made.mask[cut:])
    first = Recorded(held.prompt, held.response[: held.mask.index(False)], held.mask[: held.mask.index(False)])
    run = logged(tmp_path / "run", [[later, first]], "full", extra=[{"trajectory": "one"}] * 2)
    _, found = asked(capsys, run, folder)
    assert (found["realigned"], found["clean"]) == (2, 0)  # the answer, and the prompt that has it otherwise


@pytest.mark.parametrize(
    ("left_out", "text", "why"),
    [
        (["prompt_ids"], "ids", "prompt ids are not on record: log prompt_ids"),
        ([], "none", "token ids are not on record: record with text='ids' or 'full'"),
    ],
)
def test_missing_columns_are_not_available(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], left_out: list[str], text: str, why: str
) -> None:
    run = logged(tmp_path / "run", [[rendered(OWN, TALK)] * 2], text, left_out)
    arguments = ["identity", str(run), "--tokenizer", str(folder)]
    assert main(arguments) == 0
    assert f"not available, because of 2 sequences, {why}" in capsys.readouterr().out
    assert main([*arguments, "--fail-on", "forked"]) == 4
    assert identity_of(open_run(run)) is None


def test_exit_codes_are_those_that_were_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = logged(tmp_path / "run", [[sequence] for sequence in (rendered(OWN, TALK), spelled_out(), twice_begun())])
    arguments = ["identity", str(run), "--tokenizer", str(folder), "--steps"]
    wanted = {"0": ("realigned", 0), "1": ("realigned", 1), "1:1": ("forked", 0), "0:2": ("forked", 1)}
    assert {steps: main([*arguments, steps, "--fail-on", kind]) for steps, (kind, _) in wanted.items()} == {
        steps: code for steps, (_, code) in wanted.items()
    }
    assert main([*arguments, "0", "--fail-on", "clean"]) == 2
    assert "wanted realigned or forked" in capsys.readouterr().err


def test_no_text_shows_ids_alone_and_the_record_has_neither(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = logged(tmp_path / "run", [[spelled_out()]])
    arguments = ["identity", str(run), "--tokenizer", str(folder)]
    assert main(arguments) == 0
    (letter,) = encoded("i")
    assert f"{letter} 'i'" in (said := capsys.readouterr().out) and "realigned" in said
    assert main([*arguments, "--no-text"]) == 0
    said = capsys.readouterr().out
    assert f"{letter} 'i'" not in said and f" {letter} " in said
    _, plain = asked(capsys, run, folder, "--no-text")
    assert plain["ids"] and all("text" not in each for each in plain["ids"])
    notes = open_run(run).events.filter(open_run(run).events["event"] == "identity")["note"].to_list()
    counted = {"clean", "realigned", "forked", "sequences", "steps", "ways", "special", "left_out"}
    assert [set(json.loads(note)) for note in notes] == [counted | {"is_rendered", "tokenizer", "at"}] * 3
    assert recorded_events(open_run(run)).is_empty()


def test_the_newest_result_counts_and_a_damaged_note_is_passed_over(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = logged(tmp_path / "run", [[rendered(OWN, TALK)], [twice_begun()]])
    for steps in ("1", "0"):
        asked(capsys, run, folder, "--steps", steps)
    found = identity_of(open_run(run))
    assert found is not None and (found.turns, found.differing, found.steps) == (2, 0, (0,))
    with Collector(run) as collector:
        for note in ("", "[]", '{"clean": 1}', json.dumps({"clean": "many", "ways": 3})):
            collector.event("identity", 1, note)
    assert identity_of(open_run(run)) == found


def refused(capsys: pytest.CaptureFixture[str], run: Path, folder: Path) -> str:
    """The words of the refusal; nothing is recorded."""
    assert main(["identity", str(run), "--tokenizer", str(folder)]) == 3
    assert identity_of(open_run(run)) is None
    return capsys.readouterr().err


def test_a_tokenizer_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "eine ganz andere Sprache, in der kein Wort so lautet wie in jener, und Zahlen sind hier auch nicht 0123456789 "
    )
    sequences = [rendered(OWN, TALK)] * 4
    run = logged(tmp_path / "run", [sequences])
    wanted = "it is another tokenizer than the run's; give the run's own: --tokenizer DIR"
    small = refused(capsys, run, saved(tmp_path / "small", words=words, size=259))
    assert "has ids below 259" in small and wanted in small
    other = saved(tmp_path / "other", words=words * 2, size=600)
    assert "none of" in (none := refused(capsys, run, other)) and wanted in none
    texts = [[OWN.decode([id]) for id in one.response] for one in sequences]
    with_texts = logged(tmp_path / "texts", [sequences], "full", token_texts=texts)
    said = refused(capsys, with_texts, other)
    assert "texts of tokens on record are those of" in said and wanted in said


def test_a_folder_that_is_no_tokenizer_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = logged(tmp_path / "run", [[rendered(OWN, TALK)]])
    assert "has no tokenizer" in refused(capsys, run, tmp_path / "nowhere")
    broken = saved(tmp_path / "broken")
    (broken / "tokenizer.json").write_text('{"model": ')
    assert "cannot be loaded" in refused(capsys, run, broken)


def test_code_in_a_folder_never_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, hostile = logged(tmp_path / "run", [[rendered(OWN, TALK)]]), saved(tmp_path / "hostile")
    config = json.loads((hostile / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": [None, "own.Own"]}}
    (hostile / "tokenizer_config.json").write_text(json.dumps(config))
    (hostile / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: pass\n")
    main(["identity", str(run), "--tokenizer", str(hostile)])
    assert not (tmp_path / "ran").exists()
    capsys.readouterr()


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(t='a' * 4096) %}{% for a in range(40) %}{% set ns.t = ns.t + ns.t %}{% endfor %}{{ ns.t }}",
    ],
    ids=["endless", "huge"],
)
def test_a_template_that_never_ends_or_fills_memory_is_ended(
    template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confinement, "SECONDS", 1)
    run = logged(tmp_path / "run", [[rendered(OWN, TALK)]])
    assert "took more time or memory than it may" in refused(
        capsys, run, saved(tmp_path / "hostile", template=template)
    )


def test_a_template_that_raises_leaves_the_sequences_out_without_its_words(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = "{% if messages|length > 1 and 'number' in messages[1].content %}{{ raise_exception(messages[1].content) }}{% endif %}"
    place = saved(tmp_path / "own", template=once + CHATML)
    run = logged(tmp_path / "run", [[rendered(OWN, TALK)]])
    assert main(["identity", str(run), "--tokenizer", str(place)]) == 0
    said = capsys.readouterr().out
    assert "the chat template refuses them" in said and "number" not in said


def test_a_run_of_many_answers_is_bounded(folder: Path) -> None:
    made = Recorded(rendered(OWN, TALK).prompt)
    for _ in range(rendered_turns.MANY + 1):
        made.add(encoded("a"), sampled=True).add(encoded("b"), sampled=False)
    found = compared(folder, conversation(made))
    assert found.left_out == {f"they have no answer, or more than {rendered_turns.MANY}": 1} and not found.classes


def test_words_of_the_tokenizer_are_of_its_training() -> None:
    assert encoded(WORDS) and max(encoded(WORDS)) > 256 + len("<s>")


@pytest.mark.parametrize("apart", [0.0, 0.3], ids=["no gap", "a gap"])
def test_the_diagnosis_has_it_as_a_fact_that_explains_no_gap(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], apart: float
) -> None:
    sequences, rng = [rendered(OWN, TALK), twice_begun(), spelled_out()] * 2, np.random.default_rng(3)
    old = [-rng.exponential(1.0, len(one.response)) for one in sequences]
    rollout = [own + apart * rng.standard_normal(len(own)) for own in old]
    run = logged(tmp_path / "run", [sequences] * 4, old_logprobs=old, rollout_logprobs=rollout)
    main(["diagnose", str(run), "--json"])
    before = json.loads(capsys.readouterr().out)
    assert "conversation_identity" not in before
    asked(capsys, run, folder)
    main(["diagnose", str(run), "--json"])
    after = json.loads(capsys.readouterr().out)
    assert after.pop("conversation_identity")["turns"] == 48 and after == before
    main(["diagnose", str(run)])
    head, _, beside = capsys.readouterr().out.partition("Beside the gap")
    fact = "33.3% of 48 turns are trained on ids that rendering does not give: 8 realigned and 8 forked."
    assert fact in beside and "the record does not hold which ids the engine read" in beside
    assert "rendering" not in head
    page = html_of(Scope(read_view(open_run(run)), "mismatch"))
    assert "conversation identity" in page and fact in page
    main(["report", str(run), "-o", str(tmp_path / "report.md")])
    assert fact in (tmp_path / "report.md").read_text()


def html_of(scope: Scope) -> str:
    """The tables of the page Why as HTML."""
    return "".join(block.draw() for block in why(scope) if isinstance(block, Markup))
