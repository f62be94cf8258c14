"""Tries: the lines of a schema as token sequences that share their beginnings.

A field's lines are tokenised in context and grown into a trie; the tries of all fields
are packed in one tree batch. At each fork the trie knows, for every vocabulary token
that could come next, which branch it belongs to. Sees token ids and bytes; knows
nothing of models or probabilities. A built trie never changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.backend import TreeBatch
from core.prompt import ChatFormat, Prompt, literal, member
from core.schema import FieldDefinition, StructuredSchema
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


@dataclass(frozen=True)
class Fork:
    """A trie node with more than one child: the only places where logits are read."""

    node: int  # in the tree batch; the read is after it
    tokens: np.ndarray  # (K,) int64: vocabulary tokens that go into one branch and no other
    branch: np.ndarray  # (K,) int64: the branch of each, ascending
    branches: int


@dataclass(frozen=True)
class FieldTrie:
    field: FieldDefinition
    forms: tuple[Form, ...]
    forks: tuple[Fork, ...]
    #: For each form, the (fork, branch) pairs on its path.
    paths: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True)
class Plan:
    """A schema compiled for one tokenizer."""

    schema: StructuredSchema
    prompt: Prompt
    tries: tuple[FieldTrie, ...]
    tree: TreeBatch

    @property
    def forks(self) -> tuple[Fork, ...]:
        """All forks, field by field: the rows that a read returns."""
        return tuple(fork for trie in self.tries for fork in trie.forks)


def compile_plan(schema: StructuredSchema, chat: ChatFormat, vocabulary: Vocabulary) -> Plan:
    """Raises `TokenizationError` where no layout is clean or two choices become the same tokens."""
    written = [(field, list(surface_forms(field))) for field in schema]
    prompt = chat.prompt(schema, [member(field.name, text) for field, forms in written for _, text in forms])
    nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> node
    tries = tuple(
        _grown(field, _forms(field, forms, prompt, vocabulary), vocabulary, nodes) for field, forms in written
    )
    depths: list[int] = []
    for parent, _ in nodes:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    tree = TreeBatch(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes), tuple(depths))
    return Plan(schema, prompt, tries, tree)


def surface_forms(field: FieldDefinition) -> Iterator[tuple[int, str]]:
    """(choice index, JSON text) of every way to write a choice.

    A bare value may also come in quotes, unless those quotes spell another choice.
    """
    strings = {choice for choice in field.choices if isinstance(choice, str)}
    for i, choice in enumerate(field.choices):
        yield i, literal(choice)
        if not isinstance(choice, str) and literal(choice) not in strings:
            yield i, f'"{literal(choice)}"'


def _forms(
    field: FieldDefinition, written: Sequence[tuple[int, str]], prompt: Prompt, vocabulary: Vocabulary
) -> list[Form]:
    layout = prompt.layout
    lines = [layout.before + member(field.name, text) + layout.after for _, text in written]
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
    field: FieldDefinition, forms: Sequence[Form], vocabulary: Vocabulary, nodes: dict[tuple[int, int], int]
) -> FieldTrie:
    """The trie of one field; its nodes down to each fork are added to `nodes`."""
    forks: list[Fork] = []
    paths: list[list[tuple[int, int]]] = [[] for _ in forms]
    open_groups = [(tuple(range(len(forms))), 0)]  # forms that share their first `depth` tokens
    while open_groups:
        group, depth = open_groups.pop(0)
        if len({forms[i].choice for i in group}) < 2:
            continue  # decided: from here on it can only be that choice
        children = _children(field, forms, group, depth)
        if len(children) == 1:
            open_groups.insert(0, (group, depth + 1))
            continue
        if depth == 0:
            raise TokenizationError(f"field {field.name!r}: its name and its values melt into one token; rename it")
        for branch, (_, members) in enumerate(children):
            open_groups.append((members, depth + 1))
            for i in members:
                paths[i].append((len(forks), branch))
        forks.append(_fork(forms, children, depth, vocabulary, _placed(forms[group[0]].tokens[:depth], nodes)))
    return FieldTrie(field, tuple(forms), tuple(forks), tuple(map(tuple, paths)))


def _children(
    field: FieldDefinition, forms: Sequence[Form], group: Sequence[int], depth: int
) -> list[tuple[int, tuple[int, ...]]]:
    """(token, forms below it) of each child, in the order in which choices were declared."""
    below: dict[int, list[int]] = {}
    for i in group:
        if depth == len(forms[i].tokens):
            other = next(j for j in group if forms[j].choice != forms[i].choice)
            same = [field.choices[forms[j].choice] for j in (i, other)]
            raise TokenizationError(
                f"field {field.name!r}: choices {same[0]!r} and {same[1]!r} become the same tokens; rename one of them"
            )
        below.setdefault(forms[i].tokens[depth], []).append(i)
    return [(token, tuple(members)) for token, members in below.items()]


def _placed(path: Sequence[int], nodes: dict[tuple[int, int], int]) -> int:
    """The tree batch's node at the end of a token path; nodes that are missing are made."""
    node = -1
    for token in path:
        node = nodes.setdefault((node, token), len(nodes))
    return node


def _fork(
    forms: Sequence[Form],
    children: Sequence[tuple[int, tuple[int, ...]]],
    depth: int,
    vocabulary: Vocabulary,
    node: int,
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
    return Fork(node, tokens[order], branch_of[order], len(children))


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
