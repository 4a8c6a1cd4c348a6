"""Every Python process of a job that `ratioscope run` started runs this at its start: its folder is first on PYTHONPATH.

It adds one finder to sys.meta_path and imports nothing. Only a process that begins to import a trainer's package, or ray, loads
ratioscope. Then it runs the sitecustomize that it hides, if there is one. It must also run in old Pythons, down to 3.6.
"""

import os
import sys

AWAITED = (
    "areal", "art", "megatron.rl", "miles", "molt", "nemo_rl", "open_instruct", "openrlhf", "prime_rl", "ray", "roll", "skyrl",
    "slime", "swift", "tinker_cookbook", "torchtitan.experiments.rl", "training", "trl", "unsloth", "verl", "xtuner",
)  # fmt: skip
"""The packages of the table of adapters, and ray. This is a copy: to read the table takes longer than Python's start."""


class Trigger:
    """Finds no module. At the first import of a package in AWAITED it adds ratioscope's finder, and asks all finders again."""

    is_done = False

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        if name not in AWAITED or Trigger.is_done:
            return None
        Trigger.is_done = True
        begin()
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec: object = None if find is None else find(name, path, target)
            if spec is not None:
                return spec
        return None


def begin() -> None:
    """Has ratioscope watch the imports of this process. Writes a line if ratioscope is not installed; never raises."""
    try:
        from importlib import import_module

        import_module("ratioscope.collectors.environment").install()
    except Exception as error:
        python = sys.executable
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
        is_checkout = os.path.exists(os.path.join(root, "pyproject.toml"))
        source = root if is_checkout else "followed by what ratioscope was installed from here"
        sys.stderr.write(
            f"ratioscope: {python} cannot import ratioscope ({error}), so that this process is not recorded; it goes on "
            f"without. To record it: {python} -m pip install {source}\n"
        )


def run_hidden() -> None:
    """Imports the sitecustomize that Python finds without our folder. Python's site reports what that raises, as always."""
    here = os.path.dirname(os.path.abspath(__file__))
    places = [place for place, folder in enumerate(sys.path) if os.path.abspath(folder) == here]
    folders = [sys.path.pop(place) for place in reversed(places)][::-1]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # pyright: ignore[reportUnusedImport, reportSelfImport]
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        for place, folder in zip(places, folders):  # noqa: B905  # strict is newer than 3.6
            sys.path.insert(place, folder)
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


if os.environ.get("RATIOSCOPE_RUN"):
    sys.meta_path.insert(0, Trigger)  # type: ignore[arg-type]
run_hidden()
