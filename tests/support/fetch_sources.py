"""Brings every source of sources.py into a folder: `make upstream-sources SOURCES=DIR`. What lies there already is kept."""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from support.sources import CHECKOUTS, Checkout

GITHUB = "https://github.com/"


def fetched(checkout: Checkout, place: Path, host: str) -> None:
    """Unpacks the wheel, or checks the commit out, at this place."""
    _, pypi, name = checkout.repository.rpartition("pypi:")
    if pypi:
        with TemporaryDirectory() as downloaded:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloaded]
            # its source is read and not installed, so that the Python it asks for does not matter
            any_python = ["--only-binary=:all:", "--python-version=3.12"]
            subprocess.run([*pip, *any_python, f"{name}=={checkout.commit}"], check=True)
            (wheel,) = Path(downloaded).glob("*.whl")
            ZipFile(wheel).extractall(place)
        return
    # without file contents: a short name of a commit cannot be fetched alone
    clone = [
        "git",
        "clone",
        "--quiet",
        "--filter=blob:none",
        "--no-checkout",
        f"{host}{checkout.repository}",
        str(place),
    ]
    subprocess.run(clone, check=True)
    subprocess.run(["git", "-C", str(place), "checkout", "--quiet", checkout.commit], check=True)


def bring(folder: Path, host: str = GITHUB) -> int:
    """Number of sources that could not be brought."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, checkout in CHECKOUTS.items():
        place = folder / f"{name}-{checkout.commit}"
        if place.exists():
            continue
        print(f"{place}: {checkout.repository} at {checkout.commit}", flush=True)
        with TemporaryDirectory(dir=folder) as part:  # so that what was cut off does not count as there
            try:
                fetched(checkout, Path(part) / name, host)
                (Path(part) / name).rename(place)
            except (subprocess.CalledProcessError, ValueError) as error:
                failed += 1
                print(f"{place} could not be brought: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(bool(bring(Path(sys.argv[1]))))
