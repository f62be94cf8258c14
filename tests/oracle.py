"""The slow oracle: every choice scored by writing its line out alone, in plain forwards.

No cache, no tree, and not a line of core/trie.py or core/scoring.py: lines, forms, forks
and the tokens of each branch are found again, by brute force over the whole vocabulary,
from rules 1 and 2 of the design. Only the prompt's ids come from core/prompt.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from core.prompt import Prompt
from core.schema import FieldDefinition

Encode = Callable[[str], list[int]]
#: (ids, n) -> log-probabilities (n, V) of what follows each of the last n ids
Forward = Callable[[list[int], int], np.ndarray]

BLANK = b" \t\r\n"


@dataclass(frozen=True)
class Form:
    """One way to write one choice."""

    choice: int
    quoted: bool
    tokens: tuple[int, ...]  # of the whole line
    value: bytes  # the line up to the end of the value


def field_scores(
    field: FieldDefinition,
    prompt: Prompt,
    prompt_ids: list[int],
    encode: Encode,
    texts: Sequence[bytes],
    forward: Forward,
    choices: Collection[int] | None = None,
    whole: bool = False,
) -> list[float]:
    """The joint log-probability of each choice up to its identifying token; of `choices` alone, where given.

    `whole`: from where the choices first part to the end of each value.
    """
    forms = forms_of(field, prompt, encode, texts)
    scores = [-np.inf] * len(field.choices)
    branches: dict[tuple[int, ...], dict[int, list[int]]] = {}
    for form in forms:
        if choices is not None and form.choice not in choices:
            continue
        after = forward([*prompt_ids, *form.tokens[:-1]], len(form.tokens))
        score = 0.0
        for path in steps_on(form, forms, texts) if whole else forks_on(form, forms):
            if path not in branches:
                branches[path] = branches_at(path, forms, texts)
            mine = branches[path][form.tokens[len(path)]]
            score += np.logaddexp.reduce(after[len(path)][mine].astype(np.float64))
        scores[form.choice] = np.logaddexp(scores[form.choice], score)
    return scores


def forms_of(field: FieldDefinition, prompt: Prompt, encode: Encode, texts: Sequence[bytes]) -> list[Form]:
    """Every choice as JSON, and bare values also in quotes unless those spell another choice."""
    own = [json.dumps(choice, ensure_ascii=False) for choice in field.choices]
    written = []
    for i, text in enumerate(own):
        written.append((i, text))
        if not text.startswith('"') and f'"{text}"' not in own:
            written.append((i, f'"{text}"'))
    forms = []
    for i, text in written:
        name = json.dumps(field.name, ensure_ascii=False)[1:]  # its first quote belongs to what stands before it
        line = f"{prompt.layout.before}{name}{prompt.layout.colon}{text}{prompt.layout.after}"
        tokens = encode(prompt.before_line + line)[len(encode(prompt.before_line)) :]
        spelled = b"".join(texts[token] for token in tokens)  # a normaliser may have changed the text
        value = spelled[: len(spelled) - len(prompt.layout.after)]
        forms.append(Form(i, text.startswith('"'), tuple(tokens), value))
    return forms


def forks_on(form: Form, forms: Sequence[Form]) -> list[tuple[int, ...]]:
    """The beginnings of the form after which choices part, up to where only its own choice is left."""
    forks = []
    for depth in range(len(form.tokens)):
        path = form.tokens[:depth]
        alive = [other for other in forms if other.tokens[:depth] == path]
        if len({other.choice for other in alive}) == 1:
            break
        if len({other.tokens[depth] for other in alive}) > 1:
            forks.append(path)
    return forks


def steps_on(form: Form, forms: Sequence[Form], texts: Sequence[bytes]) -> list[tuple[int, ...]]:
    """The beginnings of the form from the first fork on, until the value stands there and can only be that."""
    steps = []
    for depth in range(len(form.tokens)):
        path = form.tokens[:depth]
        if not steps and len({other.tokens[depth] for other in forms if other.tokens[:depth] == path}) == 1:
            continue
        written = sum(len(texts[token]) for token in path)
        if written > len(form.value) or (written == len(form.value) and form.quoted):
            break
        steps.append(path)
    return steps


def branches_at(path: tuple[int, ...], forms: Sequence[Form], texts: Sequence[bytes]) -> dict[int, list[int]]:
    """For each child of a fork, the vocabulary's tokens that go into it and into no other."""
    depth = len(path)
    alive = [form for form in forms if form.tokens[:depth] == path]
    written = sum(len(texts[token]) for token in path)
    children = {form.tokens[depth] for form in alive}
    branches: dict[int, list[int]] = {child: [] for child in children}
    for token, text in enumerate(texts):
        into = {form.tokens[depth] for form in alive if goes_on(text, form, written)}
        if token in children:
            branches[token].append(token)
        elif len(into) == 1:
            branches[into.pop()].append(token)
    return branches


def goes_on(text: bytes, form: Form, written: int) -> bool:
    """Whether a token's text goes on with the form, `written` bytes of which are there."""
    rest = form.value[written:]
    if not text:
        return False
    if rest.startswith(text):
        return True
    return text.startswith(rest) and may_follow(text[len(rest) :], form.quoted)


def may_follow(text: bytes, quoted: bool) -> bool:
    """Whether `text` can stand right after a value: after a closing quote, or where a bare value ends."""
    if quoted:
        text = text.lstrip(BLANK)
        return text == b"" or text[:1] in (b",", b"}")
    return text[:1] in (b",", b"}", b" ", b"\t", b"\r", b"\n")


def probabilities(scores: Sequence[float], temperature: float = 1.0) -> list[float]:
    shifted = (np.array(scores) - max(scores)) / temperature
    return list(np.exp(shifted) / np.exp(shifted).sum())
