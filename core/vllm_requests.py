"""What a read asks a vLLM server for: prompts whose wanted ids fit one list travel together.

A server takes one list of ids for all prompts of an HTTP request. Knows tokens; knows nothing
of the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.vllm_server import ServerRefused
from core.wording import shown

#: Ids of one list: what vLLM allows (`MAX_LOGPROB_TOKEN_IDS`).
LIST_IDS = 128
#: Prompts of one request: as many as a scheduler step of vLLM has room for at the least.
MOST_PROMPTS = 64

#: Of a float32, which vLLM computes in; it says -9999 for what is impossible.
LEAST = float(np.finfo(np.float32).min)

Prompt = tuple[int, ...]


@dataclass
class ListRequest:
    """Prompts that are asked for the same ids."""

    ids: set[int] = field(default_factory=set)
    prompts: list[Prompt] = field(default_factory=list)
    places: list[tuple[int, int, list[int]]] = field(default_factory=list)  # of each: read, first column, ids

    def takes(self, wanted: Sequence[int]) -> bool:
        return len(self.prompts) < MOST_PROMPTS and len(self.ids.union(wanted)) <= LIST_IDS

    def add(self, prompt: Prompt, read: int, column: int, wanted: list[int]) -> None:
        self.ids.update(wanted)
        self.prompts.append(prompt)
        self.places.append((read, column, wanted))

    @property
    def tokens(self) -> int:
        return sum(map(len, self.prompts))

    def body(self) -> dict[str, Any]:
        return {
            "prompt": [list(prompt) for prompt in self.prompts],
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": len(self.ids),
            "logprob_token_ids": sorted(self.ids),
            "return_tokens_as_token_ids": True,
        }

    def split(self) -> Iterator[ListRequest]:
        """The first prompt alone, then the others."""
        for part in (slice(0, 1), slice(1, None)):
            if self.prompts[part]:
                yield ListRequest(self.ids, self.prompts[part], self.places[part])

    def fill(self, rows: Sequence[np.ndarray], answer: Mapping[str, Any]) -> None:
        """Writes the log-probabilities of an answer where they belong. Raises `ServerRefused`."""
        for (read, column, ids), found in zip(self.places, _found(answer, len(self.prompts)), strict=True):
            try:
                told = [found[f"token_id:{token}"] for token in ids]
            except (KeyError, TypeError):
                raise ServerRefused(
                    "the vLLM server does not answer with the token ids that it was asked for; "
                    "update it to 0.32 or later"
                ) from None
            if wrong := [each for each in told if not _is_log_probability(each)]:
                raise ServerRefused(
                    f"the vLLM server answers {shown(wrong[0])} where a log-probability should be; "
                    "start it with --logprobs-mode raw_logprobs"
                )
            rows[read][column : column + len(ids)] = told


def requests_for(prompts: Sequence[Prompt], wanted: Sequence[np.ndarray]) -> list[ListRequest]:
    """Each prompt with what it wants, in as few requests as the first that fits makes of them."""
    made: list[ListRequest] = []
    for read, (prompt, ids) in enumerate(zip(prompts, wanted, strict=True)):
        for column in range(0, len(ids), LIST_IDS):
            part = ids[column : column + LIST_IDS].tolist()
            request = next((one for one in made if one.takes(part)), None)
            if request is None:
                made.append(request := ListRequest())
            request.add(prompt, read, column, part)
    return made


def _found(answer: Mapping[str, Any], count: int) -> list[Mapping[str, float]]:
    """By prompt: the log-probability of each id, as the server names it. Raises `ServerRefused`."""
    try:
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        found = [choice["logprobs"]["top_logprobs"][0] for choice in choices]
        numbers = [choice["index"] for choice in choices]
    except (KeyError, TypeError, IndexError):
        found, numbers = [], []
    if numbers != list(range(count)):
        raise ServerRefused(f"the vLLM server answered {len(found)} of {count} prompts; update it to 0.32 or later")
    return found


def _is_log_probability(value: object) -> bool:
    """Neither NaN nor above 0 by more than rounding: with logits in their place every answer would be wrong."""
    return type(value) in (int, float) and LEAST <= value <= 1e-3
