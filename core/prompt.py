"""The prompt: head | context | tail, and the lines that would follow it.

The head is the system turn with the field catalogue up to the start of the user's
text, the context is that text, the tail ends the user's turn and opens the JSON object.
Both lanes read the same three. Knows nothing of tries, scores or models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from core.schema import Choice, FieldDefinition, StructuredSchema
from core.vocabulary import TokenizationError, Vocabulary

#: Part of every cache key: raise it when a word of the prompt changes.
PROMPT_VERSION = 1

INSTRUCTIONS = """\
You read a text and fill in a form about it.

Answer with one JSON object and nothing else. Use each key below exactly once, in this \
order, one key per line, indented by two spaces:
{{
  {example}
}}
Each value must be one of the values allowed for its key, written exactly as listed.

Keys:
{catalogue}"""

_SYSTEM_SLOT, _USER_SLOT = "PCD-SYSTEM-SLOT", "PCD-USER-SLOT"


@dataclass(frozen=True)
class Layout:
    """How members stand on lines. Both spell the same JSON text; they differ in where a line is cut."""

    opening: str  # ends the tail
    before: str  # begins a line
    after: str  # ends a line; the tokens that close a value depend on it


# Qwen's tokenizer glues a newline to what precedes it, SmolLM2's to what follows.
LAYOUTS = (Layout("{\n", "  ", ",\n"), Layout("{", "\n  ", ","))


@dataclass(frozen=True)
class Prompt:
    """What of a prompt depends on the schema alone."""

    head: tuple[int, ...]
    tail: tuple[int, ...]
    before_context: str  # plain text of the head that the context directly follows
    before_line: str  # plain text of the tail that a line directly follows
    layout: Layout

    def context_ids(self, vocabulary: Vocabulary, context: str) -> list[int]:
        """Ids of the user's text where it stands.

        Where its first characters would melt into the head (a newline after a newline),
        it is encoded on its own, so that the head stays the same for every context.
        """
        try:
            return vocabulary.encode_after(self.before_context, [context])[0]
        except TokenizationError:
            return vocabulary.encode(context)


class ChatFormat:
    """A tokenizer's chat template, taken apart once into its scaffolding.

    `template` renders messages (`tokenizer.apply_chat_template`); None for a model without
    one. Only the scaffolding makes control tokens, whatever the texts in between hold.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Any) -> None:
        self._vocabulary = vocabulary
        rendered = _rendered(tokenizer)
        start, rest = rendered.split(_SYSTEM_SLOT)
        middle, end = rest.split(_USER_SLOT)
        self._start, self._middle, self._end = map(self._pieces, (start, middle, end))
        self.key = rendered

    def prompt(self, schema: StructuredSchema, probes: Iterable[str]) -> Prompt:
        """The prompt of a schema in the layout in which the lines have a boundary of their own.

        `probes` are members such as `"risk": "HIGH"`; raises `TokenizationError` if no layout suits them.
        """
        head, before_context = self._encoded([*self._start, instructions(schema), *self._middle])
        members = list(probes)
        for layout in LAYOUTS:
            tail, before_line = self._encoded([*self._end, layout.opening])
            lines = [layout.before + member + layout.after for member in members]
            try:
                self._vocabulary.encode_after(before_line, lines)
            except TokenizationError as error:
                refused = error
            else:
                return Prompt(tuple(head), tuple(tail), before_context, before_line, layout)
        raise TokenizationError(f"no JSON layout has a clean token boundary with this tokenizer: {refused}")

    def _pieces(self, scaffold: str) -> list[str | int]:
        """Scaffolding split into control tokens (ids) and plain text between them."""
        control = self._vocabulary.control
        if not control:
            return [scaffold] if scaffold else []
        longest_first = sorted(control, key=len, reverse=True)
        parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", scaffold)
        return [control.get(part, part) for part in parts if part]

    def _encoded(self, pieces: Sequence[str | int]) -> tuple[list[int], str]:
        """Ids of the pieces, and the plain text since the last control token."""
        ids: list[int] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, str):
                text += piece
            else:
                ids += [*self._vocabulary.encode(text), piece]
                text = ""
        return ids + self._vocabulary.encode(text), text


def instructions(schema: StructuredSchema) -> str:
    """The system turn: output format, then every key with its description and allowed values."""
    names = [literal(field.name) for field in schema]
    example = ",\n  ".join(f"{name}: ..." for name in names[:2])
    if len(names) > 2:
        example += ",\n  ..."
    return INSTRUCTIONS.format(example=example, catalogue="\n".join(map(_catalogue_line, schema)))


def literal(value: Choice) -> str:
    """The JSON of a scalar, characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def member(name: str, value: str) -> str:
    """One member of the object, `value` being JSON already."""
    return f"{literal(name)}: {value}"


def object_text(members: Iterable[str]) -> str:
    """The canonical JSON object: one member a line, two spaces in. Every layout spells this text."""
    return "{\n" + ",\n".join("  " + member for member in members) + "\n}"


def _catalogue_line(field: FieldDefinition) -> str:
    description = f" {field.description}" if field.description else ""
    return f"- {literal(field.name)}:{description} Allowed values: {', '.join(map(literal, field.choices))}"


def _rendered(tokenizer: Any) -> str:
    """The template with slots where texts go.

    A template that knows no system role gets both texts in the user's turn; a tokenizer
    without a template gets them as plain paragraphs.
    """
    if not tokenizer.chat_template:
        start = tokenizer.decode(tokenizer("").input_ids)  # BOS, where the tokenizer asks for one
        return f"{start}{_SYSTEM_SLOT}\n\nText:\n{_USER_SLOT}\n\nJSON:\n"
    system = {"role": "system", "content": _SYSTEM_SLOT}
    both = {"role": "user", "content": f"{_SYSTEM_SLOT}\n\n{_USER_SLOT}"}
    for messages in ([system, {"role": "user", "content": _USER_SLOT}], [both]):
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception:  # templates raise what they like; jinja2 has its own hierarchy
            continue
        if text.count(_SYSTEM_SLOT) == text.count(_USER_SLOT) == 1 and _USER_SLOT in text.partition(_SYSTEM_SLOT)[2]:
            return text
    raise TokenizationError("the chat template shows neither a system turn nor a plain user turn; use another model")
