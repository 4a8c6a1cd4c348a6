"""Every control whose choice is in the URL stands where the browser finds it again when something appears above it."""

from collections.abc import Iterator, Sequence

import pytest
from streamlit.proto.Block_pb2 import Block
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.testing.v1 import element_tree, local_script_runner
from support.pages_open import Open

from ratioscope.app.pages.pages import PAGES

Blocks = dict[tuple[int, ...], Block]


@pytest.mark.parametrize("served", [("stale",), ("stale", "healthy")], ids="+".join)
@pytest.mark.parametrize("page", [page.path for page in PAGES])
def test_what_is_in_the_url_does_not_lose_its_place(
    page: str, served: tuple[str, ...], opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[ForwardMsg] = []

    def noted(messages: Sequence[ForwardMsg]) -> element_tree.ElementTree:
        said[:] = messages
        return element_tree.parse_tree_from_messages(list(messages))

    monkeypatch.setattr(local_script_runner, "parse_tree_from_messages", noted)
    opened(page, served)
    blocks = {
        tuple(message.metadata.delta_path): message.delta.add_block
        for message in said
        if message.WhichOneof("type") == "delta" and message.delta.HasField("add_block")
    }
    bound = list(_bound(said))
    assert bound, "no control of this page is in the URL"
    lost = {key: missing for key, path in bound if (missing := _without_a_place(blocks, path))}
    assert not lost, f"give these controls a place with a key, from app/dashboard/panels/layout.py: {lost}"


def _bound(messages: Sequence[ForwardMsg]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name in the URL and path of every control that is in it, drawers included."""
    for message in messages:
        if message.WhichOneof("type") != "delta":
            continue
        kind = message.delta.add_block if message.delta.HasField("add_block") else message.delta.new_element
        name = str(getattr(getattr(kind, str(kind.WhichOneof("type")), None), "query_param_key", ""))
        if name:
            yield name, tuple(message.metadata.delta_path)


def _without_a_place(blocks: Blocks, path: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Blocks around this path that Streamlit's front end knows by their number alone, where something may come before them."""
    around = (path[:length] for length in range(2, len(path)))
    return [at for at in around if not blocks[at].id and not blocks[at].HasField("column") and at[-1] > 0]
