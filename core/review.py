"""The review of a schema before it goes live: what a tokenizer makes of it, and what a reader would ask.

`review` is pure: schema and tokenizer in, a frozen `Review` out. Knows no model but its window.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.prompt import ChatFormat, literal
from core.schema import Choice, FieldDefinition, StructuredSchema
from core.search import TYPICAL_PASSES, pays
from core.trie import FieldTrie, Plan, compile_plan
from core.vocabulary import TokenizationError, Vocabulary
from core.wording import escaped

Level = Literal["ERROR", "WARN", "NOTE"]

#: Choices past which a field is long in the prompt, and tokens of text below which a window is narrow.
MANY_CHOICES, LITTLE_ROOM = 50, 256
#: Choices that a finding names.
NAMED = 6

#: A short choice that begins or ends with one of these words is for a text that fits no other: `OTHER_TOPIC`.
ELSE_WORDS = frozenset(
    "none other others else unknown unspecified unstated unclear undetermined undecided undefined neither nothing "
    "null na misc miscellaneous inapplicable".split()
)
#: The same in two words: `NOT_STATED`, `n/a`.
ELSE_PHRASES = re.compile(
    r"(does |is )?(not|cannot|can t|no) (say|stated|applicable|specified|given|known|mentioned|sure|match|answer)|n a"
)
MOST_ELSE_WORDS = 4

#: A code and then words: `CAT_095_Titanium`, `1 - low`, `01.02 Cattle`. Not a quantity: `24_HOURS`.
_CODE_FIRST = re.compile(r"\W*(?:[A-Z]{1,6}[-_. ]?)?\d[\d.,/-]*[A-Z]?(?:\W|_)+(?P<words>.*[^\W\d_]{2}.*)", re.DOTALL)
_UNIT = re.compile(
    r"(second|minute|hour|day|week|month|year|time|piece|star|point|user|person|people|percent|eur|usd|kg|km)s?"
    r"(?![^\W\d_])",
    re.IGNORECASE,
)
_CODE = re.compile(r"(?:[A-Z]{1,6}[-_. ]?)?\d[\d.,/-]*[A-Z]?|[A-Z]")
_VAGUE = "attribute|column|data|field|item|key|param|property|value|variable"
_VAGUE_NAME = re.compile(
    rf"[a-z]|{_VAGUE}|([a-z]{{0,2}}|attr|choice|col|flag|label|val|var|{_VAGUE})[_-]?\d+", re.IGNORECASE
)
_JSON_LIKE = re.compile(r"true|false|null|-?\d+(\.\d+)?([eE][-+]?\d+)?", re.IGNORECASE)
#: What near-duplicates differ by. Signs carry meaning: `A+` and `A-`, `C` and `C#`.
_INCIDENTAL = re.compile(r"[\s_.,;:!?'\"()\[\]{}/\\|`\u2026]|(?<=\w)-(?=\w)")


@dataclass(frozen=True)
class Finding:
    level: Level
    where: str  # a field, or "" for the schema
    message: str


@dataclass(frozen=True)
class Piece:
    """One token of a choice's line."""

    token: int
    text: bytes
    is_fork: bool  # choices part right before it
    identifies: bool  # the first token that no other choice shares


@dataclass(frozen=True)
class ChoiceTokens:
    choice: Choice
    pieces: tuple[Piece, ...]  # from the field's first fork to the end of the line
    needed: int  # of them, to tell the choice from all others


@dataclass(frozen=True)
class FieldReview:
    field: FieldDefinition
    beginning: bytes  # what all lines share
    choices: tuple[ChoiceTokens, ...]
    groups: tuple[tuple[bytes, tuple[Choice, ...]], ...]  # what choices share after it, and which ones


@dataclass(frozen=True)
class Sizes:
    """Tokens and passes."""

    window: int
    head: int
    tail: int
    answer: int
    text: int | None  # of the text that came with the schema
    fields: int
    choices: int
    nodes: int
    forks: int
    best_first: bool  # whether that is the cheaper way to read
    passes: int  # estimated, the head being cached; one more without

    @property
    def room(self) -> int:
        """Tokens left for a text."""
        return self.window - self.head - self.tail - self.answer


