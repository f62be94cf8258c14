"""The baseline's loop: the same model writes the JSON token by token, greedily.

What a step does beside the model's forward does not grow with what was written: a mask, an
argmax on the device, the token's bytes. Tokens that the constraint leaves no choice about
ride in the pass of the token before them.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from core.backend import Decoder
from core.grammar import Constraint
from core.vocabulary import Vocabulary

How = Literal["closed", "end_of_turn", "limit"]
Lap = Callable[[str], object]


def token_limit(canonical: int) -> int:
    """Tokens after which the baseline is stopped, given those of the canonical JSON."""
    return 2 * canonical + 64


@dataclass(frozen=True)
class Written:
    """One token of the baseline."""

    token: int
    text: str  # characters that became complete with it
    forced: bool  # the constraint left no other; the model was not asked
    how: How | None  # set on the last one


def write(
    decoder: Decoder,
    constraint: Constraint,
    vocabulary: Vocabulary,
    end_ids: frozenset[int],
    limit: int,
    forced: Sequence[int] = (),
    lap: Lap = lambda phase: None,
) -> Iterator[Written]:
    """Tokens until the object's closing brace, the end of the turn, or the limit.

    `forced`: tokens that were forced before the first choice, and read with the prompt. `lap`
    ends a phase: decode, mask, detokenise. A character that is spread over several tokens comes
    with its last one.
    """
    characters = codecs.getincrementaldecoder("utf-8")("replace")
    chosen: list[int] = []
    count = 0
    while True:
        for number, token in enumerate((*chosen, *forced), start=1):
            count += 1
            is_last = number == len(chosen) + len(forced)
            how: How | None = "closed" if is_last and constraint.closed else "limit" if count == limit else None
            yield Written(token, characters.decode(vocabulary.written(token)), number > len(chosen), how)
            if how:
                return
        lap("detokenise")
        if chosen:
            decoder.append([*chosen, *forced])
            lap("decode")
        mask = constraint.bits()
        lap("mask")
        chosen = [decoder.choose(mask)]
        lap("decode")
        if chosen[0] in end_ids:
            yield Written(chosen[0], "", False, "end_of_turn")
            return
        constraint.advance(chosen[0])
        forced = constraint.forced()
        lap("mask")
