"""No pickle is run: what a plain one holds is read as pickle reads it, and a crafted one is refused by the name of its trick."""

import collections
import io
import os
import pickle
import pickletools
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratioscope.errors import UnsafeFile
from ratioscope.ingest.importers.restricted.budget import Allowance, FileLimits
from ratioscope.ingest.importers.restricted.inert import Instance, opened
from ratioscope.ingest.importers.restricted.names import PLAIN, InertNames, classes, enumeration
from ratioscope.ingest.importers.restricted.opcodes import OPERATIONS, REFUSED
from ratioscope.ingest.importers.restricted.plain_value import plain_value

SMALL = FileLimits(nbytes=1 << 20)
PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def read(data: bytes, names: InertNames = PLAIN, limits: FileLimits | None = None) -> Any:
    return plain_value(data, names, Allowance(limits))


@given(value=PLAIN_VALUES, protocol=st.integers(0, 5))
@example(value=b"\x00\xff", protocol=2)
@example(value=[1.5] * 5000 + [7] * 300 + [70_000] * 300 + [300] * 300, protocol=4)
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == value


@given(
    numbers=st.lists(st.floats(width=64) | st.integers(-(2**31), 2**31 - 1), max_size=60), protocol=st.integers(1, 5)
)
def test_runs_of_numbers_are_read_bit_for_bit(numbers: list[float], protocol: int) -> None:
    found = read(pickle.dumps(numbers, protocol))
    assert [(type(n), struct.pack(">d", n)) for n in found] == [(type(n), struct.pack(">d", n)) for n in numbers]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=">i4").reshape(2, 3), np.asfortranarray(np.eye(3)), np.array([True, False]), np.zeros((0, 4)),
     np.array(["a", None, [1]], object), np.array(["uid-1", "ü"]), np.float32(1.5) * np.ones(2, np.float16)],
    ids=lambda array: str(array.dtype),
)  # fmt: skip
def test_numpy_arrays_are_read_by_any_protocol(array: np.ndarray[Any, Any], protocol: int) -> None:
    found = opened(read(pickle.dumps(array, protocol)))
    assert found.dtype == array.dtype and found.shape == array.shape and found.tolist() == array.tolist()


def test_sets_and_ordered_dictionaries_are_lists_and_dictionaries() -> None:
    assert sorted(read(pickle.dumps({1, 2}))) == [1, 2]
    assert read(pickle.dumps(collections.OrderedDict(a=1))) == {"a": 1}
    assert read(pickle.dumps(np.float32(0.5))) == 0.5


