"""No pickle runs anything: what a plain one holds is read, and a crafted one is refused, or is plain, or ends its child."""

import collections
import copyreg
import os
import pickle
import pickletools
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.sizes import examples

from ratioscope.errors import UnsafeFile
from ratioscope.ingest.importers.confinement import FileLimits
from ratioscope.ingest.importers.formats import FORMATS
from ratioscope.ingest.importers.restricted.inert import InertDict, InertName, Instance, NumpyArray, NumpyType, opened
from ratioscope.ingest.importers.restricted.names import PLAIN, TENSORS, InertNames, classes, enumeration
from ratioscope.ingest.importers.restricted.plain_value import bounded_tree, in_memory, whole_value
from ratioscope.ingest.importers.restricted.tensors import Storage
from ratioscope.ingest.importers.wall import Ended, apart

SMALL = FileLimits(nbytes=1 << 20)
PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


def read(data: bytes, names: InertNames = PLAIN) -> Any:
    return bounded_tree(whole_value(in_memory(data), names), SMALL)


def read_apart(*pickles: bytes) -> list[str]:
    """What a child makes of pickles: the value, or the words of the refusal."""

    def answers() -> Iterator[bytes]:
        for data in pickles:
            try:
                value = read(data, TRAINER)
                _demand_plain(value)
                yield repr(value)[:100].encode()
            except UnsafeFile as refused:
                assert len(str(refused)) < 400
                yield f"refused: {refused}".encode()

    return [bytes(frame).decode() for frame in apart(answers, SMALL)]


TRAINER = {**TENSORS, **classes(["trainer.Batch"])}
VALUES = (type(None), int, float, str, bytes, bytearray, memoryview, InertName, NumpyType, np.ndarray, np.generic, type)


def _demand_plain(value: Any) -> None:
    """Fails where a value is of a kind that a pickle must not reach."""
    if isinstance(value, (Instance, NumpyArray)):
        value = vars(value) if isinstance(value, NumpyArray) else {"items": value.items, "state": value.state}
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            _demand_plain(part)
    else:
        assert isinstance(value, VALUES) and (not isinstance(value, type) or issubclass(value, Instance)), value


@given(value=PLAIN_VALUES, protocol=st.integers(0, 5))
@example(value=b"\x00\xff", protocol=2)
@example(value=[1.5] * 5000 + [7] * 300 + [70_000] * 300 + [300] * 300, protocol=4)
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    assert read(pickle.dumps(value, protocol)) == value


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


