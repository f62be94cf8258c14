"""Conformance: whether the engine keeps its promises with a model on this machine.

Each check reaches the same numbers by two roads and says how far they are apart. It uses the
engine and the backend as anybody does, so that any model and any backend can be checked. Runs
on any thread but the owner's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from core.backend import Backend, TreeBatch
from core.engine import Engine
from core.prompt import Prompt, literal
from core.request import Prepared, Request
from core.result import Decision
from core.schema import FieldDefinition, StructuredSchema
from core.vocabulary import Vocabulary

Level = Literal["PASS", "WARN", "FAIL", "INFO"]

#: How far two roads to one log-probability may lie apart. In 16 bits the same text read in one pass and in two
#: differs by about 0.2, in a plain forward as well: sums are rounded in another order.
EXACT, ROUNDED = 1e-3, 0.5
ROOM = 12  # nodes of a pass, where it shall take many

_BLANK = b" \t\r\n"

TEXTS = (
    "The invoice of 12 May charges us twice, and we dispute it. Please call back today.",
    "Thank you, all is well.",
    "Our caf\u00e9 has had no light since 06:40, 123456789 is the number of the contract. \u751f\u6c14 \U0001f680",
    "I would like to know what ten more seats cost.\n\nNo hurry.",
    "Where do I change my password?",
)
SMALL = StructuredSchema(
    {
        "topic": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE", "BILL", "OTHER"]},
        "answer": {"type": "enum", "choices": ["Yes", "Yes.", "No"], "description": "Is an answer wanted?"},
        "level": {"type": "enum", "choices": [1, 10, "10", None], "description": "How urgent is it?"},
        "dispute": {"type": "boolean", "description": "Does the writer dispute something?"},
    }
)
_KINDS, _NUMBERS = ("INVOICE", "CONTRACT", "PASSWORD", "POWER", "REFUND", "SEATS"), (1042, 1077, 2310, 2391)
#: Digits are tokens of their own in most tokenizers: the tree is larger than what a best-first pass reads.
LARGE = StructuredSchema(
    {
        "case": {"type": "enum", "choices": [f"{kind}-{number}" for kind in _KINDS for number in _NUMBERS]},
        "urgent": {"type": "boolean", "description": "Is it urgent?"},
    }
)


@dataclass(frozen=True)
class Verdict:
    """What one check has found."""

    level: Level
    measured: str  # one line
    details: tuple[str, ...] = ()


Check = Callable[[Engine], Verdict]


def run(engine: Engine, checks: dict[str, Check]) -> Iterator[tuple[str, Verdict]]:
    """Each check's name and verdict. One that cannot be carried out has failed, with the reason."""
    for name, check in checks.items():
        try:
            verdict = check(engine)
        except Exception as error:  # a backend may raise anything, and that it does is what is to be found
            verdict = Verdict("FAIL", f"{type(error).__name__}: {error}")
        yield name, verdict


def oracle(engine: Engine) -> Verdict:
    """The engine's scores against each choice's line written out alone, its token sets found by brute force."""
    whole = engine.run_parallel(TEXTS[0], SMALL, cache=False, complete=True)
    expected, reads = _alone(engine, prepared_for(engine, TEXTS[0], SMALL))
    found = [_floats(decision) for decision in whole.decisions]
    apart = max(float(np.abs(a - b).max()) for a, b in zip(found, expected, strict=True))
    limit = allowed(engine)
    count = sum(map(len, expected))
    measured = f"{count} choices in {reads} reads of a line alone: scores at most {apart:.1e} apart, allowed {limit:g}"
    return Verdict("PASS" if apart <= limit else "FAIL", f"{measured} in {engine.backend.identity.dtype}")


def prefix(engine: Engine) -> Verdict:
    """A prefix is as it was after all that is done with it."""
    prepared = prepared_for(engine, TEXTS[0], SMALL)
    backend, tail, line = engine.backend, prepared.plan.prompt.tail, prepared.plan.tries[0].line(0)
    forks, (tree, ends) = prepared.plan.forks, prepared.plan.packed
    chain, (end,) = TreeBatch.of([line])

    def work() -> tuple[bool, float, int]:
        kept = backend.prefill(prepared.whole)
        seal, wanted = kept.seal(), [fork.tokens for fork in forks]
        before, _ = backend.read(kept, [], tree, ends, wanted)
        backend.read(kept, [], chain, [end], wanted[:1])
        backend.read(kept, tail, tree, ends, wanted, keep=True)
        backend.read(backend.prefill(tail, kept), [], tree, ends, wanted)
        decoder = backend.decoder(kept)
        for _ in range(4):
            decoder.append([decoder.choose()])
        after, _ = backend.read(kept, [], tree, ends, wanted)
        apart = max(float(np.abs(a - b).max()) for a, b in zip(before, after, strict=True))
        same = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        return kept.seal() == seal and kept.length == len(prepared.whole), 0.0 if same else apart, sum(map(len, after))

    sealed, apart, count = _on_owner(engine, work)
    measured = (
        f"after reads, a prefill on top and 4 decoded tokens the seal is {'kept' if sealed else 'broken'}, "
        f"{count} log-probabilities read again {'are the same bits' if apart == 0 else f'differ by {apart:.1e}'}"
    )
    return Verdict("PASS" if sealed and apart <= repeatable(engine) else "FAIL", measured)


