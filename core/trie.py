"""Tries: the lines of a schema as token sequences that share their beginnings.

A field's lines are tokenised in context and grown into a trie. At each fork the trie
knows, for every vocabulary token that could come next, which branch it belongs to.
Sees token ids and bytes; knows nothing of models or probabilities. A built trie never
changes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.backend import TreeBatch
from core.prompt import ChatFormat, Prompt, Style, literal
from core.result import Scoring
from core.schema import Choice, FieldDefinition, StructuredSchema
from core.vocabulary import BARE_END, TokenizationError, Vocabulary

#: What a token may hold after a string's closing quote: `",\n`, `"\n}`, `"`, `"},` ...
_AFTER_QUOTE = re.compile(rb"[ \t\r\n]*(?:[,}].*)?", re.DOTALL)


@dataclass(frozen=True)
class Form:
    """One way to write one choice: `true` and `"true"` are two forms of a boolean's choice."""

    choice: int  # index among the field's choices
    tokens: tuple[int, ...]  # of the whole line
    text: bytes  # of the line up to the end of the value
    starts: tuple[int, ...]  # byte offset of each token in the line
    is_quoted: bool  # a string; a bare value is over at the first byte that cannot go on with it

    def rest(self, depth: int) -> bytes:
        """What is left of the value after `depth` tokens."""
        return self.text[self.starts[depth] :]

    def is_over(self, depth: int) -> bool:
        """Whether after `depth` tokens the value stands there and nothing can be added to it."""
        end = self.starts[depth]
        return end >= len(self.text) if self.is_quoted else end > len(self.text)


@dataclass(frozen=True)
class Fork:
    """A trie node with more than one child: the only places where logits are read.

    Full scoring also reads nodes with a single child, but never those of a const.
    """

    path: tuple[int, ...]  # tokens of the line; the read is after them
    tokens: np.ndarray  # (K,) int64: vocabulary tokens that go into one branch and no other
    branch: np.ndarray  # (K,) int64: the branch of each, ascending
    branches: int
    unasked: int = 0  # more tokens that go into a branch, left out because only so many can be asked for


@dataclass(frozen=True)
class FieldTrie:
    field: FieldDefinition
    forms: tuple[Form, ...]
    forks: tuple[Fork, ...]
    #: For each form, the (fork, branch) pairs on its path.
    paths: tuple[tuple[tuple[int, int], ...], ...]

    def line(self, choice: int) -> tuple[int, ...]:
        """The tokens of the line that the canonical JSON holds for a choice."""
        return next(form.tokens for form in self.forms if form.choice == choice)


@dataclass(frozen=True)
class Plan:
    """A schema compiled for one tokenizer."""

    schema: StructuredSchema
    prompt: Prompt
    tries: tuple[FieldTrie, ...]  # schema order

    @property
    def nbytes(self) -> int:
        return sum(fork.tokens.nbytes + fork.branch.nbytes for fork in self.forks)

    def seal(self) -> int:
        """A cheap number that a changed plan does not keep."""
        paths = tuple((fork.path, len(fork.tokens), fork.branches) for fork in self.forks)
        return hash((self.schema.key, self.prompt, paths))

    @cached_property
    def forks(self) -> tuple[Fork, ...]:
        """All forks, field by field: the rows that a complete read returns."""
        return tuple(fork for trie in self.tries for fork in trie.forks)

    @cached_property
    def packed(self) -> tuple[TreeBatch, list[int]]:
        """The tries of all fields in one tree batch, and the node of each of `forks`."""
        return TreeBatch.of(fork.path for fork in self.forks)

    @property
    def tree(self) -> TreeBatch:
        return self.packed[0]

    @cached_property
    def waves(self) -> tuple[tuple[FieldTrie, ...], ...]:
        """The tries in the waves of the schema."""
        tries = {trie.field.name: trie for trie in self.tries}
        return tuple(tuple(tries[field.name] for field in wave) for wave in self.schema.waves)

    def lead(self, trie: FieldTrie, answers: Mapping[str, int], vocabulary: Vocabulary) -> tuple[int, ...]:
        """Tokens of the lines that stand before a field's own: those that it depends on, in schema order.

        `answers`: the choice of each. Raises `TokenizationError` where lines melt into one another.
        """
        above = [other for other in self.tries if other.field.name in trie.field.depends_on]
        lines = [other.line(answers[other.field.name]) for other in above]
        if lines:
            values = [other.field.choices[answers[other.field.name]] for other in above]
            members = [(other.field.name, literal(value)) for other, value in zip(above, values, strict=True)]
            members.append((trie.field.name, literal(trie.field.choices[0])))
            text = "".join(self.prompt.layout.line(*member) for member in members)
            if vocabulary.encode_after(self.prompt.before_line, [text])[0] != [*sum(lines, ()), *trie.line(0)]:
                raise TokenizationError(
                    f"field {trie.field.name!r}: its line melts with the one before it; remove its depends_on"
                )
        return sum(lines, ())

    @cached_property
    def canonical_tokens(self) -> int:
        """Tokens of the canonical JSON with every field's longest choice."""
        lines = (max(len(form.tokens) for form in trie.forms) for trie in self.tries)
        return sum(lines) + 1  # the closing brace

    @cached_property
    def deepest(self) -> int:
        """Tokens after the prompt of the deepest read, the lines that a field depends on included."""
        longest = {trie.field.name: max(len(form.tokens) for form in trie.forms) for trie in self.tries}
        return max(
            sum(longest[name] for name in trie.field.depends_on)
            + max((len(fork.path) for fork in trie.forks), default=0)
            for trie in self.tries
        )


