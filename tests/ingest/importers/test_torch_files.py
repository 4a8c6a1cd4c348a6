"""Files of torch.save are read as torch reads them, without torch, and crafted archives are refused."""

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ratioscope.errors import UnsafeFile
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.restricted.plain_value import bounded_tree, in_memory
from ratioscope.ingest.importers.restricted.torch_files import embedded, saved
from ratioscope.ingest.importers.wall import Ended, apart

TYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
)  # fmt: skip


def file_of(value: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def read(data: bytes) -> Any:
    return saved(in_memory(data), {})


@pytest.mark.parametrize("is_archive", [True, False], ids=["archive", "older form"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tensors_of_every_type_are_read_bit_for_bit(dtype: torch.dtype, is_archive: bool) -> None:
    tensor = (torch.arange(24).reshape(4, 6) * 0.37 - 3).to(dtype)
    data = file_of({"a": tensor, "view": tensor[1:, ::2].T}, _use_new_zipfile_serialization=is_archive)
    found, wanted = read(data), torch.load(io.BytesIO(data), weights_only=True)
    for name in ("a", "view"):
        exact = wanted[name].float() if dtype == torch.bfloat16 else wanted[name]
        np.testing.assert_array_equal(found[name], exact.numpy())


def test_tensors_share_their_storage_and_expanded_ones_take_no_memory() -> None:
    row = torch.arange(3.0)
    found = read(
        file_of({"advantages": row[:, None].expand(3, 4), "none": torch.zeros(0, 2), "one": torch.tensor(2.5)})
    )
    assert found["advantages"].strides == (4, 0) and found["advantages"].tolist() == [[n] * 4 for n in (0.0, 1.0, 2.0)]
    assert found["none"].shape == (0, 2) and found["one"] == 2.5


def test_parameters_and_sizes_are_what_they_hold() -> None:
    found = read(
        file_of({"p": torch.nn.Parameter(torch.ones(2)), "s": torch.Size([2, 3]), "d": torch.device("cuda", 1)})
    )
    assert found["p"].tolist() == [1, 1] and found["s"] == (2, 3) and found["d"] == "cuda:1"


class Shouts:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("is_archive", [True, False])
def test_a_file_that_calls_is_refused_and_nothing_runs(tmp_path: Path, is_archive: bool) -> None:
    data = file_of([torch.ones(1), Shouts(tmp_path / "ran")], _use_new_zipfile_serialization=is_archive)
    with pytest.raises(UnsafeFile, match=r"names posix\.mkdir"):
        read(data)
    assert not (tmp_path / "ran").exists()


def archive(*files: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as made:
        for name, content in files:
            made.writestr(name, content)
    return stream.getvalue()


def _number(n: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", n)


def pickled_tensor(size: int, stride: int = 1, offset: int = 0, count: int = 4, storage: str = "FloatStorage") -> bytes:
    """The pickle of a tensor that states these numbers, of the storage 0."""
    key = b"(Vstorage\nctorch\n%s\nV0\nVcpu\n%stQ" % (storage.encode(), _number(count))
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(%s%s%s\x85%s\x85\x89}tR." % (
        key, _number(offset), _number(size), _number(stride))  # fmt: skip


FLOATS = ("x/data/0", np.arange(4, dtype="<f4").tobytes())
PLAIN = archive(("x/data.pkl", pickled_tensor(4)), FLOATS)


def test_the_crafted_archive_is_sound_before_it_is_spoilt() -> None:
    assert read(PLAIN).tolist() == [0, 1, 2, 3]


HOSTILE = {
    "path traversal": (archive(("x/data.pkl", b"N."), ("../../etc/cron.d/x", b"")), "path traversal"),
    "absolute path": (archive(("x/data.pkl", b"N."), ("/etc/passwd", b"")), "path traversal"),
    "drive": (archive(("x/data.pkl", b"N."), ("c:\\x", b"")), "path traversal"),
    "compressed": (archive(("x/data.pkl", b"N."), ("x/data/0", bytes(10**6)), method=zipfile.ZIP_DEFLATED), "compressed"),
    "nested archive": (archive(("x/data.pkl", PLAIN)), "persistent ID"),
    "no value": (archive(("x/data/0", b"")), "0 members data.pkl"),
    "two values": (archive(("x/data.pkl", b"N."), ("y/data.pkl", b"N.")), "2 members data.pkl"),
    "no storage": (archive(("x/data.pkl", pickled_tensor(4))), "which its archive lacks"),
    "storage too small": (archive(("x/data.pkl", pickled_tensor(5, count=5)), FLOATS), "states a storage of 20 bytes"),
    "tensor too large": (archive(("x/data.pkl", pickled_tensor(5)), FLOATS), "reaches to element 4"),
    "tensor of far steps": (archive(("x/data.pkl", pickled_tensor(2, stride=9)), FLOATS), "reaches to element 9"),
    "tensor before its storage": (archive(("x/data.pkl", pickled_tensor(1, offset=-1)), FLOATS), "do not fit"),
    "tensor of backward steps": (archive(("x/data.pkl", pickled_tensor(2, stride=-1)), FLOATS), "stride"),
    "negative size": (archive(("x/data.pkl", pickled_tensor(-1)), FLOATS), "no tuple of at most 8 sizes"),
    "quantised": (archive(("x/data.pkl", pickled_tensor(4, storage="QInt8Storage")), FLOATS), "names torch.QInt8Storage"),
    "state of a storage": (
        archive(("x/data.pkl", pickled_tensor(4).replace(b"tQ", b"tQ}Vdata\nNsb")), FLOATS), "sets the state of a storage"
    ),
    "byte order": (archive(("x/data.pkl", b"N."), ("x/byteorder", b"big")), "byte order"),
    "cut off": (PLAIN[:-30], "cut off"),
    "not an archive": (b"\x00", "invalid load key"),
    "damaged": (PLAIN.replace(FLOATS[1], bytes(16)), "damaged"),
    "two names": (PLAIN.replace(b"x/data/0", b"x/data/1", 1), "differ"),
}  # fmt: skip


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_crafted_archive_is_refused_and_its_trick_named(trick: str) -> None:
    data, named = HOSTILE[trick]
    with pytest.raises(UnsafeFile, match=named):
        read(data)


def test_members_over_one_another_are_refused() -> None:
    one = archive(("x/data.pkl", b"N."), ("x/data/0", b"a"), ("x/data/1", b"a"))
    with zipfile.ZipFile(io.BytesIO(one)) as opened:
        first, second = (opened.getinfo(f"x/data/{n}").header_offset for n in (0, 1))
    directory = one.rindex(b"PK\x01\x02")
    overlapping = bytearray(one)
    overlapping[directory + 42 : directory + 46] = struct.pack("<I", first)
    overlapping[directory + 46 : directory + 54] = b"x/data/0"
    assert second != first
    with pytest.raises(UnsafeFile, match="two members of the name"):
        read(bytes(overlapping))


def test_an_expanded_tensor_counts_in_full() -> None:
    limits = FileLimits(nbytes=1 << 28)
    data = archive(("x/data.pkl", pickled_tensor(1 << 36, stride=0)), FLOATS)
    with pytest.raises(UnsafeFile, match="decodes to more"):
        bounded_tree(read(data), limits)
    with pytest.raises(Ended, match="decodes to more"):
        list(apart(lambda: [read(data).tobytes()], limits))


def test_an_archive_within_a_value_is_read() -> None:
    assert embedded((file_of(torch.zeros(1000)),)).shape == (1000,)
    with pytest.raises(UnsafeFile, match="no bytes"):
        embedded((pickle,))


def test_every_changed_byte_of_an_archive_is_refused_or_changes_nothing() -> None:
    wanted = read(PLAIN).tolist()
    for at in range(len(PLAIN)):
        changed = PLAIN[:at] + bytes([PLAIN[at] ^ 0x41]) + PLAIN[at + 1 :]
        try:
            assert read(changed).tolist() == wanted, at
        except UnsafeFile:
            pass
