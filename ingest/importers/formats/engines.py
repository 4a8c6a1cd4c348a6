"""Logs of responses of vLLM and SGLang, by line or in one list: the sampler's side, with token ids where they were asked for.

A reading is a text that the server scored and did not sample: `echo` with no new tokens, or `prompt_logprobs`. It holds the
prompt too, and a join cuts off the response.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ratioscope.flat_json import loaded

from ..row import SetAside, Unreadable, inside
from ..table import FileKind, Format, columns
from ..topk import places_of_texts

_OF_TOKENS = ("token_logprobs", "top_logprobs", "tokens")
_BY_TEXT = "likeliest tokens of a place by text alone, without the ids that return_tokens_as_token_ids gives"


def _choices(line: Any) -> Iterator[Any]:
    """One row for each choice of a response; the response may lie under `response` or `body`, as proxies write it."""
    response = line
    for name in ("response", "body"):
        if isinstance(response, Mapping) and isinstance(response.get(name), Mapping):
            response = response[name]
    listed = response.get("choices") if isinstance(response, Mapping) else None
    choices = listed if isinstance(listed, list) else []
    outer = {**_plain(line), **_plain(response)}
    for place, one in enumerate(choices):
        own = one if isinstance(one, Mapping) else {}
        row = _without_prompt({**outer, **own, "response": response, "line": line, "place": place}, len(choices))
        yield row
        if count := places_of_texts(inside(row, "logprobs.content") or inside(row, "logprobs.top_logprobs")):
            yield SetAside(_BY_TEXT, count)


def _plain(held: Any) -> dict[str, Any]:
    """The fields that are texts or numbers, by which rows of two logs may be joined."""
    fields = held.items() if isinstance(held, Mapping) else ()
    return {name: value for name, value in fields if isinstance(value, (str, int, float))}


def _without_prompt(row: dict[str, Any], choices: int) -> Any:
    """The row without the tokens of an echoed prompt, of which the first has no log-prob; a reading where none was sampled."""
    logprobs: Mapping[str, Any] = held if isinstance(held := row.get("logprobs"), Mapping) else {}
    values = logprobs.get("token_logprobs")
    if not isinstance(values, list) or not values or values[0] is not None:
        return row if held else {**row, **_reading(row)}
    sampled = _sampled(row, choices)
    if sampled is None or not 0 <= sampled <= len(values):
        return Unreadable(
            "it echoes its prompt, and neither usage.completion_tokens nor the prompt says where the response begins"
        )
    if sampled == 0:
        ids = row.get("prompt_token_ids") or inside(row, "response.prompt_token_ids")
        known = {"reading_ids": ids} if isinstance(ids, list) and len(ids) == len(values) else {}
        likeliest = logprobs.get("top_logprobs")
        return {**row, "logprobs": None, "reading": values, "reading_topk": likeliest, "whole_text": 1, **known}
    named = {
        name: each for name in _OF_TOKENS if isinstance(each := logprobs.get(name), list) and len(each) == len(values)
    }
    own = {name: each[-sampled:] for name, each in named.items()}
    return {**row, "logprobs": own, "prompt_tokens": len(values) - sampled}


def _sampled(row: Mapping[str, Any], choices: int) -> int | None:
    """The number of tokens that were sampled, by the server's count, or by where the text of the prompt ends; None: not known."""
    count, prompt = inside(row, "response.usage.completion_tokens"), inside(row, "line.request.prompt")
    if choices == 1 and isinstance(count, int):
        return count
    offsets = inside(row, "logprobs.text_offset")
    if isinstance(prompt, str) and isinstance(offsets, list) and all(isinstance(each, int) for each in offsets):
        return int(sum(each >= len(prompt) for each in offsets))
    return None


def _reading(row: Mapping[str, Any]) -> dict[str, Any]:
    """The log-probs and ids of a text that vLLM scored as a prompt: one mapping a token, from ids to log-probs."""
    scored = row.get("prompt_logprobs") or inside(row, "response.prompt_logprobs")
    if not isinstance(scored, list) or not scored:
        return {}
    ids = row.get("prompt_token_ids") or inside(row, "response.prompt_token_ids")
    ids = ids if isinstance(ids, list) and len(ids) == len(scored) else [None] * len(scored)
    own = [_own(each, known) for each, known in zip(scored, ids, strict=True)]
    found = {"reading": [value for _, value in own], "reading_topk": scored, "whole_text": 1}
    read = [-1 if own[0][0] is None else own[0][0], *(each for each, _ in own[1:])]
    return found if None in read else {**found, "reading_ids": read}


def _own(scored: Any, known: Any) -> tuple[int | None, Any]:
    """(id, log-prob) of the token itself among those that were scored at its place: the known one, or the only one."""
    if not isinstance(scored, Mapping) or not scored:
        return known, None
    if known is None and len(scored) > 1:
        raise ValueError("several tokens were scored at a place, and no prompt_token_ids says which is its own")
    name = str(next(iter(scored)) if known is None else known)
    value = scored.get(name)
    return int(name) if name.isdigit() else None, value.get("logprob") if isinstance(value, Mapping) else value


