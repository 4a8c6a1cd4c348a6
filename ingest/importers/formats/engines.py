"""Logs of responses of vLLM and SGLang, one JSON object a line: the sampler's side, with token ids where they were asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

from ratioscope.flat_json import loaded

from ..table import FileKind, Format, columns


def _choices(line: Any) -> Iterator[Any]:
    """One row for each choice of a response; the response may lie under `response` or `body`, as proxies write it."""
    response = line
    for name in ("response", "body"):
        if isinstance(response, Mapping) and isinstance(response.get(name), Mapping):
            response = response[name]
    listed = response.get("choices") if isinstance(response, Mapping) else None
    for place, one in enumerate(listed if isinstance(listed, list) else []):
        yield {**(one if isinstance(one, Mapping) else {}), "response": response, "line": line, "place": place}


_OPENAI = FileKind(
    what="responses of an OpenAI-style server with logprobs, and token ids if return_token_ids was set",
    file=r".*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("response.choices", "logprobs.content or logprobs.token_logprobs"),
    split=_choices,
    side="rollout",
    columns=columns("""
        step = line.step or line.metadata.step or response.step
        sequence_ids = place | named(@source, @line, response.id)
        rollout_logprobs = logprobs.content or logprobs.token_logprobs | numbers_of(logprob) !
        token_ids = token_ids
        prompt_ids = prompt_token_ids or response.prompt_token_ids
        rollout_versions = response.metadata.weight_version or meta_info.weight_version | if_number
        finish_reasons = finish_reason
        replica = response.system_fingerprint
        extra.message = message
        extra.weight_version = response.metadata.weight_version or meta_info.weight_version | unless_number
    """),
    lacks="the trainer's side, token ids where the server was not asked for them, and steps where the log names none",
)
_SGLANG = FileKind(
    what="responses of SGLang's /generate with return_logprob",
    file=r".*\.(?:jsonl|ndjson)",
    container="json lines",
    marks=("meta_info.output_token_logprobs",),
    side="rollout",
    columns=columns("""
        step = step or metadata.step
        sequence_ids = meta_info.id or @row | named(@source, @line)
        rollout_logprobs = meta_info.output_token_logprobs | pick(0) !
        token_ids = meta_info.output_token_logprobs | pick(1)
        prompt_ids = prompt_token_ids or input_ids
        rollout_versions = meta_info.weight_version | if_number
        finish_reasons = meta_info.finish_reason.type
        extra.weight_version = meta_info.weight_version | unless_number
    """),
    lacks="the trainer's side, and steps where the log names none",
)


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
        name="openai", title="vLLM or SGLang response log (OpenAI style)", trainer="vLLM or SGLang", parts=(_OPENAI,)
    ),
    Format(name="sglang", title="SGLang /generate response log", trainer="SGLang", parts=(_SGLANG,)),
    Format(name="rllm", title="rLLM gateway SQLite", trainer="rLLM", parts=(_RLLM,)),
)
