"""A hook of mkdocs: takes the pages of the repository's root into the site, and leads links to them."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Page of the root -> page of the site."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of docs/ and the pages of the root."""
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A page of docs/ whose links to pages of the root lead to their copies on the site."""
    for name, copy in ROOT_PAGES.items():
        markdown = markdown.replace(f"](../{name}", f"]({copy}")
    return markdown


def from_root(text: str) -> str:
    """A page of the root as it is read from docs/."""
    text = text.replace("](docs/", "](")
    for name, copy in ROOT_PAGES.items():
        text = text.replace(f"]({name}", f"]({copy}")
    return text
