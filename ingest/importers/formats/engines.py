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
from .requests import of_request, turn_of

_OF_TOKENS = ("token_logprobs", "top_logprobs", "tokens")
_BY_TEXT = "likeliest tokens of a place by text alone, without the ids that return_tokens_as_token_ids gives"
_UNSCORED = "sampled tokens that completion_tokens counts and the log has no log-prob of, such as hidden reasoning"
_OF_STREAM = (
    "it is one part of a streamed response, among whole ones; name the file .sse, and parts of one id are put together"
)


def _choices(line: Any) -> Iterator[Any]:
    """One row for each choice of a response; the response may lie under `response` or `body`, as proxies write it."""
    response = line
    for name in ("response", "body"):
        if isinstance(response, Mapping) and isinstance(response.get(name), Mapping):
            response = response[name]
    listed = response.get("choices") if isinstance(response, Mapping) else None
    choices = listed if isinstance(listed, list) else []
    if not choices and (inside(response, "error") or inside(line, "error")):
        yield Unreadable("the server answered with an error")
    outer, tokens = {**_plain(line), **_plain(response)}, 0
    for place, one in enumerate(choices):
        own = one if isinstance(one, Mapping) else {}
        asked = of_request(line, own["index"] if type(own.get("index")) is int else place, len(choices))
        answer = {**response, "usage": None} if "asked_several" in asked else response  # it counts all prompts together
        whole = {**outer, **own, **asked, "response": answer, "line": line, "place": place}
        row = Unreadable(_OF_STREAM) if _is_part(whole) else _without_prompt(whole, len(choices))
        sampled = _sampled_tokens(row)
        yield _with_turn(row, sampled)
        tokens += sampled
        if count := places_of_texts(inside(row, "logprobs.content") or inside(row, "logprobs.top_logprobs")):
            yield SetAside(_BY_TEXT, count)
    if tokens and (count := _whole(inside(response, "usage.completion_tokens")) - tokens) > 0:
        yield SetAside(_UNSCORED, count)


def _is_part(row: Mapping[str, Any]) -> bool:
    """True for a part of a stream that stands by itself: the parts of a stream that were put together have no such mark."""
    is_open = row.get("object") == "text_completion" and "finish_reason" in row and row["finish_reason"] is None
    return "delta" in row or (is_open and "prompt_logprobs" not in row and not inside(row, "response.usage"))


def _sampled_tokens(row: Any) -> int:
    """The number of log-probs of sampled tokens; 0 where the row is none, or a reading."""
    listed = inside(row, "logprobs.content") or inside(row, "logprobs.token_logprobs")
    return len(listed) if isinstance(listed, list) else 0


def _with_turn(row: Any, sampled: int) -> Any:
    """The row with the turn of each of its tokens, if the request has the conversation."""
    turn = turn_of(row["asked"]) if sampled and isinstance(row, Mapping) else None
    return row if turn is None else {**row, "turns": [turn] * sampled}


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def _plain(held: Any) -> dict[str, Any]:
    """The fields that are texts or numbers, by which rows of two logs may be joined."""
    fields = held.items() if isinstance(held, Mapping) else ()
    return {name: value for name, value in fields if isinstance(value, (str, int, float))}


def _without_prompt(row: dict[str, Any], choices: int) -> Any:
    """The row without the tokens of an echoed prompt, of which the first has no log-prob; a reading where none was sampled."""
    logprobs: Mapping[str, Any] = held if isinstance(held := row.get("logprobs"), Mapping) else {}
    values = logprobs.get("token_logprobs")
    if not isinstance(values, list) or not (values and values[0] is None or _is_echo(row, len(values), choices)):
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


def _is_echo(row: Mapping[str, Any], tokens: int, choices: int) -> bool:
    """True if the server counts so many tokens in prompt and response together, where no first null tells the prompt."""
    prompt, sampled = (_whole(inside(row, f"response.usage.{name}_tokens")) for name in ("prompt", "completion"))
    return choices == 1 and prompt > 0 and tokens == prompt + sampled