@dataclass(frozen=True)
class Review:
    fields: tuple[FieldReview, ...]  # those that the tokenizer can take
    sizes: Sizes | None  # None where it cannot take them all
    findings: tuple[Finding, ...]

    def count(self, level: Level) -> int:
        return sum(finding.level == level for finding in self.findings)


def review(
    schema: StructuredSchema, vocabulary: Vocabulary, chat: ChatFormat, window: int, overhead: float, text: str = ""
) -> Review:
    """`overhead`: of a pass, in tokens; `text`: one that the schema is for, if there is any."""
    findings = [finding for field in schema for finding in field_findings(field)]
    plans, refused = _plans(schema, vocabulary, chat)
    found = tuple(_field_review(trie, vocabulary) for plan in plans for trie in plan.tries)
    if refused:
        return Review(found, None, (*refused, *findings))
    [plan] = plans
    sizes = _sizes(plan, vocabulary, window, overhead, text)
    return Review(found, sizes, (*_window_findings(sizes), *findings))


# --- the words ---


def field_findings(field: FieldDefinition) -> Iterator[Finding]:
    """What a careful reader would ask about a field; nothing is asked about a const."""
    if field.field_type == "const":
        return
    for level, message in (*_question(field), *_choices(field)):
        yield Finding(level, field.name, message)


def _question(field: FieldDefinition) -> Iterator[tuple[Level, str]]:
    description = field.description.strip()
    if not description:
        yield "WARN", "no description; ask a question that a reader of the text could answer"
    elif _plain(description) == _plain(field.name):
        yield "WARN", f"the description {_shown(description)} only repeats the name; ask a question"
    elif _words(description) < 3:
        yield "WARN", f"the description {_shown(description)} is no question or statement; write a sentence"
    if _VAGUE_NAME.fullmatch(field.name):
        yield "WARN", "the name says nothing; the model reads it right before it answers, so name what is asked"


def _choices(field: FieldDefinition) -> Iterator[tuple[Level, str]]:
    if field.field_type == "boolean":
        return  # a text that does not say is a boolean's false, as its question is put
    texts = [choice for choice in field.choices if isinstance(choice, str)]
    for same in _alike(texts):
        yield "WARN", f"choices {_listed(same)} differ only by case, white space or punctuation; merge or reword them"
    if odd := [text for text in texts if _JSON_LIKE.fullmatch(text.strip())]:
        yield (
            "WARN",
            f"choices {_listed(odd)} are strings that look like other JSON types; drop the quotes if those are meant",
        )
    if first := [text for text in texts if _puts_code_first(text)]:
        yield (
            "WARN",
            f"{len(first)} of {len(field.choices)} choices begin with a code: {_listed(first)}; put the meaning first",
        )
    titled = {choice for choice, title in zip(field.choices, field.titles, strict=False) if title}
    codes = [text for text in texts if _CODE.fullmatch(text) and text not in odd and text not in titled]
    if bare := [text for text in codes if not re.search(rf"\b{re.escape(text)}\b", field.description)]:
        yield (
            "NOTE",
            f"choices {_listed(bare)} are codes that the description does not explain; "
            "give their meanings there or as titles",
        )
    if not any(map(_is_else, field.choices)):
        yield (
            "NOTE",
            "no choice means none of these (NONE, OTHER, NOT_STATED, UNKNOWN ...): every text gets one of the others",
        )
    if len(field.choices) > MANY_CHOICES:
        yield (
            "NOTE",
            f"{len(field.choices)} choices: all stand in the prompt of every request, and small models lose track",
        )


def _puts_code_first(text: str) -> bool:
    match = _CODE_FIRST.fullmatch(text)
    return match is not None and not _UNIT.match(match["words"])


def _is_else(choice: Choice) -> bool:
    if choice is None:
        return True
    words = re.findall(r"[^\W_]+", str(choice).casefold())
    if not 0 < len(words) <= MOST_ELSE_WORDS:
        return False
    return not ELSE_WORDS.isdisjoint((words[0], words[-1])) or ELSE_PHRASES.fullmatch(" ".join(words)) is not None


