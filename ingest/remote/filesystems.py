"""The filesystem of fsspec for an address. pyarrow holds a client of S3, so that s3:// needs no more.

Credentials come from the environment or the store's own settings: for S3 the variables AWS_*, ~/.aws and the machine's role.
"""

import os
from typing import Any
from urllib.parse import parse_qsl, unquote

from ratioscope.errors import ConfigError, MissingExtra

from .address import Address

S3 = ("s3", "s3a")
_CONNECT_SECONDS, _TRIES = 10, 3
_S3_SETTINGS = ("region", "scheme", "endpoint_override", "anonymous")
"""Options in the query of an s3:// URL, by the names that pyarrow uses: ?endpoint_override=localhost:9000&scheme=http."""


def filesystem_of(address: Address, seconds: float) -> tuple[Any, str]:
    """(the filesystem, the run's path on it). MissingExtra or ConfigError where a package is missing. seconds: for a request."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise MissingExtra(f"{address}", "remote") from error
    if address.scheme in S3:
        return _s3(address, seconds)
    try:
        filesystem, root = url_to_fs(address.url, use_listings_cache=False)
    except ImportError as error:
        raise ConfigError(f"{address.scheme}:// needs a package that is not installed: {error}") from error
    return filesystem, str(root).rstrip("/")


def every_file(filesystem: Any, root: str) -> dict[str, dict[str, Any]]:
    """Path -> facts of every file below the root. FileNotFoundError where there is nothing."""
    arrow = _arrow(filesystem)
    if arrow is None:
        files: dict[str, dict[str, Any]] = filesystem.find(root, detail=True)
        return files
    from pyarrow.fs import FileSelector, FileType

    # `find` would ask for each folder by itself: a run has one per step
    every = arrow.get_file_info(FileSelector(root, recursive=True))
    return {f.path: {"size": f.size, "mtime": f.mtime_ns} for f in every if f.type is FileType.File}


def part_of(filesystem: Any, path: str, start: int, end: int | None, seconds: float) -> bytes:
    """Bytes of a file from `start` to `end`. FileNotFoundError. A package that can end a request ends it after so long."""
    named: dict[str, Any] = {} if _arrow(filesystem) is None else {"seekable": True}  # else `end` is not understood
    if getattr(filesystem, "async_impl", False):
        named["timeout"] = seconds
    data: bytes = filesystem.cat_file(path, start=start or None, end=end, **named)
    return data


def _arrow(filesystem: Any) -> Any:
    """The filesystem of pyarrow that fsspec wraps; None for one of another package."""
    return getattr(filesystem, "fs", None) if type(filesystem).__name__ == "ArrowFSWrapper" else None


def s3_endpoint() -> str:
    """The URL of the server that answers for S3, as AWS's own clients are told of it; empty for AWS itself."""
    named = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    return named.rstrip("/")


def _s3(address: Address, seconds: float) -> tuple[Any, str]:
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    body, _, query = address.url.partition("://")[2].partition("?")
    user, _, place = body.rpartition("@") if "@" in body.partition("/")[0] else ("", "", body)
    settings: dict[str, Any] = dict(parse_qsl(query))
    if unknown := set(settings) - set(_S3_SETTINGS):
        raise ConfigError(f"{address} has the setting {min(unknown)!r}; wanted some of {', '.join(_S3_SETTINGS)}")
    if "anonymous" in settings:
        settings["anonymous"] = settings["anonymous"].lower() in ("1", "true", "yes")
    if user:
        key, _, secret = user.partition(":")
        settings |= {"access_key": unquote(key), "secret_key": unquote(secret)}
    if (elsewhere := s3_endpoint()) and "endpoint_override" not in settings:
        settings["scheme"], _, settings["endpoint_override"] = elsewhere.rpartition("://")
        settings["scheme"] = settings["scheme"] or "https"
    if "region" not in settings:
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        is_of_aws = "endpoint_override" not in settings
        settings["region"] = named or (resolve_s3_region(place.partition("/")[0]) if is_of_aws else "us-east-1")
    stated, half = os.environ.get("AWS_MAX_ATTEMPTS", ""), seconds / 2
    settings |= {
        "connect_timeout": min(_CONNECT_SECONDS, half),
        "request_timeout": half,  # without a byte. One that waits holds one of the threads that all requests share
        "background_writes": False,  # they keep all of a file in memory that the network is slower to take
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=int(stated) if stated.isdecimal() else _TRIES),
    }
    if "allow_delayed_open" in (S3FileSystem.__doc__ or ""):
        # else each small file is an upload in parts: three requests
        settings["allow_delayed_open"] = True
    return ArrowFSWrapper(S3FileSystem(**settings), skip_instance_cache=True), place.rstrip("/")