MALFORMED = (
    b"\x80\x04K\x01K\x02\x93.", b"(K\x01tK\x02\x85R.", b"ccollections\nOrderedDict\nK\x01R.",
    b"\x80\x02ctorch\ndevice\n)\x81.", b"\x80\x04]]}K\x01K\x01s\x92.", b"\x80\x02]}b.", b"\x80\x02\x82\x01.",
    b"\x80\x02\x83\x01\x00.", b"\x80\x02\x84\x01\x00\x00\x00.", b"\x80\x05\x97.", b"\xff.", b"h\x05.", b"q\x00.",
    b"K\x01(q\x00.", b"K\x01(a.", b"]u.", b"K\x01K\x02a.", b"}(K\x01u.", b"Ix\n.", b"\x80\x09N.", b"",
)  # fmt: skip
HOSTILE: dict[str, tuple[bytes, str]] = {
    "global": (b"cos\nsystem\n(S'x'\ntR.", "names os.system"),
    "stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "names os.system"),
    "global by dots": (b"\x80\x04\x8c\x05numpy\x8c\x0aos.environ\x93.", "names numpy.os.environ"),
    "builtin": (b"cbuiltins\neval\n(V1\ntR.", "names builtins.eval"),
    "getattr": (b"cbuiltins\ngetattr\n.", "names builtins.getattr"),
    "instance": (b"(V1\nios\nsystem\n.", "names os.system"),
    "object": (b"(cos\nsystem\no.", "names os.system"),
    "build of a name": (b"\x80\x02ctorch\ndevice\n}b.", "state of the name torch.device"),
    "persistent id": (b"K\x01Q.", "persistent id"),
    "persistent id as text": (b"Psomewhere\n.", "persistent id"),
    "a key that is a tuple": (b"})K\x01s.", "no text and no number"),
    "a key that is a list": (b"}]K\x01s.", "unhashable type: 'list'"),
    "a list in itself": (b"]q\x00h\x00a.", "contains itself"),
    "a dictionary in itself": (b"}q\x00K\x01h\x00s.", "contains itself"),
    "deep": (b"]" * 200 + b"a" * 199 + b".", "nested"),
    "deep tuples": (b"N" + b"\x85" * 50_000 + b".", "nested"),
    "doubled lists": (pickle.dumps(_doubled(12)), "decodes to more"),
    "far memo": (b"N" + b"r\xff\xff\xff\xff0.", "decodes to more"),
    "bytes beyond the end": (b"\x8e" + struct.pack("<Q", 1 << 60) + b"x.", "its pickle is damaged|decodes to more"),
    "text beyond the end": (b"X\xff\xff\xff\xffx.", "its pickle is damaged|decodes to more"),
    "frame beyond the end": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.", "its pickle is damaged|decodes to more"),
    "cut off": (pickle.dumps([1.5] * 9, 2)[:-7], "damaged, cut off"),
    "rest": (b"N.N.", "more bytes follow"),
    "a numpy array larger than its bytes": (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n(K\x00tC\x01b\x87R(K\x01(J\xff\xff\xff\x7ftcnumpy\ndtype\n"
        b"(Vf8\nI00\nI01\ntR\x89C\x01xtb.", "more or fewer bytes"),
    "a numpy array of records": (b"cnumpy\ndtype\n(V(2,)f8,i4\ntR.", "no plain one|there is not"),
    "numpy array of nothing": (b"cnumpy.core.multiarray\n_reconstruct\ncos\nsystem\n.", "names os.system"),
    "texts without size": (
        b"cnumpy._core.numeric\n_frombuffer\n"
        b"(C\x00cnumpy\ndtype\n(VU0\nI00\nI01\ntR(J\xff\xff\xff\x7ftVC\ntR.", "malformed|type"),
}  # fmt: skip


def test_a_pickle_that_breaks_the_rules_of_its_language_is_refused() -> None:
    assert all(said.startswith("refused: its pickle is damaged") for said in read_apart(*MALFORMED))


@pytest.mark.parametrize("trick", HOSTILE)
def test_a_crafted_pickle_is_refused_and_its_trick_named(trick: str) -> None:
    data, named = HOSTILE[trick]
    with pytest.raises((UnsafeFile, Ended), match=named):
        raise UnsafeFile(read_apart(data)[0])


PLAIN_ALL_THE_SAME = {
    "a call of a list": (b"ccollections\nOrderedDict\n(cbuiltins\nlist\no.", "[]"), "text of Python 2": (b"S'x'\n.", "'x'"),
    "an item of a list": (b"]K\x01aK\x00K\x02s.", "[2]"), "two values": (b"NK\x01.", "1"),
    "long number": (b"\x8b" + struct.pack("<i", 20) + b"\x01" * 20 + b".", str(int.from_bytes(b"\x01" * 20, "little"))),
}  # fmt: skip
"""Tricks that Python's unpickler carries out, with a plain value: they can reach nothing."""


def test_odd_pickles_that_reach_nothing_are_plain_values() -> None:
    found = read_apart(*(data for data, _ in PLAIN_ALL_THE_SAME.values()))
    for trick, answer in zip(PLAIN_ALL_THE_SAME, found, strict=True):
        assert answer.startswith(PLAIN_ALL_THE_SAME[trick][1]), trick


BOMBS = {
    "objects": lambda: b"]" * (6 << 20) + b".", "marks": lambda: b"(" * (48 << 20) + b".",
    "tuples in tuples": lambda: b"N" + b"\x85" * (8 << 20) + b".", "memo": lambda: b"N" + b"r\xff\xff\xff\x3f" + b".",
    "floats": lambda: b"\x80\x02](" + (b"G" + bytes(8)) * (10 << 20) + b"e.",
}  # fmt: skip


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_that_takes_more_than_it_may_ends_its_child_alone(bomb: str) -> None:
    with pytest.raises(Ended, match="decodes to more than 1048576 bytes.*--most-memory"):
        read_apart(BOMBS[bomb]())


def test_each_stand_in_takes_a_state_by_a_function_of_its_own() -> None:
    """Without one, BUILD writes whatever a file says into the attributes of an object."""
    names = {**TENSORS, **{name: known for each in FORMATS for name, known in each.names.items()}}
    kinds = {known if isinstance(known, type) else type(known) for known in names.values()}
    assert all(hasattr(kind, "__setstate__") for kind in (*kinds, InertDict, NumpyArray, NumpyType, Storage))


@pytest.mark.parametrize("state", [b"}Vmake\nNsVpath\nNs", b"(N}Vmake\nNsVpath\nNst"], ids=["attributes", "slots"])
@pytest.mark.parametrize("name", ["trainer.Batch", "torch._utils._rebuild_parameter", "numpy.dtype", "numpy.ndarray"])
def test_what_a_name_stands_for_cannot_be_changed(name: str, state: bytes) -> None:
    module, _, last = name.rpartition(".")
    before = dict(vars(TRAINER[name]))
    with pytest.raises(UnsafeFile):
        read(f"c{module}\n{last}\n".encode() + state + b"b.", TRAINER)
    assert dict(vars(TRAINER[name])) == before


def test_an_array_takes_a_state_that_fits_it_alone() -> None:
    array, kind = pickle.dumps(np.arange(3), 2)[:-1], b"cnumpy\ndtype\n(Vi8\nI00\nI01\ntR\x89C\x08abcdefghtb."
    assert read(array + b"(K\x01(K\x01t" + kind).array.shape == (1,)
    with pytest.raises(UnsafeFile):
        read(array + b"(K\x01(K\xfft" + kind)


def test_an_extension_that_other_code_has_registered_is_refused_by_its_name() -> None:
    copyreg.add_extension("posix", "system", 241)
    try:
        pickle.loads(pickle.dumps(os.system, 2))
        with pytest.raises(UnsafeFile, match=r"names posix\.system"):
            read(pickle.dumps(os.system, 2))
    finally:
        copyreg.remove_extension("posix", "system", 241)


def test_only_named_classes_have_objects_and_their_state_stays_unread() -> None:
    names = {**PLAIN, **classes(["trainer.Batch"]), **enumeration("trainer.Kind")}
    found = read(b"\x80\x02ctrainer\nBatch\n)\x81}X\x01\x00\x00\x00aK\x01sb.", names)
    assert isinstance(found, Instance) and found.state == {"a": 1} and found.path == "trainer.Batch"
    assert read(b"\x80\x02ctrainer\nKind\nX\x05\x00\x00\x00numpy\x85R.", names) == "numpy"


CODES = sorted(ord(known.code) for known in pickletools.opcodes)
CODED = st.tuples(st.sampled_from(CODES), st.binary(max_size=10)).map(lambda pair: bytes([pair[0]]) + pair[1])
TEXTS = st.sampled_from([b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"cnumpy\ndtype\n", b"cnumpy\nndarray\n",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"cnumpy._core.numeric\n_frombuffer\n", b"ctorch\nSize\n", b"](K\x01K\x02e",
    b"Vf8\n", b"C\x08abcdefgh", b"h\x00", b"\x94", b"(", b"t", b"R", b"b", b"e", b"u", b"0"])  # fmt: skip


PROGRAMS = st.lists(CODED | TEXTS, max_size=40).map(lambda parts: b"".join(parts) + b".")


@given(pickles=st.lists(PROGRAMS, min_size=20, max_size=20))
@examples(15)
def test_whatever_the_opcodes_the_answer_is_a_plain_value_or_a_refusal(pickles: list[bytes]) -> None:
    _demand_answers(pickles)


VALID = pickle.dumps({"a": [1.5, 2.5] * 20, "b": np.arange(5), "c": ("x", b"y", None, {1, 2})}, 4)


CHANGES = st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255), st.integers(0, 5))


@given(changes=st.lists(CHANGES, min_size=20, max_size=20))
@examples(15)
def test_a_changed_byte_gives_a_plain_value_or_a_refusal(changes: list[tuple[int, int, int]]) -> None:
    _demand_answers([(VALID[:at] + bytes([byte]) + VALID[at + 1 :])[: len(VALID) - cut] for at, byte, cut in changes])


def _demand_answers(pickles: list[bytes]) -> None:
    try:
        assert len(read_apart(*pickles)) == len(pickles)
    except Ended as error:
        assert "decodes to more" in str(error), error
