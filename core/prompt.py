"""The prompt: head | context | tail, and the lines that would follow it.

The head is the system turn with the field catalogue up to the start of the user's
text, the context is that text, the tail ends the user's turn and opens the JSON object.
Both lanes read the same three. Knows nothing of tries, scores or models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Literal

from core.schema import Choice, FieldDefinition, StructuredSchema
from core.vocabulary import TokenizationError, Vocabulary

#: Part of every cache key: raise it when a word of the prompt changes.
PROMPT_VERSION = 1

INSTRUCTIONS = """\
You read a text and fill in a form about it.

Answer with one JSON object and nothing else. Use each key below exactly once, in this \
order, {format}:
{example}
Each value must be one of the values allowed for its key, written exactly as listed.

Keys:
{catalogue}"""

#: What JSON the prompt asks for: a key a line, or all on one line without spaces.
Style = Literal["pretty", "compact"]
_FORMATS = {
    "pretty": "one key per line, indented by two spaces",
    "compact": "all on one line, without spaces around colons and commas",
}

_SYSTEM_SLOT, _USER_SLOT, _ANSWER_SLOT = "PCD-SYSTEM-SLOT", "PCD-USER-SLOT", "PCD-ANSWER-SLOT"

#: Asks for an answer without thinking (Qwen, GLM, Gemma; DeepSeek), or for as little as there is (gpt-oss).
_SWITCHES = {"enable_thinking": False, "thinking": False, "reasoning_effort": "low"}
#: What a template printed last, if it is a thinking block that waits for thoughts (DeepSeek-R1).
_OPEN_THINKING = re.compile(r"<(?P<name>[\w:]*think\w*)>(?P<space>\s*)\Z")

# Templates that print today's date would make another prompt every day. This is the day that Llama 3's falls back on.
_DAY = date(2024, 7, 26)
_CALENDAR = (
    "{% macro strftime_now(format) %}{{ format"
    + "".join(f"|replace('%{code}', '{_DAY.strftime('%' + code)}')" for code in "aAbBdmyYHMS")
    + " }}{% endmacro %}{{ '' }}"  # the last: white space right after a block would be trimmed
)


class PromptTooLong(ValueError):
    """Prompt and answer do not fit the model's window."""


@dataclass(frozen=True)
class Layout:
    """How the object is spelled, and where it is cut into lines.

    The first quote of a name belongs to what stands before it: `{"` is one token in most vocabularies.
    """

    start: str  # of the object, up to the letters of the first name
    between: str  # from a value to the letters of the next name
    end: str
    colon: str
    cut: int  # where `between` is cut: what comes first ends a line, the rest begins the next

    @property
    def before(self) -> str:
        """Begins a line."""
        return self.between[self.cut :]

    @property
    def after(self) -> str:
        """Ends a line; the tokens that close a value depend on it."""
        return self.between[: self.cut]

    @property
    def opening(self) -> str:
        """Ends the tail."""
        return self.start.removesuffix(self.before)

    def line(self, name: str, value: str) -> str:
        """One member as it is tokenised, `value` being JSON already."""
        return self.before + self._member(name, value) + self.after

    def text(self, members: Iterable[tuple[str, str]]) -> str:
        """The object of (name, JSON of the value) pairs."""
        return self.start + self.between.join(self._member(*member) for member in members) + self.end

    def spans(self, members: Iterable[tuple[str, str]]) -> Iterator[tuple[int, int]]:
        """Where in `text` each member stands, from its first quote to the end of its value, `end` exclusive."""
        at = len(self.start)
        for member in members:
            end = at + len(self._member(*member))
            yield at - 1, end
            at = end + len(self.between)

    def _member(self, name: str, value: str) -> str:
        return literal(name)[1:] + self.colon + value


