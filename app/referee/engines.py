"""Scores recorded tokens with a running vLLM or SGLang server: the log-probs that its prefill gives to prompt and response.

vLLM: POST /v1/completions with `prompt_logprobs`; SGLang: POST /generate with `logprob_start_len`. Both score a prompt before
temperature, truncation and penalties, whatever their log-prob mode is (vLLM 0.33, SGLang 0.5.23), and neither reads these
positions from its prefix cache. Another temperature is computed from the likeliest tokens of each place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ratioscope.arrays import Floats, Singles
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.comparability import run_facts

from .inputs import ModelBounds, Sequence_, batches
from .likeliest import ABOVE, LIKELIEST, NONE, Likeliest, asked, between, likeliest, likeliest_in
from .server import Server, answered

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

T = TypeVar("T")
IN_FLIGHT = 2
"""Requests at a time, unless another number is given."""
REQUEST_TOKENS = 16384
"""Tokens of a request, the longest sequence counted for each; a longer sequence is a request of its own. A convention."""
AT_ONCE = 128
"""Sequences whose readings are written together: no more are asked for twice after a call that was killed."""
BYTES_OF_TOKEN = 512
"""Bytes of an answer for each token that was sent, at most. An entry of vLLM takes about 80, of SGLang 30."""
LIKELIEST_TOKENS = 2048
"""As REQUEST_TOKENS, for requests whose answers have LIKELIEST entries for each token."""


@dataclass(frozen=True)
class Engine:
    """A server that was asked what it is."""

    server: Server
    kind: str
    """vllm or sglang."""
    served: str
    """The name of the model that reads."""
    root: str
    """The path of its weights, as the server tells it; "" if it does not."""
    room: ModelBounds
    """The sequences that the server can read."""
    made_of: dict[str, Any]
    """Engine, version and name of the model, as a reading keeps them. The address is not among them."""
    in_flight: int = IN_FLIGHT
    """Requests at a time."""
    at_once: int = AT_ONCE
    """Sequences that are read, and written, together."""
    parent: str = ""
    """The name of the model that it is a LoRA adapter of; "" if it is none."""
    request_tokens: int | None = None
    """Tokens of a request; None: REQUEST_TOKENS."""
    temperature: float = 1.0
    """The temperature of the log-probs that it gives. The middle between the bounds is given at another one than 1."""
    unsure: list[Floats] = field(default_factory=list, compare=False)
    """Half the distance between the bounds of each token that was given so, nats."""

    @property
    def name(self) -> str:
        return f"{self.made_of['engine']} that serves {self.made_of['served']}"

    @property
    def place(self) -> str:
        """Address and model: two servers may have one name."""
        return f"{self.server.address}#{self.served}"

    @property
    def weights(self) -> tuple[str, str, str]:
        """Name, path and version of its weights: servers that have these in common are replicas."""
        return self.served, self.root, str(self.made_of.get("weight_version", ""))

    def scores(self, sequences: Sequence[Sequence_], how: object = None) -> Iterator[tuple[int, Singles]]:
        """(index of a sequence, log-probs of its response tokens in nats)."""
        if self.temperature == 1:
            yield from self._answers(sequences, self._read, self.request_tokens or REQUEST_TOKENS)
            return
        for index, known in self.likeliest(sequences):
            low, high = between(known, ("temperature", self.temperature))
            self.unsure.append((high - low) / 2)
            yield index, ((low + high) / 2).astype(np.float32)

    def likeliest(self, sequences: Sequence[Sequence_]) -> Iterator[tuple[int, Likeliest]]:
        """(index of a sequence, log-probs of its response tokens and of the likeliest tokens, in nats at temperature 1)."""
        return self._answers(
            sequences, self._read_likeliest, min(self.request_tokens or REQUEST_TOKENS, LIKELIEST_TOKENS)
        )

    def at(self, temperature: float) -> "Engine":
        """The same server, read at this temperature."""
        if temperature == 1:
            return self
        made_of = self.made_of | {"temperature": temperature, "likeliest tokens": LIKELIEST}
        return replace(self, temperature=temperature, made_of=made_of, unsure=[])

    def _answers(
        self, sequences: Sequence[Sequence_], read: Callable[[Sequence[Sequence_]], list[T]], most: int
    ) -> Iterator[tuple[int, T]]:
        few = list(batches([sequence.length for sequence in sequences], most))
        chosen = [[sequences[index] for index in each] for each in few]
        found = answered((partial(read, own) for own in chosen), self.in_flight)
        for indices, each in zip(few, found, strict=True):
            yield from zip(indices, each, strict=True)

    def ask(self, path: str, body: Any, tokens: int) -> Any:
        """The server's answer on so many tokens, bounded by their number."""
        return self.server.ask(path, body, most_bytes=(1 << 20) + BYTES_OF_TOKEN * tokens)

    def adapters(self, number: int) -> dict[str, Any]:
        """The part of SGLang's body that names the adapter for so many prompts; vLLM has it as its model."""
        return {"lora_path": [self.served] * number} if self.parent else {}

    def _read(self, sequences: Sequence[Sequence_]) -> list[Singles]:
        path, body = _REQUESTS[self.kind](self, sequences)
        answer = self.ask(path, body, sum(sequence.length for sequence in sequences))
        with well_formed(self, path):
            pairs = _PAIRS[self.kind](answer, sequences)
            return [checked(*each) for each in zip(sequences, pairs, strict=True)]

    def _read_likeliest(self, sequences: Sequence[Sequence_]) -> list[Likeliest]:
        path, body = _REQUESTS[self.kind](self, sequences)
        body |= asked(self.kind, len(sequences))
        answer = self.ask(path, body, (1 + LIKELIEST) * sum(sequence.length for sequence in sequences))
        with well_formed(self, path):
            own = [checked(*each) for each in zip(sequences, _PAIRS[self.kind](answer, sequences), strict=True)]
            tops = likeliest_in(self.kind, answer, [len(sequence.response) for sequence in sequences])
            return [likeliest(*each) for each in zip(own, tops, strict=True)]


