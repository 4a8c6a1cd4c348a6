"""Draws every page of the dashboard and the report, of the sample runs, into docs/gallery: `make gallery`. Two runs of
`ratioscope parity` are drawn into docs/pictures, also alone: `python docs/gallery.py parity`.

Look at each picture after a change, as its first reader would.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image, ImageColor

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Chromium, Dashboard, Opened  # noqa: E402

from ratioscope.app.presentation.theme import DARK, LIGHT  # noqa: E402

GALLERY, PICTURES = ROOT / "docs" / "gallery", ROOT / "docs" / "pictures"
PARITY = ROOT / "tests" / "data" / "parity"
"""Runs that `ratioscope parity` wrote: vLLM 0.32 on a CPU and transformers, SmolLM2 in bfloat16. broken: of other weights."""
RUNS = {path.name.rsplit("-", 1)[-1]: path for path in sorted((ROOT / "sample_data" / "runs").glob("*/"))}
PAGES = {
    "overview": "",
    "why": "why",
    "charts": "charts",
    "charts-both": f"charts?smooth=5&groups=main&groups=tails&with={RUNS['healthy'].name}",
    "runs": "runs",
    "distributions": "distributions",
    "distributions-sequence": "distributions?level=sequence&cap=5",
    "distributions-density": "distributions?over=step&step=14&density=true",
    "where": "where?measured=token_class&measured=token_id&heat=position",
    "staleness": "staleness",
    "samples": "samples",
    "samples-prompts": "samples?list=prompts",
    "samples-heat": "samples?list=token+heat",
    "tokens": "tokens",
    "tokens-weights": "tokens?tint=weight&at=6&json=true",
    "compare": "compare",
    "alerts": "alerts",
    "fix": "fix?lab=none,truncate:token:2,mask:token:0.5:5,truncate:sequence:2",
    "record": "record",
}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = 256
"""Colours of a picture's palette: pages are drawn in few colours, and a picture stays below 300 kB."""
COMMON = 120
TALLEST = 3000


def main() -> None:
    GALLERY.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(ROOT / "sample_data" / "runs", Path(home) / "runs")
        os.environ["HOME"] = home  # so that no picture shows where this machine keeps the project
        draw_all([Path(home) / "runs" / path.name for path in RUNS.values()])
    draw_parity()


def draw_parity() -> None:
    """The first screen of Overview of both pairs in both themes, and that of Why of the broken one on a telephone."""
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(PARITY, home, dirs_exist_ok=True)
        with Dashboard(sorted(Path(home).iterdir())) as dashboard, Chromium() as browser:
            for name in ("healthy", "broken"):
                for theme in THEMES:
                    opened = browser.visit(f"{dashboard.url}/?run={name}", theme=theme, height=820)
                    draw(opened, f"parity-{name}-{theme}", folder=PICTURES)
            opened = browser.visit(f"{dashboard.url}/why?run=broken", theme="dark", width=420, height=1120)
            draw(opened, "parity-broken-narrow", folder=PICTURES)


def draw_all(runs: list[Path]) -> None:
    with Dashboard(runs) as dashboard, Chromium() as browser:
        for theme in THEMES:
            for name, path in PAGES.items():
                place = f"{dashboard.url}/{path}{'&' if '?' in path else '?'}run={RUNS['stale'].name}"
                draw(browser.visit(place, theme=theme), f"{name}-stale-{theme}", hover=name == "tokens")
            for name in ("overview", "why"):
                healthy = f"{dashboard.url}/{PAGES[name]}?run={RUNS['healthy'].name}"
                draw(browser.visit(healthy, theme=theme), f"{name}-healthy-{theme}")
        for name in ("tokens", "why"):
            narrow = f"{dashboard.url}/{name}?run={RUNS['stale'].name}"
            draw(browser.visit(narrow, width=400), f"{name}-stale-narrow")
        draw_reports(browser)


def draw_reports(browser: Chromium) -> None:
    """The HTML report of the stale run in both themes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", "ratioscope", "report", RUNS["stale"], "-o", report], check=True)
        for theme in THEMES:
            save(browser.file(report, theme=theme, height=TALLEST).screenshot(), f"report-stale-{theme}")


def draw(opened: Opened, name: str, *, hover: bool = False, folder: Path = GALLERY) -> None:
    """The whole page, outside the gallery its first screen; hover: with what is told of a token."""
    opened.settled()
    opened.computed()
    if folder == GALLERY:
        opened.whole(TALLEST)
    if hover:
        opened.page.locator(".rs-text i").nth(5).hover()
    save(opened.page.screenshot(), name, folder)
    opened.page.close()


def save(picture: bytes, name: str, folder: Path = GALLERY) -> None:
    path = folder / f"{name}.png"
    image = Image.open(BytesIO(picture)).convert("RGB")
    image.quantize(palette=_palette(image), dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


def _palette(image: Image.Image) -> Image.Image:
    """The colours that carry a meaning as they are, however little of the page has them, and the most common ones; the others as
    near as possible."""
    drawn: dict[tuple[int, ...], int] = {colour: size for size, colour in image.getcolors(1 << 24) or ()}
    named = [
        colour for text in sorted(_colours(asdict(LIGHT), asdict(DARK))) if (colour := ImageColor.getrgb(text)) in drawn
    ]
    # Lines and veils are paler than the colours they are named after.
    most = sorted(drawn, key=lambda colour: drawn[colour], reverse=True)[:COMMON]
    exact = list(dict.fromkeys([*named, *most]))
    others = image.quantize(COLOURS - len(exact), method=Image.Quantize.MEDIANCUT).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*(part for colour in exact for part in colour), *others][: 3 * COLOURS])
    return palette


def _colours(*found: object) -> set[str]:
    """All colours in these values of themes."""
    inside = [list(one.values()) if isinstance(one, dict) else one for one in found if isinstance(one, (dict, tuple))]
    return {one for one in found if isinstance(one, str) and one.startswith("#")}.union(
        *(_colours(*one) for one in inside)
    )


if __name__ == "__main__":
    draw_parity() if sys.argv[1:] == ["parity"] else main()