def compile_plan(
    schema: StructuredSchema,
    chat: ChatFormat,
    vocabulary: Vocabulary,
    scoring: Scoring = "identify",
    style: Style = "pretty",
    most_ids: int | None = None,
) -> Plan:
    """`most_ids`: tokens that are asked for at a fork; each branch's own is in any case.

    Raises `TokenizationError` where no layout is clean or two choices become the same tokens.
    """
    written = [(field, list(surface_forms(field))) for field in schema]
    prompt = chat.prompt(schema, [(field.name, text) for field, forms in written for _, text in forms], style)
    tries = [
        _grown(
            field,
            _forms(field, forms, prompt, vocabulary),
            vocabulary,
            scoring == "full" and field.field_type != "const",
            most_ids,
        )
        for field, forms in written
    ]
    plan = Plan(schema, prompt, tuple(tries))
    first = {field.name: 0 for field in schema}
    for trie in tries:
        plan.lead(trie, first, vocabulary)  # so that lines that melt are known before any model work
    return plan


def surface_forms(field: FieldDefinition) -> Iterator[tuple[int, str]]:
    """(choice index, JSON text) of every way to write a choice.

    A bare value may also come in quotes, unless those quotes spell another choice. A const is never
    scored: there is one way to write it.
    """
    strings = {choice for choice in field.choices if isinstance(choice, str)}
    for i, choice in enumerate(field.choices):
        yield i, literal(choice)
        if not isinstance(choice, str) and literal(choice) not in strings and field.field_type != "const":
            yield i, f'"{literal(choice)}"'


def _forms(
    field: FieldDefinition, written: Sequence[tuple[int, str]], prompt: Prompt, vocabulary: Vocabulary
) -> list[Form]:
    layout = prompt.layout
    lines = [layout.line(field.name, text) for _, text in written]
    rows = vocabulary.encode_after(prompt.before_line, lines)
    forms = []
    for (choice, text), ids in zip(written, rows, strict=True):
        # From the tokens' own bytes: a tokenizer may have composed or folded characters.
        pieces = [vocabulary.bytes_of(token) for token in ids]
        starts = tuple(int(n) for n in np.cumsum([0, *map(len, pieces)]))
        value = b"".join(pieces).removesuffix(layout.after.encode())
        forms.append(Form(choice, tuple(ids), value, starts, text.startswith('"')))
    return forms


def _grown(
    field: FieldDefinition, forms: Sequence[Form], vocabulary: Vocabulary, whole: bool, most_ids: int | None
) -> FieldTrie:
    """The trie of one field, its forks breadth first; `whole`: read to the end of each value."""
    forks: list[Fork] = []
    paths: list[list[tuple[int, int]]] = [[] for _ in forms]
    open_groups = [(tuple(range(len(forms))), 0)]  # forms that share their first `depth` tokens
    while open_groups:
        group, depth = open_groups.pop(0)
        is_decided = len({forms[i].choice for i in group}) < 2  # from here on it can only be that choice
        if is_decided and (not whole or all(forms[i].is_over(depth) for i in group)):
            continue
        children = _children(field, forms, group, depth)
        if len(children) == 1 and not (whole and forks):
            open_groups.insert(0, (group, depth + 1))
            continue
        if depth == 0:
            raise TokenizationError(f"field {field.name!r}: its name and its values melt into one token; rename it")
        fork = _fork(forms, children, depth, vocabulary, forms[group[0]].tokens[:depth], most_ids)
        for branch, (_, members) in enumerate(children):
            open_groups.append((members, depth + 1))
            for i in members:
                paths[i].append((len(forks), branch))
        forks.append(fork)
    return FieldTrie(field, tuple(forms), tuple(forks), tuple(map(tuple, paths)))