@contextmanager
def well_formed(engine: Engine, path: str) -> Iterator[None]:
    """SourceError with the server's address for an answer to this path that has another form, or a fault."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        if isinstance(error, SourceError):
            raise SourceError(f"{engine.server.address}: {error}") from None
        what = f"the answer to {path} has another form ({type(error).__name__}: {str(error)[:100]})"
        raise SourceError(f"{engine.server.address}: {what}; wanted that of {_BRANDS[engine.kind]}'s {path}") from error


Pairs = list[tuple[int, float]]
"""(token id, log-prob) of each response token."""


def _vllm_request(engine: Engine, sequences: Sequence[Sequence_]) -> tuple[str, dict[str, Any]]:
    prompts = [[*sequence.prompt, *sequence.response] for sequence in sequences]
    body = {"model": engine.served, "prompt": prompts, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
    return "/v1/completions", body


def sglang_request(engine: Engine, sequences: Sequence[Sequence_]) -> tuple[str, dict[str, Any]]:
    """(path, body) of a prefill. The cache may be read before `logprob_start_len`."""
    return "/generate", engine.adapters(len(sequences)) | {
        "input_ids": [[*sequence.prompt, *sequence.response] for sequence in sequences],
        "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
        "return_logprob": True,
        "logprob_start_len": [len(sequence.prompt) - 1 for sequence in sequences],
    }


def _vllm_pairs(answer: Any, sequences: Sequence[Sequence_]) -> list[Pairs]:
    """Each place has a mapping of token id -> entry, the first place none. The recorded id has to be in it."""
    choices = sorted(answer["choices"], key=lambda choice: choice["index"])
    return [_vllm_row(*each) for each in zip([choice["prompt_logprobs"] for choice in choices], sequences, strict=True)]


def _vllm_row(places: Sequence[Mapping[str, Any]], sequence: Sequence_) -> Pairs:
    demand_length(len(places), sequence.length, sequence)
    own = places[len(sequence.prompt) :]
    ids = [id if str(id) in place else int(next(iter(place))) for id, place in zip(sequence.response, own, strict=True)]
    return [(id, place[str(id)]["logprob"]) for id, place in zip(ids, own, strict=True)]


def _sglang_pairs(answer: Any, sequences: Sequence[Sequence_]) -> list[Pairs]:
    """Each place has [log-prob, id, text], from the last of the prompt on, which has no log-prob."""
    rows = [one["meta_info"]["input_token_logprobs"] for one in answer]
    for row, sequence in zip(rows, sequences, strict=True):
        demand_length(len(row), len(sequence.response) + 1, sequence)
    return [[(id, logprob) for logprob, id, *_ in row[1:]] for row in rows]


_REQUESTS = {"vllm": _vllm_request, "sglang": sglang_request}
_PAIRS = {"vllm": _vllm_pairs, "sglang": _sglang_pairs}
_BRANDS = {"vllm": "vLLM", "sglang": "SGLang"}


def demand_length(found: int, wanted: int, sequence: Sequence_) -> None:
    """SourceError unless the answer has as many places as were asked for."""
    if found != wanted:
        raise SourceError(
            f"the answer has {found} places for the {wanted} that were asked for of sequence {sequence.sequence_id!r}, step"
            f" {sequence.step}: the server cut the tokens, or scored others; nothing of it is kept"
        )


def checked(sequence: Sequence_, pairs: Pairs) -> Singles:
    """The log-probs of a sequence. SourceError unless they are of its own tokens, and are log-probs."""
    at = f"sequence {sequence.sequence_id!r} of step {sequence.step}"
    for place, (wanted, (id, logprob)) in enumerate(zip(sequence.response, pairs, strict=True)):
        if id != wanted:
            raise SourceError(
                f"{at} has token id {wanted} at place {place} of its response, the server scored {id}: it changes what it is"
                " given; nothing of it is kept"
            )
        if type(logprob) not in (float, int) or not NONE < logprob <= ABOVE:  # a NaN is neither above nor below
            raise SourceError(
                f"{at}, place {place}: the server gives the log-prob {str(logprob)[:40]}; wanted a finite number of at most 0."
                " A server with --logprobs-mode raw_logits or processed_logits gives logits"
            )
    return np.array([logprob for _, logprob in pairs], np.float32)


def engine_at(server: Server, in_flight: int = IN_FLIGHT) -> Engine:
    """The engine at an address: its kind, version, model and context. SourceError if it is neither vLLM nor SGLang."""
    return engines_at({"": server}, in_flight)[""]


def engines_at(servers: Mapping[str, Server], in_flight: int = IN_FLIGHT) -> dict[str, Engine]:
    """The engines at several addresses, by the same names. All are asked at once."""
    asked = (partial(_engine, server, in_flight) for server in servers.values())
    return dict(zip(servers, answered(asked, len(servers)), strict=True))


def _engine(server: Server, in_flight: int) -> Engine:
    cards = _cards(server)
    own = {str(card["owned_by"]) for card in cards} & set(_REQUESTS)
    if len(own) != 1:
        owners = ", ".join(sorted({str(card["owned_by"])[:40] for card in cards})) or "none"
        raise SourceError(
            f"{server.address}/v1/models names {owners} as the owner of its models; wanted a vLLM or an SGLang server"
        )
    (kind,) = own
    names = [server.plain(str(card["id"])) for card in cards]
    if not server.model and len([card for card in cards if not card.get("parent")]) != 1:
        raise SourceError(f"{server.address} serves {', '.join(names)}; say which: {server.address}#NAME")
    card = next((card for card in cards if card["id"] == server.model), None) if server.model else cards[0]
    if card is None:
        raise SourceError(f"{server.address} serves {', '.join(names)}; wanted {server.model}")
    told = _told(server, kind)
    lengths = [each for one in (card, cards[0]) if type(each := one.get("max_model_len")) is int]
    room = ModelBounds(1 << 31, lengths[0] - 1 if lengths else None, f"the server ({kind})")
    root = str(told.pop("model_path", card.get("root") or ""))
    engine = f"{kind} {told.pop('version', 'of unknown version')}"
    made_of = {"engine": engine, "served": server.plain(str(card["id"])), "log-probs": "prompt", **told}
    return Engine(server, kind, str(card["id"]), root, room, made_of, in_flight, parent=str(card.get("parent") or ""))


def _cards(server: Server) -> list[dict[str, Any]]:
    """The models that the server lists, each with an id and an owner."""
    answer = server.ask("/v1/models")
    cards = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(cards, list) or not all(
        isinstance(card, dict) and {"id", "owned_by"} <= card.keys() for card in cards
    ):
        raise SourceError(f"{server.address}/v1/models is no list of models; wanted a vLLM or an SGLang server")
    return cards


_TOLD: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {"/version": ("version",)},
    "sglang": {"/model_info": ("model_path", "weight_version"), "/server_info": ("version",)},
}
"""Kind -> path -> what is read there. SGLang had these paths as /get_… before."""


def _told(server: Server, kind: str) -> dict[str, str]:
    """The facts that a server gives on itself: its version, the path of its weights and their version, as far as it does."""
    found: dict[str, str] = {}
    for path, names in _TOLD[kind].items():
        for each in (path, f"/get_{path[1:]}"):
            try:
                answer = server.ask(each, most_bytes=1 << 22)
            except SourceError:
                continue
            own = answer if isinstance(answer, dict) else {}
            found |= {name: server.plain(str(own[name])) for name in names if own.get(name) is not None}
            break
    return found


def demand_model(run: "Run", engine: Engine) -> str:
    """SourceError if the server has another model than the run's by its name; a doubt in words, "" where there is none."""
    recorded = run_facts(run.info).model
    if recorded is None:
        return f"the run's model is not on record: nothing shows that {engine.made_of['served']} is the one"
    names = {_plain(engine.served), _plain(engine.root), _plain(engine.parent)} - {""}
    if _plain(recorded) in names:
        return ""
    served = engine.made_of["served"]
    differ = f"the run's model is {recorded}, the server at {engine.server.address} serves {served}"
    if not engine.server.model:
        given = f"{engine.server.address}#{served}"
        raise SourceError(
            f"{differ}: nothing is read. If they are the same, say so by the model's name: --engine {given}"
        )
    return differ


def _plain(name: str) -> str:
    """The last part of a model's name or path, in small letters."""
    return name.rstrip("/").rpartition("/")[2].lower()