def batch(engine: Engine) -> Verdict:
    """Several contexts together against each alone."""
    many = engine.decode_many(TEXTS, SMALL, complete=True)
    single = [engine.run_parallel(text, SMALL, complete=True) for text in TEXTS]
    shared = max(result.shared for result in many)
    return _compared(engine, f"{len(TEXTS)} texts, up to {shared} in a pass", zip(single, many, strict=True))


def passes(engine: Engine) -> Verdict:
    """All in one pass against many small ones and against best-first."""
    narrow, eager = another(engine, _Narrow(engine.backend)), another(engine, engine.backend)
    eager.pass_overhead = 0.0  # as if a pass cost nothing: reads little at a time
    one = engine.run_parallel(TEXTS[0], LARGE, cache=False, complete=True)
    pieces = narrow.run_parallel(TEXTS[0], LARGE, cache=False, complete=True)
    best = eager.run_parallel(TEXTS[0], LARGE, cache=False, complete=False)
    unread = sum(decision.unread for decision in best.decisions)
    what = (
        f"{one.tree_tokens} nodes in {one.passes} passes, with room for {ROOM} in {pieces.passes}, "
        f"best-first {best.tree_tokens} in {best.passes} ({unread} choices unread)"
    )
    return _compared(engine, what, [(one, pieces), (one, best)])


def repeat(engine: Engine) -> Verdict:
    """The same request twice, cold and on a cached head."""
    count, apart = 0, 0.0
    engine.run_parallel(TEXTS[0], SMALL)  # so that the head is here
    for cache in (False, True):
        first, second = (engine.run_parallel(TEXTS[0], SMALL, cache=cache, complete=True) for _ in range(2))
        for one, two in zip(first.decisions, second.decisions, strict=True):
            apart = max(apart, float(np.abs(_floats(one) - _floats(two)).max()))
            count += len(one.scores)
    found = "the same bits" if apart == 0 else f"up to {apart:.1e} apart"
    return Verdict(
        "PASS" if apart <= repeatable(engine) else "FAIL",
        f"{count} scores twice, without and with a cached head: {found}",
    )


def cache(engine: Engine) -> Verdict:
    """A cached head against a cold run, and a second text after a first one against a first one."""
    other, fresh = another(engine, engine.backend), another(engine, engine.backend)
    second_cold = other.run_parallel(TEXTS[1], SMALL, complete=True)
    cold, warm, second = (fresh.run_parallel(text, SMALL, complete=True) for text in (TEXTS[0], TEXTS[0], TEXTS[1]))
    states = "/".join(result.cache for result in (cold, warm, second))
    pairs = [(cold, warm), (second_cold, second)]
    if [d.scores for d in warm.decisions] == [d.scores for d in second.decisions]:
        return Verdict(
            "FAIL", f"two texts get the same numbers (heads {states}): texts are not read, or the first leaks"
        )
    return _compared(engine, f"two texts, heads {states}, against cold runs", pairs)


CHECKS: dict[str, Check] = {check.__name__: check for check in (oracle, prefix, batch, passes, repeat, cache)}


def allowed(engine: Engine) -> float:
    computed_in, _, _ = engine.backend.identity.dtype.partition(",")  # quantised weights are named behind it
    return EXACT if computed_in in ("float32", "float64") else ROUNDED


def repeatable(engine: Engine) -> float:
    """How far two runs of the same may lie apart: not at all, but on a server, which puts them in batches of its own."""
    return 0.0 if engine.backend.identity.clock == "engine" else allowed(engine)