# Qwen's tokenizer glues a newline to what precedes it, SmolLM2's to what follows. Every field is read as if it came
# first; a constant line before it (`"form": 1`) did not help: of 18 booleans of the presets the 1.5B model has 17
# right without and 18 with it, of 16 lists 16 and 15, and the right answer's mean share falls from .78 to .68.
LAYOUTS: Mapping[Style, tuple[Layout, ...]] = {
    "pretty": tuple(Layout('{\n  "', ',\n  "', "\n}", ": ", cut) for cut in (2, 1)),
    "compact": (Layout('{"', ',"', "}", ":", 2),),
}


@dataclass(frozen=True)
class Prompt:
    """What of a prompt depends on the schema alone."""

    head: tuple[int, ...]
    tail: tuple[int, ...]
    before_context: str  # plain text of the head that the context directly follows
    gap: str  # the template's spaces between the two: tokenizers glue them to a word that follows
    before_line: str  # plain text of the tail that a line directly follows
    layout: Layout

    def context_ids(self, vocabulary: Vocabulary, context: str) -> list[int]:
        """Ids of the user's text where it stands.

        Where its first characters would melt into the head, it is encoded on its own, so
        that the head stays the same for every context.
        """
        follows = self.before_context or self.gap
        text = self.gap + context if follows else vocabulary.begun(context)
        try:
            return vocabulary.encode_after(self.before_context, [text])[0]
        except TokenizationError:
            return vocabulary.encode(text)

    def unopened(self, vocabulary: Vocabulary) -> list[int]:
        """Ids of the tail without the opening of the object, for whoever has the model write that too."""
        scaffold = self.tail[: len(self.tail) - len(vocabulary.encode(self.before_line))]
        return [*scaffold, *vocabulary.encode(self.before_line.removesuffix(self.layout.opening))]


class ChatFormat:
    """A tokenizer's chat template, taken apart once into its scaffolding.

    Only the scaffolding makes control tokens, whatever the texts in between hold; it begins with
    BOS if the template prints it or the tokenizer would, and ends with thinking done.
    """

    def __init__(self, vocabulary: Vocabulary, tokenizer: Any) -> None:
        self._vocabulary = vocabulary
        rendered = _rendered(tokenizer)
        start, rest = rendered.split(_SYSTEM_SLOT)
        middle, end = rest.split(_USER_SLOT)
        self._start, self._middle, self._end = map(vocabulary.pieces, (start, middle, end))
        self.key = rendered

    def check_length(self, schema: StructuredSchema, style: Style, window: int) -> None:
        """Raises `PromptTooLong` where the catalogue alone fills the window: compiling such a schema may take long."""
        size = len(self._vocabulary.encode(instructions(schema, style)))
        if size >= window:
            raise PromptTooLong(
                f"the schema alone needs {size} tokens and the window of the model holds {window}; "
                "give it fewer choices or shorter descriptions"
            )

    def prompt(self, schema: StructuredSchema, probes: Iterable[tuple[str, str]], style: Style = "pretty") -> Prompt:
        """The prompt of a schema in the layout in which the lines have a boundary of their own.

        `probes` are names with the JSON of a value; raises `TokenizationError` if no layout suits them.
        """
        first = partial(self._vocabulary.begun, first=True)
        head, text = self._encoded([*self._start, instructions(schema, style), *self._middle], first)
        before_context = text.rstrip(" ")
        head += self._vocabulary.encode(before_context)
        gap = text[len(before_context) :]
        members = list(probes)
        for layout in LAYOUTS[style]:
            tail, before_line = self._encoded([*self._end, layout.opening], str)  # after a text
            tail += self._vocabulary.encode(before_line)
            lines = [layout.line(*member) for member in members]
            try:
                self._vocabulary.encode_after(before_line, lines)
            except TokenizationError as error:
                refused = error
            else:
                return Prompt(tuple(head), tuple(tail), before_context, gap, before_line, layout)
        way_out = "use pretty JSON" if style == "compact" else "use another model"
        raise TokenizationError(f"no {style} JSON layout has a clean token boundary here; {way_out}: {refused}")

    def _encoded(self, pieces: Sequence[str | int], begun: Callable[[str], str]) -> tuple[list[int], str]:
        """Ids of the pieces up to the last control token, and the plain text after it.

        `begun` tells how the text before the first control token is read.
        """
        ids: list[int] = []
        text = ""
        for piece in pieces:
            if isinstance(piece, str):
                text += piece
            else:
                ids += [*self._vocabulary.encode(begun(text)), piece]
                text, begun = "", self._vocabulary.begun
        return ids, begun(text)


