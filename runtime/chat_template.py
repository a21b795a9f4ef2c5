"""Lays out a conversation as the model was trained to see it, with the Jinja template of its file.

Templates are programs from strangers, so they run in jinja2's sandbox. Names and block trimming are those
that templates are written for (Hugging Face's `apply_chat_template`).
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

from hw.errors import WordlineError

__all__ = ["ChatTemplate", "ChatTemplateError"]


class ChatTemplateError(WordlineError):
    """A model without a template, a template that does not run, or a conversation that it refuses."""


def _refuse(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Jinja's own filter escapes for HTML, which models were not trained on."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


class ChatTemplate:
    """A model's chat template.

    Parameters
    ----------
    source : str or None
        Jinja text; None or empty raises `ChatTemplateError`.
    bos_token, eos_token : str
        Spellings that the template may insert.
    """

    def __init__(self, source: str | None, bos_token: str = "", eos_token: str = "") -> None:
        if not source:
            raise ChatTemplateError(
                "a chat template was wanted; this model has none: use a plain prompt, or an instruct model"
            )
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_refuse, strftime_now=_now)
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, TypeError) as error:
            raise ChatTemplateError(
                f"a Jinja chat template was wanted; this model's does not parse ({error}): use a plain prompt"
            ) from error
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        `messages`: mappings with `role` and `content`. With `add_generation_prompt` the text ends where the
        model's reply begins. Other variables go to the template as they are.
        """
        for index, message in enumerate(messages):
            missing = [key for key in ("role", "content") if not isinstance(message.get(key), str)]
            if missing:
                raise ChatTemplateError(
                    f"messages with the texts 'role' and 'content' were wanted; message {index} is "
                    f"{dict(message)!r}: give it {' and '.join(missing)}"
                )
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **{"tools": None, "documents": None, **self._tokens, **variables},
            )
        except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError,
                ValueError) as error:
            roles = [message["role"] for message in messages]
            raise ChatTemplateError(
                f"a conversation that the model's chat template accepts was wanted; roles {roles} came and "
                f"it said {str(error)!r}: change the messages"
            ) from error
