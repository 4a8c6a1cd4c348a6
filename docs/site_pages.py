"""A hook of mkdocs: pages of the repository's root join the site, links lead to them, and pictures follow the theme."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Page of the root -> page of the site."""
LIGHT = re.compile(r"(!\[[^\]]*\]\([\w/-]+)-light\.png\)")

NAMED = re.compile(r"^\| `(ratioscope\.[\w.]+)` \|", re.MULTILINE)
"""A row of the page of the Python API, with a public name."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ and the pages of the root."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page of docs/ whose links to pages of the root lead to their copies on the site, with a dark twin of light pictures."""
    up = "../" * page.file.src_uri.count("/")
    for name, copy in ROOT_PAGES.items():
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{copy}")
    markdown = with_signatures(markdown) if page.file.src_uri == "api.md" else markdown
    return LIGHT.sub(r"\1-light.png#only-light)\n\1-dark.png#only-dark)", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Leaves at the old address of each moved page, beside the user's pages, one that leads to the new address."""
    site = Path(config.site_dir)
    for page in site.glob("develop/*.html"):
        if not (old := site / page.name).exists():
            new = f"develop/{page.name}"
            old.write_text(
                f'<meta http-equiv="refresh" content="0; url={new}"><a href="{new}">This page has moved.</a>\n'
            )


def from_root(text: str) -> str:
    """A page of the root as it is read from docs/."""
    text = text.replace("](docs/", "](")
    for name, copy in ROOT_PAGES.items():
        text = text.replace(f"]({name}", f"]({copy}")
    return text


def with_signatures(markdown: str) -> str:
    """The page for the site: below each table the signature and the docstring of each of its names."""
    parts = re.split(r"(?=^## )", markdown, flags=re.MULTILINE)
    block = "\n::: {}\n    options: {{heading_level: 3}}\n"
    return "".join(part + "".join(map(block.format, NAMED.findall(part))) for part in parts)
