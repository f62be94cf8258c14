"""Aptitude: what model and tokenizer bring along, apart from how well they are read.

More checks for the suite of core/conformance.py: whether lines keep their boundaries in the
tokenizer, whether the model wants any allowed choice at all, what a pass costs, and whether the
content-free prior helps on a few labelled rows.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.conformance import SMALL, TEXTS, Verdict, prepared_for
from core.engine import Engine
from core.prompt import ChatFormat, instructions, literal
from core.request import Prepared
from core.schema import StructuredSchema
from core.trie import surface_forms

#: Candidate mass below which a model does not follow the format at all, and below which it often would not. On the
#: questions here: random logits 0.00 to 0.01, SmolLM2-135M 0.16 to 0.32 (a small model, not a wrong template),
#: Qwen 1.5B 0.97 and more.
LEAST_MASS, GOOD_MASS = 0.1, 0.9
#: The sign test's level.
SIGNIFICANT = 0.05
TYPED = 64  # control tokens that the check types; some tokenizers have thousands
#: Where the texts stand in `ChatFormat.key`.
_SLOT = re.compile(r"PCD-\w+?-SLOT")

LABELLED = Path(__file__).parents[1] / "assets" / "labelled" / "snips.jsonl"

TRAPS = (
    *("A+", "A-", "-", "", "Yes", "Yes.", "1", 1, 10, "true", True, None, "null", "caf\u00e9", "\u751f\u6c14"),
    *("\U0001f680", "\U0001f469\u200d\U0001f680", " high ", 'say "stop"', "C:\\temp", "line1\nline2", "</b>", '",'),
)
#: Plain texts, each with a question that it answers.
QUESTIONS = (
    (
        "The sky over the harbour is blue today.",
        {"colour": {"type": "enum", "choices": ["RED", "BLUE", "GREEN"], "description": "Which colour is named?"}},
    ),
    (
        "The shop is closed on Sundays.",
        {"open_on_sunday": {"type": "boolean", "description": "Is the shop open on Sundays?"}},
    ),
    (
        "We counted three boats.",
        {"boats": {"type": "enum", "choices": [1, 2, 3, 4], "description": "How many boats are there?"}},
    ),
)


def boundaries(engine: Engine) -> Verdict:
    """The tokens of each line spell it and are those of the whole text; only the template makes control tokens."""
    schema = StructuredSchema({"value": {"type": "enum", "choices": list(TRAPS)}})
    prepared = prepared_for(engine, TEXTS[2], schema)
    chat = ChatFormat(engine.vocabulary, engine.backend.tokenizer)
    typed = list(engine.vocabulary.control)[:TYPED]
    faults = [
        *_line_faults(engine, prepared, chat),
        *_control_faults(engine, typed),
        *_bos_faults(engine, prepared, chat),
    ]
    if faults:
        return Verdict("FAIL", f"{faults[0]} (fault 1 of {len(faults)})", tuple(faults[1:]))
    has_bos = prepared.whole[0] == engine.backend.tokenizer.bos_token_id
    return Verdict(
        "PASS",
        f"{len(prepared.plan.tries[0].forms)} lines of {len(TRAPS)} trap choices spell themselves, with the ids of the "
        f"whole text; {len(typed)} typed control tokens stay text; {'one BOS' if has_bos else 'no BOS'}",
    )


def mass(engine: Engine) -> Verdict:
    """The probability that the model goes on with any allowed choice."""
    found = {}
    for text, fields in QUESTIONS:
        [decision] = engine.run_parallel(text, StructuredSchema(fields), complete=True).decisions
        found[decision.name] = (decision.candidate_mass, decision.value)
    measured = "an allowed choice is wanted with " + ", ".join(
        f"{share:.3f} ({name}: {literal(value)})" for name, (share, value) in found.items()
    )
    least = min(share for share, _ in found.values())
    if least < LEAST_MASS:
        return Verdict("FAIL", f"{measured}; below {LEAST_MASS}: the template or the model does not follow the format")
    if least < GOOD_MASS:
        return Verdict("WARN", f"{measured}; below {GOOD_MASS}: the model would often write something else")
    return Verdict("PASS", measured)


def cost(engine: Engine) -> Verdict:
    """What decides how trees are read here."""
    overhead = engine.pass_overhead
    price = f"as much as {overhead:.0f} tokens" if math.isfinite(overhead) else "not measured, or tokens cost nothing"
    return Verdict("INFO", f"strategy {engine.backend.identity.strategy}; a pass costs beside its tokens: {price}")


def prior(engine: Engine) -> Verdict:
    """Whether it helps to subtract the scores of a text without content."""
    rows = [json.loads(line) for line in LABELLED.read_text(encoding="utf-8").splitlines()]
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    question = {"type": "enum", "choices": sorted(set(labels)), "description": "What does the speaker want?"}
    schema = StructuredSchema({"intent": question})
    right = {
        setting: [
            result.values["intent"] == label
            for result, label in zip(engine.decode_many(texts, schema, prior=setting), labels, strict=True)
        ]
        for setting in ("none", "content_free")
    }
    majority = max(map(labels.count, labels)) / len(labels)
    return Verdict("INFO", f"{prior_verdict(right['none'], right['content_free'])}; always one label: {majority:.2f}")


def prior_verdict(without: Sequence[bool], given: Sequence[bool]) -> str:
    """Both accuracies, and an exact two-sided sign test over the rows on which they differ."""
    better = sum(b and not a for a, b in zip(without, given, strict=True))
    worse = sum(a and not b for a, b in zip(without, given, strict=True))
    count = better + worse
    tail = sum(math.comb(count, k) for k in range(min(better, worse) + 1))
    p = min(1.0, 2 * tail / 2**count)
    word = "no evidence either way" if p >= SIGNIFICANT else "helps" if better > worse else "hurts"
    return (
        f"content_free: {word}; {len(given)} rows, right {sum(without) / len(without):.2f} without and "
        f"{sum(given) / len(given):.2f} with it, {better} better, {worse} worse, p = {p:.2g}"
    )


def _line_faults(engine: Engine, prepared: Prepared, chat: ChatFormat) -> Iterator[str]:
    vocabulary, tokenizer = engine.vocabulary, engine.backend.tokenizer
    prompt, schema = prepared.plan.prompt, prepared.request.schema
    start, middle, end = _SLOT.split(chat.key)
    whole = f"{start}{instructions(schema)}{middle}{prepared.request.context}{end}{prompt.layout.opening}"
    for form, (_, text) in zip(prepared.plan.tries[0].forms, surface_forms(schema.fields[0]), strict=True):
        line = prompt.layout.line(schema.fields[0].name, text)
        spelled = b"".join(map(vocabulary.bytes_of, form.tokens)).decode(errors="replace")
        decoded = tokenizer.decode([*prompt.tail, *form.tokens], clean_up_tokenization_spaces=False)
        if spelled != line or not decoded.endswith(line):
            yield f"the tokens of {line!a} spell {spelled!a}, decoded {decoded[-len(line) :]!a}"
        elif tokenizer(whole + line, add_special_tokens=False).input_ids != [*prepared.whole, *form.tokens]:
            yield f"prompt and {line!a} have other ids than their text encoded as a whole"


def _control_faults(engine: Engine, typed: Sequence[str]) -> Iterator[str]:
    """Users type control tokens as text, choice, description and name."""
    name, choice = (*typed[:2], "name", "choice")[:2]
    hostile = {name: {"type": "enum", "choices": [choice, "OTHER"], "description": "".join(typed[:3])}}
    control = set(engine.vocabulary.control.values())
    plain = prepared_for(engine, TEXTS[0], SMALL)
    prepared = prepared_for(engine, " ".join(["x", *typed]), StructuredSchema(hostile))
    expected, made = ([i for i in each.whole if i in control] for each in (plain, prepared))
    lines = {i for form in prepared.plan.tries[0].forms for i in form.tokens}
    if made != expected or not control.isdisjoint(lines):
        yield f"typed control tokens become control tokens: {len(made)} in the prompt, {len(expected)} without them"


def _bos_faults(engine: Engine, prepared: Prepared, chat: ChatFormat) -> Iterator[str]:
    """A template may print the same token at each turn; twice at the start is too many in any case."""
    bos, token = engine.backend.tokenizer.bos_token, engine.backend.tokenizer.bos_token_id
    if bos:
        count, printed = prepared.whole.count(token), chat.key.count(bos)
        if count != printed or prepared.whole[:2] == [token, token]:
            yield f"BOS {bos!r} stands {count} times in the prompt, {printed} times in the template's text"
