"""docs/reliability.md: what the scenarios of the chaos suite found, each when it was last run."""

from pathlib import Path

from chaos.figures import Figures
from chaos.kept import keep, kept
from chaos.page import page
from chaos.scenarios import LONG, SCENARIOS
from support.paths import ROOT


def test_what_a_scenario_found_takes_the_place_of_what_it_found_before(tmp_path: Path) -> None:
    first, again = Figures("A kill", {"lost": 0}), Figures("A kill", {"lost": 1}, wrong=["one was lost"])
    keep(tmp_path / "kept.json", {"kills": first, "soak": Figures("Soak", {"minutes": 120})}, seed=5)
    keep(tmp_path / "kept.json", {"kills": again}, seed=7)
    (kills, about), (soak, _) = kept(tmp_path / "kept.json", ["kills", "flips", "soak"])
    assert kills == again and "seed 7" in about and soak.counts == {"minutes": 120}
    assert "* broken: one was lost" in page([(kills, about)])


def test_the_page_says_what_the_suite_found_and_nothing_else() -> None:
    docs = ROOT / "docs"
    assert (docs / "reliability.md").read_text() == page(kept(docs / "reliability.json", [*SCENARIOS, *LONG]))
