"""Files on disk beside those that a run consists of: files that no commit names, and files that the run can do without."""

from ratioscope.layout import is_offline, writer_of

from ..files.listing import listing
from .catalog import Catalog


def uncommitted_files(catalog: Catalog) -> list[str]:
    """Files on disk that no commit names: the last steps of a writer that was killed or is still writing."""
    return sorted(path for path in _unnamed(catalog) if not is_offline(writer_of(path)))


def unnamed_readings(catalog: Catalog) -> list[str]:
    """Files of readings on disk that no line names."""
    named = {path for history in catalog.histories.values() for path in history.readings}
    return sorted(listing(catalog.root).readings - named - catalog.pruned_paths() - set(catalog.set_aside))


def leftovers(catalog: Catalog) -> list[str]:
    """Files on disk that the run can do without: other files hold their rows, they were pruned, or a verb left them
    unfinished."""
    in_use = {item.path for item in catalog.items()}
    superseded = (catalog.committed_paths() | catalog.gone()) - in_use - set(catalog.set_aside)
    unfinished = {path for path in (*_unnamed(catalog), *unnamed_readings(catalog)) if is_offline(writer_of(path))}
    on_disk = listing(catalog.root)
    unused = on_disk.overall - {file.path for file in catalog.overall()} | on_disk.readings & catalog.pruned_paths()
    return sorted(on_disk.parquet_files & superseded | unfinished | unused)


def _unnamed(catalog: Catalog) -> set[str]:
    """Parquet files on disk that nothing accounts for."""
    accounted = catalog.committed_paths() | set(catalog.recovered_files) | set(catalog.set_aside) | catalog.gone()
    return listing(catalog.root, whole=catalog.lists_store).parquet_files - accounted
