"""Fields of dataclasses explain themselves: by a line of their own, or as CONTRIBUTING.md says."""

import ast
import re
from collections.abc import Iterator

from support.paths import ROOT

from ratioscope.record import RECORD

ROOMS = ("app", "collectors", "ingest", "metrics", "ratioscope")
SOURCES = sorted(
    path
    for room in ROOMS
    for path in (ROOT / room).rglob("*.py")
    if not any(parent.is_symlink() for parent in path.parents)
)
TRAINERS_OWN = re.compile(r"metrics/dialects/\w+/settings\.py")
"""Files whose fields are a trainer's settings, by the trainer's names."""


def terms() -> set[str]:
    """The terms of the glossary as names of fields, and the columns of the Record."""
    table = re.findall(r"^\| (?!---|term)([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    words = {re.sub(r" \(.*", "", word).strip("`").lower() for cell in table for word in cell.split(", ")}
    return {re.sub(r"[- ]", "_", word) for word in words} | {field.name for field in RECORD}


def bare_fields(source: str, known: set[str]) -> Iterator[str]:
    """Fields without a line that nothing else explains, as Class.field."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            for field, after in zip(node.body, [*node.body[1:], None], strict=True):
                if isinstance(field, ast.AnnAssign) and not _is_text(after) and not _is_explained(node, field, known):
                    yield f"{node.name}.{ast.unparse(field.target)}"


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_explained(owner: ast.ClassDef, field: ast.AnnAssign, known: set[str]) -> bool:
    name, annotation = ast.unparse(field.target), ast.unparse(field.annotation)
    plain = name.strip("_")
    in_class = re.search(rf"(?<!\w){name}(?!\w)", ast.get_docstring(owner) or "")
    is_term = not {plain, plain.removesuffix("s"), f"{plain}s"}.isdisjoint(known)
    return bool(in_class) or is_term or plain in _words_of_types(annotation)


def _words_of_types(annotation: str) -> set[str]:
    """The names of own types in an annotation, and their last words, in lower case and in the plural too."""
    names = re.findall(r"\b[A-Z]\w*[a-z]\w*", annotation)
    words = [[part.lower() for part in re.findall(r"[A-Z][a-z0-9]*", name)] for name in names]
    single = {"_".join(parts[at:]) for parts in words for at in range(len(parts))}
    return single | {f"{word}s" for word in single}


def test_every_field_has_a_line_or_a_name_that_explains_it() -> None:
    known = terms()
    bare = [
        f"{path.relative_to(ROOT)}: {field}"
        for path in SOURCES
        if not TRAINERS_OWN.fullmatch(path.relative_to(ROOT).as_posix())
        for field in bare_fields(path.read_text(), known)
    ]
    assert bare == [], "give each a line below it: meaning, unit, shape, sign"


def test_the_rule_finds_bare_fields_and_accepts_what_explains_one() -> None:
    source = '''
@dataclass
class Part:
    """A part. size: in bytes."""
    size: int
    step: int
    budget: Budget | None
    least: float
    """In nats."""
    most: float
'''
    assert list(bare_fields(source, {"step"})) == ["Part.most"]
