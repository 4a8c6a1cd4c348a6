"""A small real tokenizer with a chat template, and conversations of several turns as the ids of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

WORDS = "the model reads a file and calls the tool again because the result is wrong so it thinks about every number it found "
SPECIAL = ("<|begin|>", "<|im_start|>", "<|im_end|>")
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
        "{% if messages[0].role != 'system' %}<|im_start|>system\nbe brief<|im_end|>\n{% endif %}" + CHATML
    ),
    "Llama 2": (
        f"{_EACH}{{% if m.role == 'user' or m.role == 'tool' %}}{{{{ bos_token + '[INST] ' + m.content.strip() + ' [/INST]' }}}}"
        "{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
    ),
    "words before each message": f"{_EACH}{{{{ m.role|capitalize + ': ' + m.content + eos_token + '\n' }}}}{{% endfor %}}"
    "{% if add_generation_prompt %}Assistant: {% endif %}",
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
    found = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token=SPECIAL[0], eos_token=SPECIAL[2], additional_special_tokens=[SPECIAL[1]]
    )
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
    """A conversation as its template gives it, with all texts of assistants sampled. texts: (role, content), an answer last."""
    messages = [{"role": role, "content": content} for role, content in texts]
    encoded = lambda text: own(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    made: Recorded | None = None
    whole = own.apply_chat_template(messages, tokenize=False, **options)
    for place, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before = own.apply_chat_template(messages[:place], tokenize=False, add_generation_prompt=True, **options)
        assert whole.startswith(before)
        ids = encoded(before)
        if made is None:
            made = Recorded(ids)
        else:
            made.add(ids[len(made.prompt) + len(made.response) :], sampled=False)
        upto = before + whole[len(before) :].partition(own.eos_token)[0] + own.eos_token
        made.add(encoded(upto)[len(ids) :], sampled=True)
    assert made is not None
    return made
