"""The content security policy of our pages: they run their own scripts, named by digests of their texts, and load nothing."""

import base64
import re
from hashlib import sha256

_INLINE = re.compile(r"<script(?![^>]*\bsrc\b)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def digest_source(text: str) -> str:
    """The name of this script or style in a policy, made from its text. The browser takes no other text in its place."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def inline_scripts(page: str) -> list[str]:
    """The texts of the scripts that stand in the page itself."""
    return _INLINE.findall(page)


def file_policy(*scripts: str) -> str:
    """For a file that holds all it needs: nothing is loaded, sent, framed or run but these scripts.

    plotly.js sets styles from scripts, so styles are allowed inline; it makes a picture of a chart from a blob.
    """
    own = f"script-src {' '.join(map(digest_source, scripts))}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def static_policy(style: str) -> str:
    """For a file without a script: nothing is loaded, sent, framed or run; its style is the only one."""
    inside = "img-src data:; font-src data:"
    return f"default-src 'none'; style-src {digest_source(style)}; {inside}; base-uri 'none'; form-action 'none'"
