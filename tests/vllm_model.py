"""The numbers behind the small server: a tiny model's, by plain forwards, and the shapes in which vLLM tells them.

Log-probabilities are of whole forwards in float32 without a cache, over the full vocabulary. Only the
tokens after the first of an answer go on from one. Knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import llguidance.hf
import numpy as np
import torch
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from transformers import AutoModelForCausalLM, AutoTokenizer

MOST_IDS = 128
MOST_BEST = 20

#: What the server may be asked; vLLM ignores a key that it does not know, which would hide a slip here.
KNOWN = {
    "model", "prompt", "max_tokens", "temperature", "logprobs", "logprob_token_ids", "allowed_token_ids", "stream",
    "stream_options", "return_token_ids", "return_tokens_as_token_ids", "cache_salt", "response_format",
    "structured_outputs", "stop", "seed", "add_special_tokens", "skip_special_tokens", "stop_token_ids",
}  # fmt: skip


class Refusal(Exception):
    """A request that vLLM refuses, in its words."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, kind: str = "BadRequestError"):
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True)
class Step:
    """One token of an answer."""

    token: int
    text: str  # characters that became certain with it
    row: np.ndarray  # (V,) log-probabilities of what could have stood here
    finish: str | None
    reason: int | str | None


@dataclass
class TinyModel:
    """A checkpoint's folder, loaded."""

    folder: Path
    window: int
    rows: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.net = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32).eval()
        self.vocab_size = self.net.config.vocab_size
        ends = self.net.config.eos_token_id
        self.end_ids = {*(ends if isinstance(ends, list) else [ends]), self.tokenizer.eos_token_id} - {None}

    @torch.inference_mode()
    def after(self, ids: tuple[int, ...]) -> np.ndarray:
        """(V,) log-probabilities, float32, of what follows the ids."""
        if ids not in self.rows:
            logits = self.net(torch.tensor([ids]), use_cache=False, logits_to_keep=1).logits[0, -1]
            self.rows[ids] = logits.float().log_softmax(-1).numpy()
        return self.rows[ids]

    def steps(self, ids: tuple[int, ...], body: Mapping[str, Any]) -> Iterator[Step]:
        """The greedy answer to one prompt, token by token."""
        most = min(body.get("max_tokens") or 16, self.window - len(ids))
        matcher = self._matcher(body)
        stops = body.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        held_back = max((len(stop) - 1 for stop in stops), default=0)
        written, shown, row, past = [], 0, self.after(ids), None
        for number in range(1, most + 1):
            token = int(self._allowed(row, body, matcher).argmax())
            written.append(token)
            if matcher is not None and token not in self.end_ids:
                matcher.consume_token(token)
            text, finish, reason = self._text(ids, written), None, None
            cut = min((at for stop in stops if (at := text.find(stop, shown)) >= 0), default=-1)
            if token in self.end_ids:
                finish, reason = "stop", None if token == self.tokenizer.eos_token_id else token
            elif cut >= 0:
                reason = next(stop for stop in stops if text.startswith(stop, cut))
                finish, text = "stop", text[:cut]
            elif number == most:
                finish = "length"
            certain = len(text) if finish else max(shown, len(text) - held_back)
            yield Step(token, text[shown:certain], row, finish, reason)
            if finish:
                return
            shown = certain
            row, past = self._next(ids, token, past)

    @torch.inference_mode()
    def _next(self, ids: tuple[int, ...], token: int, past: Any) -> tuple[np.ndarray, Any]:
        if past is None:
            past = self.net(torch.tensor([ids]), use_cache=True, logits_to_keep=1).cache
        out = self.net(torch.tensor([[token]]), cache=past, use_cache=True)
        return out.logits[0, -1].float().log_softmax(-1).numpy(), out.past_key_values

    def _text(self, ids: tuple[int, ...], written: list[int]) -> str:
        """What is written, as it reads after the prompt; half a character is none yet."""
        before = list(ids[-6:])
        begun = self.tokenizer.decode(before, skip_special_tokens=True)
        whole = self.tokenizer.decode(before + written, skip_special_tokens=True)
        return whole[len(begun) :].rstrip("\ufffd")

    def _allowed(self, row: np.ndarray, body: Mapping[str, Any], matcher: LLMatcher | None) -> np.ndarray:
        may = np.ones(self.vocab_size, bool)
        if allowed := body.get("allowed_token_ids"):
            may[:] = False
            may[allowed] = True
        if matcher is not None:
            bits = allocate_token_bitmask(1, self.vocab_size)
            fill_next_token_bitmask(matcher, bits)
            assert not matcher.is_error(), matcher.get_error()
            may &= np.unpackbits(bits.view(np.uint8), bitorder="little")[: self.vocab_size].astype(bool)
        return np.where(may, row, -np.inf)

    def _matcher(self, body: Mapping[str, Any]) -> LLMatcher | None:
        asked = (body.get("structured_outputs") or {}).get("json")
        if (body.get("response_format") or {}).get("type") == "json_object":
            asked = {"type": "object"}
        if asked is None:
            return None
        return self._grammar(asked if isinstance(asked, str) else json.dumps(asked)).deep_copy()

    @cached_property
    def _grammar(self) -> Any:
        tokenizer = llguidance.hf.from_tokenizer(
            self.tokenizer, n_vocab=self.vocab_size, eos_token=sorted(self.end_ids)
        )

        @lru_cache(32)
        def compiled(schema: str) -> LLMatcher:
            # As the server does where nothing else is configured: white space wherever JSON takes it.
            grammar = LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": True})
            matcher = LLMatcher(tokenizer, grammar)
            if matcher.is_error():
                raise Refusal(f"Grammar error: {matcher.get_error().partition(chr(10))[0]}")
            return matcher

        return compiled

    # --- requests and answers ---

    def prompts(self, body: Mapping[str, Any]) -> list[tuple[int, ...]]:
        """The prompts as ids; raises `Refusal` as the server would refuse the request."""
        self._check_options(body)
        given = body.get("prompt")
        if given in (None, ""):
            raise _of("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        if given == []:
            raise Refusal("You must pass at least one prompt")
        several = given if isinstance(given[0], (list, str)) and not isinstance(given, str) else [given]
        prompts = [self.tokenizer(each)["input_ids"] if isinstance(each, str) else each for each in several]
        for ids in prompts:
            self._check_prompt(ids)
        return [tuple(ids) for ids in prompts]

    def _check_options(self, body: Mapping[str, Any]) -> None:
        assert not (unknown := body.keys() - KNOWN), f"vLLM knows no {unknown}, or this server does not"
        temperature = body.get("temperature")
        if not isinstance(temperature, (int, float)):
            raise _invalid("temperature", f"a valid number, unable to parse {temperature!r}")
        assert temperature == 0, "only greedy answers have one truth"
        ids, best, stream = body.get("logprob_token_ids"), body.get("logprobs"), body.get("stream")
        if ids and best is None:
            raise _of("when using `logprob_token_ids`, `logprobs` must be set.", "logprob_token_ids")
        if body.get("cache_salt") == "":
            raise _of("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
        if body.get("stream_options") and not stream:
            raise _of("Stream options can only be defined when `stream=True`.", "stream_options")
        if len(body.get("structured_outputs", {}).keys() & {"json", "regex", "choice"}) > 1:
            kinds = "('json', 'regex' or 'choice')"
            raise _of(f"You can only use one kind of constraints for structured outputs {kinds}.", "structured_outputs")
        if best is not None and best > MOST_BEST and not ids:
            raise _too_many("sample logprobs of", best, MOST_BEST, "logprobs")
        if ids and len(ids) > MOST_IDS:
            raise _too_many("logprob_token_ids of length", len(ids), MOST_IDS, "logprob_token_ids")
        if strange := [i for i in ids or () if not 0 <= i < self.vocab_size]:
            words = "in logprob_token_ids contain out-of-vocab token ids. Vocabulary size:"
            raise _of(f"token_id(s) {strange} {words} {self.vocab_size}", "logprob_token_ids", strange)

    def _check_prompt(self, ids: list[int]) -> None:
        if any(not isinstance(i, int) or i < 0 for i in ids):
            raise _invalid("prompt.0", "greater than or equal to 0")
        if not ids:
            raise Refusal("The decoder prompt cannot be empty")
        if len(ids) > self.window:
            raise _of(
                f"This model's maximum context length is {self.window} tokens. However, your prompt contains at least "
                f"{len(ids)} input tokens, which exceeds this limit even without any output tokens. Please reduce the "
                "length of the input prompt.",
                "input_tokens",
                len(ids),
            )
        if len(ids) == self.window:
            raise _of("max_tokens must be at least 1, got 0.", "max_tokens", 0)
        if strange := next((i for i in ids if i >= self.vocab_size), None):
            raise Refusal(f"Token id {strange} is out of vocabulary")

    def logprobs(self, steps: list[Step], body: Mapping[str, Any], offset: int = 0) -> dict[str, Any] | None:
        """Of the tokens of a stretch, as `choices[i].logprobs` has them; `offset`: characters before it."""
        if (best := body.get("logprobs")) is None:
            return None
        spelled = (
            "token_id:{}".format if body.get("return_tokens_as_token_ids") else self.tokenizer.convert_ids_to_tokens
        )
        told: dict[str, Any] = {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
        for step in steps:
            ids = body.get("logprob_token_ids") or np.argsort(-step.row, kind="stable")[:best].tolist()
            row = {spelled(i): max(float(step.row[i]), -9999.0) for i in (step.token, *ids)}
            told["text_offset"].append(offset)
            told["token_logprobs"].append(row[spelled(step.token)])
            told["tokens"].append(spelled(step.token))
            told["top_logprobs"].append(row)
            offset += len(spelled(step.token))
        return told


def _of(message: str, param: str, value: Any = None) -> Refusal:
    shown = "" if value is None else f", value={value}"
    return Refusal(f"{message} (parameter={param}{shown})", param)


def _too_many(what: str, count: int, most: int, param: str) -> Refusal:
    return _of(f"Requested {what} {count}, which is greater than max allowed: {most}", param, count)


def _invalid(where: str, wanted: str) -> Refusal:
    message = f"1 validation error:\n  {{'loc': 'body.{where}', 'msg': 'Input should be {wanted}'}}"
    return Refusal(message, f"body.{where}", kind="Bad Request")