def instructions(schema: StructuredSchema, style: Style = "pretty") -> str:
    """The system turn: output format, then every key with its description and allowed values."""
    layout = LAYOUTS[style][0]
    shown = [(field.name, "...") for field in schema.fields[:2]]
    example = layout.text(shown)
    if len(schema) > 2:
        example = example.removesuffix(layout.end) + layout.between.removesuffix('"') + "..." + layout.end
    catalogue = "\n".join(map(_catalogue_line, schema))
    return INSTRUCTIONS.format(format=_FORMATS[style], example=example, catalogue=catalogue)


def literal(value: Choice) -> str:
    """The JSON of a scalar, characters as they are."""
    return json.dumps(value, ensure_ascii=False)


def _catalogue_line(field: FieldDefinition) -> str:
    description = f" {field.description}" if field.description else ""
    values = list(map(literal, field.choices))
    if field.titles:
        values = [f"{value} ({title})" if title else value for value, title in zip(values, field.titles, strict=True)]
    return f"- {literal(field.name)}:{description} Allowed values: {', '.join(values)}"


def _rendered(tokenizer: Any) -> str:
    """The scaffolding with slots where texts go; a tokenizer without a template gets plain paragraphs."""
    begins = tokenizer("").input_ids[:1] == [tokenizer.bos_token_id]
    bos = tokenizer.bos_token if begins else ""
    text = _chat(tokenizer) if tokenizer.chat_template else f"{_SYSTEM_SLOT}\n\nText:\n{_USER_SLOT}\n\nJSON:\n"
    return text if text.startswith(bos) else bos + text


def _chat(tokenizer: Any) -> str:
    """The template with slots. One that knows no system role gets both texts in the user's turn."""
    for messages in _conversations():
        for switches in (_SWITCHES, {}):
            asked = _applied(tokenizer, messages[:-1], add_generation_prompt=True, **switches)
            if asked.count(_SYSTEM_SLOT) == asked.partition(_SYSTEM_SLOT)[2].count(_USER_SLOT) == 1:
                return _opened(asked, _applied(tokenizer, messages, **switches))
    raise TokenizationError("the chat template shows neither a system turn nor a plain user turn; use another model")


def _conversations() -> Iterator[list[dict[str, Any]]]:
    """Ways to put instructions, text and answer to a template, the usual ones first."""
    both = f"{_SYSTEM_SLOT}\n\n{_USER_SLOT}"
    turns = (
        [("system", _SYSTEM_SLOT), ("user", _USER_SLOT), ("assistant", _ANSWER_SLOT)],
        [("user", both), ("assistant", _ANSWER_SLOT)],
    )
    for each in turns:
        yield [{"role": role, "content": text} for role, text in each]
    for each in turns:  # as templates want it that expect pictures
        yield [{"role": role, "content": [{"type": "text", "text": text}]} for role, text in each]


def _applied(tokenizer: Any, messages: list[dict[str, Any]], **variables: Any) -> str:
    """The template's text; empty where it refuses these messages."""
    try:
        template = _CALENDAR + tokenizer.get_chat_template()
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **variables)
    except Exception:  # templates raise what they like; jinja2 has its own hierarchy
        return ""


def _opened(asked: str, answered: str) -> str:
    """The prompt up to where the answer itself begins.

    Some templates print more before an answer than they do when they ask for one: the
    channel (gpt-oss), the end of the thinking block. One that still waits for thoughts gets none.
    """
    before, slot, _ = answered.partition(_ANSWER_SLOT)
    text = before if slot and before.startswith(asked) else asked
    if block := _OPEN_THINKING.search(text):
        text += f"{block['space']}</{block['name']}>\n\n"
    return text
