"""Chat templates: rendered as templates expect, boxed in, refused in one line."""

import re

import pytest

from runtime.chat_template import ChatTemplate, ChatTemplateError
from tests.models.random_gguf import CHAT_TEMPLATE

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>&</b>"}]


def test_conversation() -> None:
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b>&</b><|im_end|>\n"
    assert ChatTemplate(CHAT_TEMPLATE).render(MESSAGES, add_generation_prompt=False) == text
    assert ChatTemplate(CHAT_TEMPLATE).render(MESSAGES) == text + "<|im_start|>assistant\n"


def test_blocks_are_trimmed_and_loops_can_break() -> None:
    template = (
        "{% for m in messages %}\n  {% if loop.index0 == 1 %}{% break %}{% endif %}\n{{ m.content }};\n"
        "{% endfor %}\n"
    )
    assert ChatTemplate(template).render(MESSAGES) == "Be brief.;\n"


def test_names_that_templates_use() -> None:
    template = "{{ bos_token }}{{ eos_token }}{{ tools is none }}{{ {'a': 'é<'} | tojson }}{{ thinking }}"
    text = ChatTemplate(template, "<s>", "</s>").render([], thinking="yes")
    assert text == '<s></s>True{"a": "é<"}yes'
    assert re.fullmatch(r"20\d\d", ChatTemplate("{{ strftime_now('%Y') }}").render([]))


def message(template: str | None, messages: list[dict]) -> str:
    with pytest.raises(ChatTemplateError) as error:
        ChatTemplate(template).render(messages)
    return str(error.value)


REFUSED = {
    "none": (
        None,
        [],
        "a chat template was wanted; this model has none: use a plain prompt, or an instruct model",
    ),
    "syntax": (
        "{% if %}",
        [],
        "a Jinja chat template was wanted; this model's does not parse (Expected an expression, got 'end of "
        "statement block'): use a plain prompt",
    ),
    "its own refusal": (
        "{{ raise_exception('Roles must alternate') }}",
        MESSAGES,
        "a conversation that the model's chat template accepts was wanted; roles ['system', 'user'] came and "
        "it said 'Roles must alternate': change the messages",
    ),
    "content": (
        CHAT_TEMPLATE,
        [MESSAGES[0], {"role": "user", "content": None}],
        "messages with the texts 'role' and 'content' were wanted; message 1 is {'role': 'user', 'content': "
        "None}: give it content",
    ),
    "role": (
        CHAT_TEMPLATE,
        [{}],
        "messages with the texts 'role' and 'content' were wanted; message 0 is {}: give it role and content",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    template, messages, text = REFUSED[name]
    assert message(template, messages) == text


@pytest.mark.parametrize(
    "attack",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['jinja2'] }}",
        "{{ messages.append(1) }}",
    ],
)
def test_templates_stay_in_the_sandbox(attack: str) -> None:
    assert "is unsafe" in message(attack, MESSAGES) or "not safely callable" in message(attack, MESSAGES)