def _alike(texts: Sequence[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(_plain(text), []).append(text)
    return [same for plain, same in groups.items() if plain and len(same) > 1]


def _plain(text: str) -> str:
    return _INCIDENTAL.sub("", unicodedata.normalize("NFKC", text).casefold())


def _words(text: str) -> int:
    """Words; in scripts that put no spaces, characters."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return wide or len(re.findall(r"\w+", text))


def _listed(choices: Sequence[Choice]) -> str:
    more = f" and {len(choices) - NAMED} more" if len(choices) > NAMED + 1 else ""
    shown = choices[:NAMED] if more else choices
    return ", ".join(_shown(choice) for choice in shown) + more


def _shown(choice: Choice) -> str:
    return escaped(literal(choice))


# --- the tokens ---


def _plans(schema: StructuredSchema, vocabulary: Vocabulary, chat: ChatFormat) -> tuple[list[Plan], list[Finding]]:
    """The schema's plan; where there is none, those of the fields that have one, and what is wrong with the others."""
    try:
        return [compile_plan(schema, chat, vocabulary)], []
    except TokenizationError as error:
        whole = Finding("ERROR", "", str(error))
    plans, refused = [], []
    for field in schema:
        try:
            plans.append(compile_plan(StructuredSchema([replace(field, depends_on=())]), chat, vocabulary))
        except TokenizationError as error:
            refused.append(_refusal(field, error))
    return plans, refused or [whole]


def _refusal(field: FieldDefinition, error: TokenizationError) -> Finding:
    return Finding("ERROR", field.name, str(error).removeprefix(f"field {field.name!r}: "))


def _field_review(trie: FieldTrie, vocabulary: Vocabulary) -> FieldReview:
    if not trie.forks:  # a const, which is never read
        return FieldReview(trie.field, b"".join(map(vocabulary.bytes_of, trie.line(0))), (), ())
    first = len(trie.forks[0].path)
    canonical = {}
    for form, path in zip(trie.forms, trie.paths, strict=True):
        canonical.setdefault(form.choice, (form.tokens, [len(trie.forks[fork].path) for fork, _ in path]))
    choices = []
    for tokens, depths in canonical.values():
        pieces = (
            Piece(token, vocabulary.bytes_of(token), depth in depths, depth == depths[-1])
            for depth, token in enumerate(tokens)
        )
        choices.append((tuple(pieces)[first:], depths[-1] - first + 1))
    groups = []
    for fork in trie.forks[1:]:
        below = [choice for choice, (tokens, _) in canonical.items() if tokens[: len(fork.path)] == fork.path]
        if len(below) > 1:
            shared = b"".join(map(vocabulary.bytes_of, fork.path[first:]))
            groups.append((shared, tuple(trie.field.choices[choice] for choice in below)))
    return FieldReview(
        field=trie.field,
        beginning=b"".join(map(vocabulary.bytes_of, trie.forks[0].path)),
        choices=tuple(ChoiceTokens(trie.field.choices[i], *choices[i]) for i in sorted(canonical)),
        groups=tuple(groups),
    )


def _sizes(plan: Plan, vocabulary: Vocabulary, window: int, overhead: float, text: str) -> Sizes:
    best_first = pays(plan, overhead)
    return Sizes(
        window=window,
        head=len(plan.prompt.head),
        tail=len(plan.prompt.tail),
        answer=max(plan.canonical_tokens, plan.deepest),
        text=len(plan.prompt.context_ids(vocabulary, text)) if text else None,
        fields=len(plan.schema),
        choices=sum(len(field.choices) for field in plan.schema),
        nodes=len(plan.tree.tokens),
        forks=len(plan.forks),
        best_first=best_first,
        passes=len(plan.waves) + (TYPICAL_PASSES if best_first else 0),
    )


def _window_findings(sizes: Sizes) -> Iterator[Finding]:
    if sizes.room <= 0:
        yield Finding(
            "ERROR",
            "",
            f"the schema alone needs {sizes.window - sizes.room} tokens, the window holds {sizes.window}; shorten it",
        )
    elif sizes.text is not None and sizes.text > sizes.room:
        yield Finding(
            "ERROR",
            "",
            f"its text has {sizes.text} tokens and the window leaves room for {sizes.room}; shorten text or schema",
        )
    elif sizes.room < LITTLE_ROOM:
        yield Finding("WARN", "", f"only {sizes.room} tokens of the window are left for a text; shorten the schema")
