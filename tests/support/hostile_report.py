"""A run whose every text is hostile, as the data of its report."""

import pytest

from ratioscope import open_run
from ratioscope.app.documents.material import Material, material
from support.hostile import HOSTILE
from support.real_runs import records
from support.recorded import recorded
from support.run_folders import FakeWriter, write_run_file


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Material:
    """Every text that a run can hold, hostile: each payload as a token of the worst sequences, as prompt, id, name and note."""
    payloads = [text.encode("utf-8", "replace").decode() for text in HOSTILE]
    folder = tmp_path_factory.mktemp("runs") / "hostile"
    table = records("lcpp_q4_1")
    lengths = [len(row or ()) for row in table["token_ids"].to_pylist()][:32]
    texts = [
        [payloads[(row * 7 + place) % len(payloads)] for place in range(length)] for row, length in enumerate(lengths)
    ]
    recorded(
        "lcpp_q4_1", folder, steps=1, name=payloads[0], token_texts=texts, prompt_texts=[payloads[n % 40] for n in range(32)],
        sequence_ids=[f"{n} {payloads[n % 40]}" for n in range(32)], group_ids=[payloads[n % 40] for n in range(32)],
        replica=[payloads[n % 40] for n in range(32)], finish_reasons=[payloads[n % 40] for n in range(32)],
    )  # fmt: skip
    writer = FakeWriter(folder, "r00001-host-1-abcdef", 1).open()
    for payload in payloads[:40]:
        writer.event(payload, 0, payload)
        writer.drop(0, 1, 1, payload)
    write_run_file(
        folder, name=payloads[0], trainer=payloads[2], config={payload: payload for payload in payloads[:40]}
    )
    (folder / "tokens" / "step=000000000" / "<img src=x onerror=alert(1)>.parquet").write_bytes(b"no parquet")
    return material(open_run(folder))