def _children(
    field: FieldDefinition, forms: Sequence[Form], group: Sequence[int], depth: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(token, forms below it) of each child, in the order in which choices were declared."""
    below: dict[int, list[int]] = {}
    for i in group:
        if depth == len(forms[i].tokens):
            other = next(j for j in group if forms[j].choice != forms[i].choice)
            same = _told_apart(field.choices[forms[i].choice], field.choices[forms[other].choice])
            raise TokenizationError(f"field {field.name!r}: choices {same} become the same tokens; rename one of them")
        below.setdefault(forms[i].tokens[depth], []).append(i)
    return [(token, tuple(members)) for token, members in below.items()]


def _fork(
    forms: Sequence[Form],
    children: Sequence[tuple[int, tuple[int, ...]]],
    depth: int,
    vocabulary: Vocabulary,
    path: tuple[int, ...],
    most_ids: int | None,
) -> Fork:
    """Which vocabulary tokens go into which branch.

    A token belongs to a branch if its text goes on with one of the branch's forms and with
    no form of another branch. The canonical child belongs to its branch in any case.
    """
    canonical = {token: branch for branch, (token, _) in enumerate(children)}
    owners: dict[int, int] = {}  # token -> branch, -1 where several claim it
    over = -1  # the branch of the bare value that is complete here
    for branch, (_, members) in enumerate(children):
        for i in members:
            if forms[i].rest(depth) == b"":
                over = branch
            for token in _continuations(forms[i], depth, vocabulary):
                if owners.setdefault(token, branch) != branch:
                    owners[token] = -1
    owners |= canonical
    tokens = np.array(list(owners), dtype=np.int64)
    branch_of = np.array(list(owners.values()), dtype=np.int64)
    if over >= 0:  # tens of thousands of tokens: not one by one
        ends = np.setdiff1d(vocabulary.bare_ends, tokens, assume_unique=True)
        tokens, branch_of = np.append(tokens, ends), np.append(branch_of, np.full(len(ends), over))
    order = np.lexsort((tokens, branch_of))[np.count_nonzero(branch_of < 0) :]
    count = len(order)
    if most_ids is not None and count > most_ids:
        order = order[_shortest(tokens[order], canonical, max(most_ids, len(children)), vocabulary)]
    tokens, branch_of = tokens[order], branch_of[order]
    for array in (tokens, branch_of):
        array.setflags(write=False)
    return Fork(path, tokens, branch_of, len(children), count - len(order))


def _shortest(tokens: np.ndarray, canonical: Mapping[int, int], most: int, vocabulary: Vocabulary) -> np.ndarray:
    """Where the canonical tokens stand, and those of the shortest texts, which hold most of the rest; ascending."""
    lengths = [0 if token in canonical else len(vocabulary.bytes_of(token)) for token in tokens.tolist()]
    return np.sort(np.argsort(lengths, kind="stable")[:most])


def _told_apart(one: Choice, other: Choice) -> str:
    """Two choices for a message; spelled in ASCII where they would look the same."""
    look_alike = unicodedata.normalize("NFKC", str(one)) == unicodedata.normalize("NFKC", str(other))
    show = ascii if look_alike else repr
    return f"{show(one)} and {show(other)}"


def _continuations(form: Form, depth: int, vocabulary: Vocabulary) -> Iterator[int]:
    """Tokens whose text goes on with the form: a beginning of what is left of it, or all of it and what may follow."""
    rest = form.rest(depth)
    for token, _ in vocabulary.starting(rest):
        yield token
    if not rest:
        return
    for token, text in vocabulary.extending(rest):
        after = text[len(rest) :]
        if _AFTER_QUOTE.fullmatch(after) if form.is_quoted else BARE_END.match(after):
            yield token
