"""Every verb that prints numbers, in a terminal of 80 columns: no number is lost, and no table is wider than the terminal."""

import json
import shutil
from collections.abc import Iterator

import pytest
from support.in_terminal import ESCAPES, in_terminal

from ratioscope.app.cli import main
from ratioscope.app.cli.commands.demo import sample_runs

COLUMNS = 80
LONG = "qwen3-30b-a3b-grpo-bf16-rollout-fp8-trainer-seed3"
RULES = "─━"
FOLDED = 24
"""Characters from which a word, such as a digest or a path, may be broken over two lines."""
TABLES = (
    "ls RUNS",
    "info RUN",
    "diagnose RUN",
    "check RUN",
    "corrections RUN",
    "metrics RUN",
    "metrics RUN --dialect verl",
    "metrics RUN --by lag",
    "metrics RUN --by replica",
    "metrics RUN --by finish_reason",
    "metrics RUN --gap rollout:referee --by lag",
    "metrics LOGGED",
    "info LOGGED",
    "diff OTHER RUN",
    "verify RUN",
    "baseline list",
    "baseline show FLOOR",
    "explain kl_k3",
    "attach --list",
    "attach --check trl",
)
"""RUN, OTHER: the sample runs under long names. RUNS: the folder of both. LOGGED: a run imported of a log of numbers by step.
FLOOR: a saved noise floor."""
FLOOR = "our-4b-bf16-rollout-fp8-trainer"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What the capital words of TABLES stand for."""
    root = tmp_path_factory.mktemp("runs")
    for own in sample_runs().values():
        shutil.copytree(own, root / f"{LONG}-{own.name}")
    healthy, stale = sorted(root.iterdir())
    history = [
        {"step": step, "sampling/sampling_logp_difference/mean": 0.01 / step, "a/number/of/our/own": step / 7}
        for step in range(1, 9)
    ]
    (root / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    logged = root / f"{LONG}-logged"
    assert main(["import", str(root / "trainer_state.json"), "-o", str(logged)]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        assert main(["baseline", "save", str(healthy), "as", FLOOR]) == 0
        yield {"RUN": str(stale), "OTHER": str(healthy), "LOGGED": str(logged), "FLOOR": FLOOR, "RUNS": str(root)}


@pytest.mark.parametrize("line", TABLES)
def test_no_number_is_lost_at_80_columns(line: str, places: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    argv = [places.get(word, word) for word in line.split()]
    main(argv)
    whole = capsys.readouterr().out
    narrow = ESCAPES.sub("", in_terminal(COLUMNS, *argv))
    words, joined = set(narrow.split()), "".join(narrow.split())
    numbers = {word for word in whole.split() if any(letter.isdigit() for letter in word)}
    assert numbers
    assert {word for word in numbers - words if len(word) < FOLDED or word not in joined} == set()
    assert max((len(row.rstrip()) for row in narrow.splitlines() if row[:1] in RULES and row), default=0) <= COLUMNS


@pytest.mark.parametrize("verb", ["note", "export", "import", "report", "baseline save"])
def test_help_is_broken_at_the_width_of_the_terminal_alone(verb: str) -> None:
    lines = ESCAPES.sub("", in_terminal(COLUMNS, *verb.split(), "--help")).splitlines()
    prose = [line.strip() for line in lines[: next(at for at, line in enumerate(lines) if line[:1] == "╭")]]
    for line, after in zip(prose, prose[1:], strict=False):
        assert not line or not after or len(line) + len(after.split()[0]) >= COLUMNS - 3, line


def test_a_command_to_try_stands_on_a_line_of_its_own_where_its_words_do_not_fit(places: dict[str, str]) -> None:
    ended = ESCAPES.sub("", in_terminal(COLUMNS, "info", places["RUN"])).rpartition("next: ")[2].splitlines()
    words = [line.strip() for line in ended]
    assert {"why the policies are apart, and what to do", "every chart, sequence and token"} <= set(words)
    assert [line.split()[1] for line in words if line.startswith("ratioscope ")] == ["diagnose", "dashboard"]