class Shouts:
    """Leaves a file behind when a pickle of it is run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_calls_is_refused_by_name_and_nothing_runs(tmp_path: Path) -> None:
    data = pickle.dumps({"samples": [1, Shouts(tmp_path / "ran")]})
    with pytest.raises(UnsafeFile, match=r"names posix\.mkdir"):
        read(data)
    assert not (tmp_path / "ran").exists()
    pickle.loads(data)
    assert (tmp_path / "ran").exists(), "the crafted file does what it is for"


def _doubled(times: int) -> list[Any]:
    part: list[Any] = [1]
    for _ in range(times):
        part = [part] * 20
    return part


HOSTILE: dict[str, tuple[bytes, str]] = {
    "global": (b"cos\nsystem\n(S'x'\ntR.", "names os.system"),
    "stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "names os.system"),
    "global by dots": (b"\x80\x04\x8c\x05numpy\x8c\x0aos.environ\x93.", "names numpy.os.environ"),
    "global that is no text": (b"\x80\x04K\x01K\x02\x93.", "no text"),
    "builtin": (b"cbuiltins\neval\n(V1\ntR.", "names builtins.eval"),
    "getattr": (b"cbuiltins\ngetattr\n.", "names builtins.getattr"),
    "call of a value": (b"(K\x01tK\x02\x85R.", "it calls a tuple"),
    "call without arguments": (b"ccollections\nOrderedDict\nK\x01R.", "it calls a name"),
    "instance": (b"(V1\nios\nsystem\n.", "opcode INST"),
    "object": (b"(cos\nsystem\no.", "names os.system"),
    "object of a call": (b"ccollections\nOrderedDict\n(cbuiltins\nlist\no.", "opcode OBJ"),
    "new object": (b"\x80\x02ctorch\ndevice\n)\x81.", "makes an object of torch.device"),
    "new object by name": (b"\x80\x04]]}K\x01K\x01s\x92.", "NEWOBJ_EX"),
    "build": (b"\x80\x02]}b.", "state of a list"),
    "build of a name": (b"\x80\x02ctorch\ndevice\n}b.", "state of a name"),
    "extension 1": (b"\x80\x02\x82\x01.", "opcode EXT1"),
    "extension 2": (b"\x80\x02\x83\x01\x00.", "opcode EXT2"),
    "extension 4": (b"\x80\x02\x84\x01\x00\x00\x00.", "opcode EXT4"),
    "persistent id": (b"K\x01Q.", "persistent id"),
    "persistent id as text": (b"Psomewhere\n.", "opcode PERSID"),
    "buffer outside": (b"\x80\x05\x97.", "opcode NEXT_BUFFER"),
    "python 2 text": (b"S'x'\n.", "opcode STRING"),
    "unknown opcode": (b"\xff.", "byte 0xff"),
    "memo never set": (b"h\x05.", "recalls value 5"),
    "memo of the empty stack": (b"q\x00.", "where there is none"),
    "memo across a mark": (b"K\x01(q\x00.", "where there is none"),
    "pop beyond a mark": (b"K\x01(a.", "where there is none"),
    "mark never set": (b"]u.", "mark that it never set"),
    "append to a number": (b"K\x01K\x02a.", "appends to a int"),
    "items of a list": (b"]K\x01K\x02s.", "items of a list"),
    "odd items": (b"}(K\x01u.", "pairs"),
    "a key that is a list": (b"}]K\x01s.", "no text and no number"),
    "a list in itself": (b"]q\x00h\x00a.", "contains itself"),
    "a dictionary in itself": (b"}q\x00K\x01h\x00s.", "contains itself"),
    "deep": (b"]" * 200 + b"a" * 199 + b".", "nested"),
    "deep tuples": (b"N" + b"\x85" * 50_000 + b".", "nested|decodes to"),
    "doubled lists": (pickle.dumps(_doubled(12)), "shared parts"),
    "many objects": (b"]" + b"]" * 100_000 + b".", "decodes to more"),
    "many marks": (b"(" * 100_000 + b".", "decodes to more"),
    "many memos": (b"N" + b"".join(b"r" + struct.pack("<I", 7919 * n) for n in range(40_000)) + b".", "decodes to more"),
    "far memo": (b"N" + b"r\xff\xff\xff\xff0.", "where there is none"),
    "bytes beyond the end": (b"\x8e" + struct.pack("<Q", 1 << 60) + b"x.", "has 2 left"),
    "text beyond the end": (b"X\xff\xff\xff\xffx.", "has 2 left"),
    "long number": (b"\x8b" + struct.pack("<i", 4000) + b"\x01" * 4000 + b".", "whole number of 4000 bytes"),
    "long digits": (b"L" + b"9" * 4000 + b"L\n.", "number of 4000 characters"),
    "no number": (b"Ix\n.", "number that is none"),
    "frame beyond the end": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.", "frame"),
    "protocol": (b"\x80\x09N.", "protocol 9"),
    "empty": (b"", "cut off"),
    "cut off": (pickle.dumps([1.5] * 9, 2)[:-7], "middle of a number"),
    "rest": (b"N.N.", "2 more bytes follow"),
    "two values": (b"NN.", "leaves values behind"),
    "a numpy array larger than its bytes": (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(K\x00tC\x01b\x87R(K\x01(J\xff\xff\xff\x7ftcnumpy\ndtype\n"
        b"(Vf8\nI00\nI01\ntR\x89C\x01xtb.", "more or fewer bytes"),
    "a numpy array of records": (b"cnumpy\ndtype\n(V(2,)f8,i4\ntR.", "no plain one|there is not"),
    "numpy array of nothing": (b"cnumpy.core.multiarray\n_reconstruct\ncos\nsystem\n.", "names os.system"),
    "texts without size": (
        b"cnumpy._core.numeric\n_frombuffer\n"
        b"(C\x00cnumpy\ndtype\n(VU0\nI00\nI01\ntR(J\xff\xff\xff\x7ftVC\ntR.", "malformed|type"),
}  # fmt: skip


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_crafted_pickle_is_refused_and_its_trick_named(trick: str) -> None:
    data, named = HOSTILE[trick]
    with pytest.raises(UnsafeFile, match=named):
        read(data, limits=SMALL)


def test_only_named_classes_have_objects_and_their_state_stays_unread() -> None:
    names = {**PLAIN, **classes(["trainer.Batch"]), **enumeration("trainer.Kind")}
    found = read(b"\x80\x02ctrainer\nBatch\n)\x81}X\x01\x00\x00\x00aK\x01sb.", names)
    assert isinstance(found, Instance) and found.state == {"a": 1} and found.path == "trainer.Batch"
    assert read(b"\x80\x02ctrainer\nKind\nX\x05\x00\x00\x00numpy\x85R.", names) == "numpy"


def test_every_opcode_of_the_language_is_carried_out_or_refused_by_its_name() -> None:
    known = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes if opcode.name != "STOP"}
    assert set(OPERATIONS) | set(REFUSED) == set(known) and not set(OPERATIONS) & set(REFUSED)
    assert {code: known[code] for code in REFUSED} == REFUSED


CODES = sorted(ord(known.code) for known in pickletools.opcodes)
CODED = st.tuples(st.sampled_from(CODES), st.binary(max_size=10)).map(lambda pair: bytes([pair[0]]) + pair[1])
TEXTS = st.sampled_from([b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy._core.numeric\n_frombuffer\n", b"ctorch\nSize\n", b"](K\x01K\x02e",
    b"Vf8\n", b"C\x08abcdefgh", b"h\x00", b"\x94", b"(", b"t", b"R", b"b", b"e", b"u", b"0"])  # fmt: skip


@given(parts=st.lists(CODED | TEXTS, max_size=40))
@settings(max_examples=150)
def test_whatever_the_opcodes_the_answer_is_a_plain_value_or_a_refusal(parts: list[bytes]) -> None:
    _read_or_refused(b"".join(parts) + b".")


VALID = pickle.dumps({"a": [1.5, 2.5] * 20, "b": np.arange(5), "c": ("x", b"y", None, {1, 2})}, 4)


@given(at=st.integers(0, len(VALID) - 1), byte=st.integers(0, 255), cut=st.integers(0, 5))
@settings(max_examples=150)
def test_a_changed_byte_gives_a_plain_value_or_a_refusal(at: int, byte: int, cut: int) -> None:
    changed = VALID[:at] + bytes([byte]) + VALID[at + 1 :]
    _read_or_refused(changed[: len(changed) - cut])


def _read_or_refused(data: bytes) -> None:
    tracemalloc.start()
    try:
        read(data, limits=SMALL)
    except UnsafeFile as refused:
        assert len(str(refused)) < 400
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 4 * SMALL.nbytes


@pytest.mark.parametrize("size", [10_000, 1_000_000])
def test_memory_stays_below_what_is_charged(size: int) -> None:
    stream = io.BytesIO()
    pickle.dump({"floats": [float(n) for n in range(size // 10)], "text": "x" * size}, stream)
    with pytest.raises(UnsafeFile, match="decodes to more"):
        read(stream.getvalue(), limits=FileLimits(nbytes=size // 4))