def _sampled(row: Mapping[str, Any], choices: int) -> int | None:
    """The number of tokens that were sampled, by the server's count, or by where the text of the prompt ends; None: not known."""
    count, prompt = inside(row, "response.usage.completion_tokens"), row["asked_text"] if "asked_text" in row else None
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
    once="response.id",
    side="rollout",
    columns=columns("""
        step = line.step or line.metadata.step or response.step
        sequence_ids = place | named(@source, @line, response.id)
        rollout_logprobs = logprobs.content or logprobs.token_logprobs | numbers_of(logprob) !
        rollout_topk = logprobs.content or logprobs.top_logprobs | topk
        token_ids = token_ids or logprobs.content or logprobs.tokens | spelled_ids
        token_texts = logprobs.content or logprobs.tokens | token_texts
        turns = turns
        prompt_ids = prompt_token_ids or response.prompt_token_ids or asked_ids
        prompt_texts = asked_text
        rollout_versions = response.metadata.weight_version or meta_info.weight_version | if_number
        finish_reasons = finish_reason
        replica = response.system_fingerprint
        prompt_tokens = prompt_tokens or response.usage.prompt_tokens
        cached_tokens = response.usage.prompt_tokens_details.cached_tokens
        extra.model = model
        extra.temperature = asked.temperature or line.request.temperature
        extra.top_p = asked.top_p or line.request.top_p
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
    once="",
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
    """Each response of a line, which a request may stand beside, with the ids of its prompt where all of them were scored."""
    held = line.get("response") if isinstance(line, Mapping) and "meta_info" not in line else line
    listed = held if isinstance(held, list) else [held]
    for place, one in enumerate(listed):
        response: Mapping[str, Any] = one if isinstance(one, Mapping) else {}
        facts = inside(response, "meta_info")
        if isinstance(facts, Mapping) and facts.get("finish_reason", "") is None:
            yield Unreadable(_OF_STREAM)
            continue
        scored, count = inside(response, "meta_info.input_token_logprobs"), inside(response, "meta_info.prompt_tokens")
        ids = [each[1] for each in scored] if isinstance(scored, list) and scored and len(scored) == count else []
        known = {"scored_ids": ids} if ids and all(isinstance(each, int) for each in ids) else {}
        yield {**_plain(line), **response, **of_request(line, place, len(listed)), **known, "place": place}
        listed_ones, count = (inside(facts, name) for name in ("output_token_logprobs", "completion_tokens"))
        if isinstance(listed_ones, list) and (lacking := _whole(count) - len(listed_ones)) > 0:
            yield SetAside(_UNSCORED, lacking)


_SGLANG = FileKind(
    what="responses of SGLang's /generate with return_logprob; lines, list or stream",
    file=r".*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("meta_info.output_token_logprobs",),
    split=_with_prompt,
    once="meta_info.id",
    side="rollout",
    columns=columns("""
        step = step or metadata.step
        sequence_ids = meta_info.id or @row | named(@source, @line)
        rollout_logprobs = meta_info.output_token_logprobs | pick(0) !
        rollout_topk = meta_info.output_top_logprobs | topk
        token_ids = meta_info.output_token_logprobs | pick(1)
        token_texts = meta_info.output_token_logprobs | token_texts
        prompt_ids = prompt_token_ids or input_ids or scored_ids or asked_ids
        prompt_texts = asked_text
        prompt_tokens = meta_info.prompt_tokens
        cached_tokens = meta_info.cached_tokens
        rollout_versions = meta_info.weight_version | if_number
        finish_reasons = meta_info.finish_reason.type
        extra.weight_version = meta_info.weight_version | unless_number
        extra.temperature = asked.sampling_params.temperature
        extra.top_p = asked.sampling_params.top_p
    """),
    lacks="the trainer's side, and steps where the log names none",
)


def _wherever(*parts: FileKind) -> tuple[FileKind, ...]:
    """The same rows by line, in one JSON list, as a call for a batch returns them, and as parts of a stream, by event or line."""
    ways = (("jsonl|ndjson", "json lines"), ("json", "json"), ("sse|jsonl|ndjson", "event stream"))
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
