"""A small real tokenizer with a chat template, and conversations of several turns as the ids of a run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WORDS = "the model reads a file and calls the tool again because the result is wrong so it thinks about every number it found "
SPECIAL = ("<|begin|>", "<|im_start|>", "<|im_end|>")
_TOKEN = re.compile(r"<[|｜][^<>{}]*?[|｜]>|</?\w+>|<\|\w+>|<\w+\|>")
_EACH = "{% for m in messages %}"
_GO_ON = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_PLAIN = "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
CHATML = f"{{{{ bos_token }}}}{_EACH}{_PLAIN}{{% endfor %}}{_GO_ON}"
FORGETFUL = (
    f"{{{{ bos_token }}}}{_EACH}{{% if m.role == 'assistant' and not loop.last %}}{{{{ '<|im_start|>assistant\n' +"
    f" m.content.split('</think>')[-1].lstrip('\n') + '<|im_end|>\n' }}}}{{% else %}}{_PLAIN}{{% endif %}}{{% endfor %}}{_GO_ON}"
)
"""It leaves the reasoning of earlier answers out, as that of Qwen3 does."""
THINKING = (
    f"{{{{ bos_token }}}}{_EACH}{_PLAIN}{{% endfor %}}{_GO_ON}"
    "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
TEMPLATES = {
    "ChatML": CHATML,
    "a switch for thinking": THINKING,
    "a system message of its own": (
        "{{ bos_token }}{% if messages[0].role != 'system' %}<|im_start|>system\nbe brief<|im_end|>\n{% endif %}"
        + CHATML.removeprefix("{{ bos_token }}")
    ),
    "Llama 2": (
        f"{_EACH}{{% if m.role == 'user' or m.role == 'tool' %}}{{{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}}}"
        "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "words before each message": f"{_EACH}{{{{ m.role|capitalize + ': ' + m.content + eos_token + '\n' }}}}{{% endfor %}}"
    "{% if add_generation_prompt %}Assistant:{% endif %}",
    "thinking begun in the prompt": (
        f"{{{{ bos_token }}}}{_EACH}{_PLAIN}{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    ),
}
"""Forms of chat templates, by what is special about them."""


def tokenizer(template: str | None = CHATML, words: str = WORDS, size: int = 400) -> Any:
    """Byte-level BPE, trained on the words."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*SPECIAL], initial_alphabet=alphabet, show_progress=False
    )
    own.train_from_iterator([words] * 4, trainer)
    transformers: Any = import_module("transformers")
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token=SPECIAL[0], eos_token=SPECIAL[2], additional_special_tokens=[SPECIAL[1]]
    )
    if template is not None:
        more = sorted({*SPECIAL, *_TOKEN.findall(template)})
        found.add_special_tokens({"additional_special_tokens": more})
    found.chat_template = template
    return found


def saved(folder: Path, **options: Any) -> Path:
    """The folder, with a tokenizer in it."""
    tokenizer(**options).save_pretrained(folder)
    return folder


@dataclass
class Recorded:
    """A sequence as a trainer has it: the prompt, then answers and what comes between them."""

    prompt: list[int]
    response: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)

    def add(self, ids: Sequence[int], *, sampled: bool) -> "Recorded":
        self.response += ids
        self.mask += [sampled] * len(ids)
        return self


def rendered(own: Any, texts: Sequence[tuple[str, str]], **options: Any) -> Recorded:
    """A conversation as its template gives it. texts: (role, content), an answer last.

    Sampled is each text of an assistant and the special token behind it.
    """
    messages = [{"role": role, "content": content} for role, content in texts]
    whole = own.apply_chat_template(messages, tokenize=False, **options)

    def encoded(text: str) -> list[int]:
        return list(own(text, add_special_tokens=False)["input_ids"])

    special = re.compile("|".join(map(re.escape, own.all_special_tokens)))
    ids, made, end = list[int](), Recorded([]), 0
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = own.apply_chat_template(messages[:place], tokenize=False, add_generation_prompt=True, **options)
        text = message["content"].strip()
        follows = whole.startswith(before)
        overlap = range(max(0, len(before) - len(text)), len(before))
        begun = (at for at in overlap if whole.startswith(text, at) and text.startswith(before[at:]))
        content = next(begun, whole.find(text, len(before))) if follows else whole.index(text, end)
        begin = len(before) if follows else content
        end = content + len(text)
        behind = special.search(whole, end)
        end = end if behind is None else behind.end()
        prompt, upto = encoded(whole[:begin]), encoded(whole[:end])
        assert prompt[: len(ids)] == ids and upto[: len(prompt)] == prompt
        made = made.add(prompt[len(ids) :], sampled=False) if ids else Recorded(prompt)
        ids = upto
        made.add(upto[len(prompt) :], sampled=True)
    return made