_OPENAI = FileKind(
    what="responses of an OpenAI-style server with logprobs, and token ids if return_token_ids was set; lines, list or stream",
    file=r".*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("response.choices", "logprobs.content or logprobs.token_logprobs"),
    split=_choices,
    side="rollout",
    columns=columns("""
        step = line.step or line.metadata.step or response.step
        sequence_ids = place | named(@source, @line, response.id)
        rollout_logprobs = logprobs.content or logprobs.token_logprobs | numbers_of(logprob) !
        rollout_topk = logprobs.content or logprobs.top_logprobs | topk
        token_ids = token_ids or logprobs.content or logprobs.tokens | spelled_ids
        token_texts = logprobs.content or logprobs.tokens | token_texts
        prompt_ids = prompt_token_ids or response.prompt_token_ids
        rollout_versions = response.metadata.weight_version or meta_info.weight_version | if_number
        finish_reasons = finish_reason
        replica = response.system_fingerprint
        prompt_tokens = prompt_tokens or response.usage.prompt_tokens
        cached_tokens = response.usage.prompt_tokens_details.cached_tokens
        extra.model = model
        extra.temperature = line.request.temperature
        extra.top_p = line.request.top_p
        extra.message = message
        extra.weight_version = response.metadata.weight_version or meta_info.weight_version | unless_number
    """),
    lacks="the trainer's side, token ids where the server was not asked for them, ids of likeliest tokens unless"
    " return_tokens_as_token_ids was set, and steps where the log names none",
)
_READING = replace(
    _OPENAI,
    what="a text that an OpenAI-style server scored anew: prompt_logprobs of vLLM, or echo without new tokens",
    marks=("reading",),
    side="train",
    columns=columns("""
        step = line.step or line.metadata.step or response.step
        sequence_ids = place | named(@source, @line, response.id)
        old_logprobs = reading !
        old_topk = reading_topk | topk
        token_ids = reading_ids
        key.whole_text = whole_text
    """),
    lacks="the sampler's side, and where the response begins: join it with the log that sampled (--rollout, --train, --on)",
)


def _with_prompt(line: Any) -> Iterator[Any]:
    """The response, with the ids of its prompt where all of them were scored."""
    scored, count = inside(line, "meta_info.input_token_logprobs"), inside(line, "meta_info.prompt_tokens")
    ids = [each[1] for each in scored] if isinstance(scored, list) and scored and len(scored) == count else []
    yield {**line, "scored_ids": ids} if ids and all(isinstance(each, int) for each in ids) else line


_SGLANG = FileKind(
    what="responses of SGLang's /generate with return_logprob; lines, list or stream",
    file=r".*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("meta_info.output_token_logprobs",),
    split=_with_prompt,
    side="rollout",
    columns=columns("""
        step = step or metadata.step
        sequence_ids = meta_info.id or @row | named(@source, @line)
        rollout_logprobs = meta_info.output_token_logprobs | pick(0) !
        rollout_topk = meta_info.output_top_logprobs | topk
        token_ids = meta_info.output_token_logprobs | pick(1)
        token_texts = meta_info.output_token_logprobs | token_texts
        prompt_ids = prompt_token_ids or input_ids or scored_ids
        prompt_tokens = meta_info.prompt_tokens
        cached_tokens = meta_info.cached_tokens
        rollout_versions = meta_info.weight_version | if_number
        finish_reasons = meta_info.finish_reason.type
        extra.weight_version = meta_info.weight_version | unless_number
    """),
    lacks="the trainer's side, and steps where the log names none",
)


def _wherever(*parts: FileKind) -> tuple[FileKind, ...]:
    """The same rows by line, in one JSON list, as a call for a batch returns them, and as server-sent events."""
    ways = (("jsonl|ndjson", "json lines"), ("json", "json"), ("sse", "event stream"))
    return tuple(replace(part, file=rf".*\.(?:{ending})", container=way) for ending, way in ways for part in parts)


def _call(line: Any) -> Iterator[Any]:
    """The call that a row of the gateway holds as JSON."""
    data = loaded(line["data"])
    yield {**data, "line": line} if isinstance(data, dict) else {}


_RLLM = FileKind(
    what="calls of the model gateway",
    file=r".*\.(?:sqlite|sqlite3|db)",
    container="sqlite traces",
    marks=("completion_token_ids", "logprobs"),
    split=_call,
    side="rollout",
    columns=columns("""
        step = step or metadata.step
        sequence_ids = @row | named(session_id)
        group_ids = session_id
        token_ids = completion_token_ids
        prompt_ids = prompt_token_ids
        rollout_logprobs = logprobs !
        rollout_versions = weight_version | if_number
        finish_reasons = finish_reason
        extra.weight_version = weight_version | unless_number
    """),
    lacks="the trainer's side, and steps where the gateway was told none",
)
FORMATS = (
    Format(
        name="openai",
        title="vLLM or SGLang response log (OpenAI style)",
        trainer="vLLM or SGLang",
        parts=_wherever(_OPENAI, _READING),
    ),
    Format(name="sglang", title="SGLang /generate response log", trainer="SGLang", parts=_wherever(_SGLANG)),
    Format(name="rllm", title="rLLM gateway SQLite", trainer="rLLM", parts=(_RLLM,)),
)