class _Narrow:
    """A backend whose passes have little room."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def room(self, length: int) -> int:
        return ROOM


def another(engine: Engine, backend: Any) -> Engine:
    """An engine that has seen nothing yet, on the same thread."""
    return Engine(backend, engine.model, owner=engine.owner)


def _on_owner(engine: Engine, work: Callable[[], Any]) -> Any:
    return engine.owner.submit(lambda job: work()).result()


def prepared_for(engine: Engine, text: str, schema: StructuredSchema) -> Prepared:
    return _on_owner(engine, lambda: engine.prepare(Request(text, schema, cache=False, complete=True)))


def _compared(engine: Engine, what: str, pairs: Any) -> Verdict:
    """Whether two runs agree: in winners, but for choices too close to tell apart, and in scores as far as read."""
    limit, scores, shares = allowed(engine), 0.0, 0.0
    ties, wrong = [], []
    for one, other in pairs:
        for a, b in zip(one.decisions, other.decisions, strict=True):
            apart, share = _apart(a, b)
            scores, shares = max(scores, apart), max(shares, share)
            if a.winner != b.winner:
                gap = abs(_floats(a)[a.winner] - _floats(a)[b.winner])
                pair = f"{a.name}: {literal(a.value)} and {literal(b.value)}, {gap:.1e} apart"
                (ties if gap < limit else wrong).append(pair)
    winners = f"other winners: {len(wrong)}" if wrong else f"ties: {len(ties)}" if ties else "the same winners"
    measured = f"{what}: {winners}, scores at most {scores:.1e} apart, probabilities {shares:.1e}, allowed {limit:g}"
    return Verdict("PASS" if scores <= limit and not wrong else "FAIL", measured, tuple(wrong + ties))


def _apart(a: Decision, b: Decision) -> tuple[float, float]:
    """Largest distances of scores and probabilities, `b` read as far as `a` or less far.

    A bare value is two forms of which `b` may hold one: then its score may only be lower.
    """
    scores = shares = 0.0
    for choice, one, other, p, q in zip(a.choices, a.scores, b.scores, a.probabilities, b.probabilities, strict=True):
        if one is not None and other is not None:
            may_be_lower = b.unread_mass > 0 and not isinstance(choice, str)
            scores = max(scores, other - one if may_be_lower else abs(other - one))
            shares = max(shares, abs(p - q) - b.unread_mass)
    return scores, shares


def _floats(decision: Decision) -> np.ndarray:
    return np.array(decision.scores, dtype=np.float64)


# --- each line alone: lines, forks and token sets found again without core/trie.py ---


@dataclass(frozen=True)
class _Line:
    choice: int
    is_quoted: bool
    tokens: tuple[int, ...]
    value: bytes  # of the line up to the value's end


def _alone(engine: Engine, prepared: Prepared) -> tuple[list[np.ndarray], int]:
    """By field the score of each choice (C,), and how many lines were read."""
    vocabulary, backend, prompt = engine.vocabulary, engine.backend, prepared.plan.prompt
    texts = [vocabulary.bytes_of(token) for token in range(backend.identity.vocab_size)]
    fields = [_lines(field, prompt, vocabulary) for field in prepared.request.schema]

    def work() -> list[np.ndarray]:
        kept, found = backend.prefill(prepared.whole), []
        for field, lines in zip(prepared.request.schema, fields, strict=True):
            scores = np.full(len(field.choices), -np.inf)
            for line in lines:
                sets = _token_sets(line, lines, texts)
                chain, _ = TreeBatch.of([line.tokens[: max(sets)]])
                rows, _ = backend.read(kept, [], chain, [depth - 1 for depth in sets], list(sets.values()))
                score = sum(np.logaddexp.reduce(row.astype(np.float64)) for row in rows)
                scores[line.choice] = np.logaddexp(scores[line.choice], score)
            found.append(scores)
        return found

    return _on_owner(engine, work), sum(map(len, fields))


def _lines(field: FieldDefinition, prompt: Prompt, vocabulary: Vocabulary) -> list[_Line]:
    """Every choice as JSON, and bare values also in quotes unless those spell another choice."""
    own = list(map(literal, field.choices))
    written = list(enumerate(own))
    written += [(i, f'"{text}"') for i, text in enumerate(own) if text[0] != '"' and f'"{text}"' not in own]
    lines = []
    for i, text in written:
        line = prompt.layout.line(field.name, text)
        [tokens] = vocabulary.encode_after(prompt.before_line, [line])
        spelled = b"".join(map(vocabulary.bytes_of, tokens))
        value = spelled[: len(spelled) - len(prompt.layout.after.encode())]
        lines.append(_Line(i, text[0] == '"', tuple(tokens), value))
    return lines


def _token_sets(line: _Line, lines: Sequence[_Line], texts: Sequence[bytes]) -> dict[int, np.ndarray]:
    """Depth -> the tokens with which the text goes on as this line does and as no other, where choices part."""
    sets: dict[int, np.ndarray] = {}
    for depth, own in enumerate(line.tokens):
        alive = [other for other in lines if other.tokens[:depth] == line.tokens[:depth]]
        if len({other.choice for other in alive}) == 1:
            break
        children = {other.tokens[depth] for other in alive}
        if len(children) > 1:
            written = sum(len(texts[token]) for token in line.tokens[:depth])
            rests = {(other.tokens[depth], other.value[written:], other.is_quoted) for other in alive}
            starts = set(b",}" + _BLANK).union(*(rest[:1] for _, rest, _ in rests))
            mine = [own]
            for token, text in enumerate(texts):
                is_likely = text and text[0] in starts and token not in children
                if is_likely and {child for child, rest, quoted in rests if _goes_on(text, rest, quoted)} == {own}:
                    mine.append(token)
            sets[depth] = np.array(mine, dtype=np.int64)
    return sets


def _goes_on(text: bytes, rest: bytes, is_quoted: bool) -> bool:
    """Whether a token begins what is left of a value, or holds all of it and what may follow a value."""
    if rest.startswith(text):
        return True
    after = text[len(rest) :]
    if not text.startswith(rest):
        return False
    return after.lstrip(_BLANK)[:1] in (b"", b",", b"}") if is_quoted else after[0] in b",}" + _BLANK
