"""The rules of the house, kept by machine: how modules are named in imports, and what a trainer's process loads.

The contracts in pyproject.toml hold who may import whom; `make check` runs them.
"""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.paths import ROOT

ROOMS = ("app", "metrics", "ingest", "collectors", "sample_data")
HEAVY = {"polars", "pandas", "torch", "streamlit", "plotly", "wandb", "trl", "transformers", "typer", "rich"}
FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def test_imports_are_relative_within_a_room_and_absolute_across() -> None:
    for path in FILES:
        room = path.relative_to(ROOT).parts[0]
        inside = [m for m in _ratioscope_imports(path) if m.startswith(f"ratioscope.{room}.")]
        by_file = path.name == "entry.py"  # Streamlit runs it outside its package
        assert not inside or by_file or room == "sample_data", f"{path} names its own room: {inside}"


def test_no_folder_name_is_used_as_an_import_name() -> None:
    # From the root `import metrics` would work by accident; installed, it would be a trainer's own module.
    for path in (*FILES, *sorted((ROOT / "tests").rglob("*.py"))):
        assert not [module for module in _absolute_imports(path) if module.split(".")[0] in ROOMS], path


def test_no_file_of_the_dashboard_shadows_a_module_that_its_process_imports() -> None:
    # Streamlit puts the script's folder first on sys.path.
    stems = {path.stem for path in (ROOT / "app" / "dashboard" / "server").glob("*.py")} - {"__init__"}
    assert not stems & (sys.stdlib_module_names | HEAVY | {"numpy", "pyarrow"})


def test_the_packages_list_names_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    folders = {ROOT / "ratioscope", *(path.parent for path in FILES)}
    found = {
        "ratioscope" if folder.name == "ratioscope" else ".".join(("ratioscope", *folder.relative_to(ROOT).parts))
        for folder in folders
        if (folder / "__init__.py").exists()
    }
    assert listed == found


@pytest.mark.parametrize("module", ["ratioscope", "ratioscope.collectors", "ratioscope.collectors.collector"])
def test_a_trainer_that_imports_the_collector_loads_nothing_heavy(module: str) -> None:
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)
    assert not HEAVY & {name.split(".")[0] for name in loaded}


def test_public_names_resolve_and_an_unknown_one_lists_them() -> None:
    import ratioscope

    for name in ratioscope.__all__:
        assert getattr(ratioscope, name) is not None
    with pytest.raises(AttributeError, match="open_run"):
        _ = ratioscope.no_such_name


def test_a_public_name_of_metrics_stays_what_it_is_whatever_was_imported_before() -> None:
    """A module of the same name would take its place once somebody imports it."""
    from ratioscope import metrics

    stems = {path.stem for path in (ROOT / "metrics").glob("*.py")}
    assert callable(metrics.merge) and not stems & set(metrics._PUBLIC)


def test_every_public_name_of_metrics_leads_to_what_it_names() -> None:
    from ratioscope import metrics

    assert all(getattr(metrics, name) is not None for name in metrics._PUBLIC)


def test_nothing_unsafe_is_called_anywhere() -> None:
    unsafe = ("pickle", "joblib", "torch.load", "eval(", "exec(", "yaml.load(", "shell=True", "persist='disk'")
    for path in FILES:
        code = _without_strings(path.read_text()).replace("list.eval(", "").replace(".eval()", "")
        if path.name == "plain_value.py":  # the one that reads pickles: each name of a file is a stand-in there
            code = code.replace("import pickle\n", "").replace("class _Reader(pickle.Unpickler)", "")
        assert not [word for word in unsafe if word in code], path


def _without_strings(source: str) -> str:
    """The source with docstrings and other constants blanked: words in prose are no calls."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "disk":
            node.value = ""
    return ast.unparse(tree)


def _ratioscope_imports(path: Path) -> Iterator[str]:
    return (module for module in _absolute_imports(path) if module.split(".")[0] == "ratioscope")


@cache
def _absolute_imports(path: Path) -> tuple[str, ...]:
    """The modules that a file imports by their whole name; read once, because two rules ask."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return (*plain, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0))


def test_a_script_beside_the_clone_imports_the_package_and_not_the_folder(tmp_path: Path) -> None:
    """`make demo` writes this line into its environment; without it an editable install loses to a folder of that name."""
    (tmp_path / "ratioscope").mkdir()
    written = (ROOT / "Makefile").read_text().splitlines()
    (line,) = (each.partition(" := ")[2] for each in written if each.startswith("FOUND_FIRST"))
    code = f"{line}\nimport ratioscope\nprint(ratioscope.Collector.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "Collector\n"
