"""`python -m core.check [MODEL]`: whether a model keeps the engine's promises here.

`python -m core.check --schema FILE [MODEL]` reviews a schema, or a preset's, before it goes live:
the tokens of every choice, what they cost, and findings. Exit status 0 if nothing has failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from core import aptitude, conformance
from core.backend import BackendMissing, ModelUnsupported
from core.conformance import Check, Verdict
from core.engine import Engine
from core.model_flags import add_model_flags, loaded
from core.models import ModelError
from core.owner import Unavailable
from core.prompt import ChatFormat, literal
from core.review import FieldReview, Piece, Review, Sizes, review
from core.schema import StructuredSchema
from core.schema_file import PLACES, add_on_unsupported, print_remarks, read_schema
from core.wording import escaped

CHECKS: dict[str, Check] = {
    "boundaries": aptitude.boundaries,
    **conformance.CHECKS,
    "mass": aptitude.mass,
    "cost": aptitude.cost,
    "prior": aptitude.prior,
}
#: Left out by --fast.
SLOW = ("prior",)

COLUMNS = 120
WIDEST_CHOICE = 48  # columns that a choice gets before its tokens

LEGEND = (
    "Each choice: how many tokens identify it, then its tokens from the field's first fork on. `>` stands before a "
    "token at a fork, where choices part and logits are read; [ ] is the token that identifies the choice; "
    "\u00b7 is a space."
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m core.check", description=__doc__)
    add_model_flags(parser, is_positional=True)
    parser.add_argument("--schema", metavar="PLACE", help=f"review this schema instead: {PLACES}")
    add_on_unsupported(parser)
    parser.add_argument("--fast", action="store_true", help="leave out the labelled rows")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if given.fast and given.schema:
        parser.error("--fast is for the suite; leave it out with --schema")
    try:
        asked = read_schema(given.schema, given.on_unsupported) if given.schema else None
        if asked:
            print_remarks(asked[0])
        engine = loaded(given)
        if asked:
            return print_review(engine, *asked, given.json)
        return print_suite(
            engine, {name: CHECKS[name] for name in CHECKS if not (given.fast and name in SLOW)}, given.json
        )
    except (ValueError, ModelError, BackendMissing, ModelUnsupported, Unavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def print_suite(engine: Engine, checks: dict[str, Check], as_json: bool) -> int:
    verdicts: dict[str, Verdict] = {}
    if not as_json:
        print(f"{model_line(engine)}\n", flush=True)
    for name, verdict in conformance.run(engine, checks):
        verdicts[name] = verdict
        if not as_json:
            print("\n".join(verdict_lines(name, verdict)), flush=True)
    failed = [name for name, verdict in verdicts.items() if verdict.level == "FAIL"]
    if as_json:
        found = [{"name": name, **asdict(verdict)} for name, verdict in verdicts.items()]
        print(json.dumps({**model_json(engine), "passed": not failed, "checks": found}, ensure_ascii=False, indent=2))
    else:
        print(f"\n{'failed: ' + ', '.join(failed) if failed else 'nothing failed'}, {len(verdicts)} checks")
    return 1 if failed else 0


def verdict_lines(name: str, verdict: Verdict) -> list[str]:
    start = f"{verdict.level:<4} {name:<11} "
    details = [wrapped(" " * len(start) + "- ", escaped(detail)) for detail in verdict.details]
    return [wrapped(start, escaped(verdict.measured)), *details]


def print_review(engine: Engine, schema: StructuredSchema, text: str, as_json: bool) -> int:
    chat = ChatFormat(engine.vocabulary, engine.backend.tokenizer)
    found = review(schema, engine.vocabulary, chat, engine.backend.identity.window, engine.pass_overhead, text)
    if as_json:
        print(json.dumps(model_json(engine) | review_json(found), ensure_ascii=False, indent=2))
    else:
        print("\n".join([model_line(engine), "", *review_lines(found)]))
    return 1 if found.count("ERROR") else 0


def review_lines(found: Review) -> Iterator[str]:
    yield from sizes_lines(found.sizes) if found.sizes else ["no tree: see the errors below"]
    yield from ["", wrapped("", LEGEND)]
    for field in found.fields:
        yield from ["", *field_lines(field)]
    yield from ["", "Findings"]
    grouped: dict[tuple[str, str], list[str]] = {}
    for finding in found.findings:
        grouped.setdefault((finding.level, finding.message), []).append(finding.where)
    for level in ("ERROR", "WARN", "NOTE"):
        for (own, message), where in grouped.items():
            if own == level:
                fields = ", ".join(filter(None, where))
                yield wrapped(f"{level:<5} ", escaped(f"{fields}: {message}" if fields else message))
    levels = (("ERROR", "error"), ("WARN", "warning"), ("NOTE", "note"))
    yield ", ".join(counted(found.count(level), word) for level, word in levels)


def sizes_lines(sizes: Sizes) -> Iterator[str]:
    text = "" if sizes.text is None else f"; its own text has {sizes.text:,}"
    yield f"schema  {counted(sizes.fields, 'field')}, {sizes.choices} choices"
    yield (
        f"window  {sizes.window:,} tokens: head {sizes.head:,}, tail {sizes.tail:,}, answer {sizes.answer:,}; "
        f"{max(0, sizes.room):,} left for a text{text}"
    )
    reading = "best-first, about" if sizes.best_first else "complete, in"
    read = f"read {reading} {counted(sizes.passes, 'pass', 'passes')} with the head cached, one more without"
    yield f"tree    {sizes.nodes:,} nodes, {sizes.forks:,} forks; {read}"


def field_lines(found: FieldReview) -> Iterator[str]:
    field = found.field
    if field.field_type == "const":
        yield f"{escaped(field.name)}  const, never scored; its line is {shown(found.beginning)}"
        return
    kind = f"{field.field_type}, {len(field.choices)} choices"
    yield f"{escaped(field.name)}  {kind}; every line begins {shown(found.beginning)}"
    names = [escaped(literal(each.choice)) for each in found.choices]
    column = min(WIDEST_CHOICE, max(map(width, names)))
    for name, each in zip(names, found.choices, strict=True):
        tokens = " ".join(map(marked, each.pieces))
        yield f"{each.needed:>4}  {name}{' ' * (column - width(name))}  {tokens}"
    for shared, choices in found.groups:
        listed = ", ".join(escaped(literal(choice)) for choice in choices)
        yield wrapped("      ", f"{len(choices)} begin with {shown(shared)}: {listed}")


def marked(piece: Piece) -> str:
    text = f"[{shown(piece.text)}]" if piece.identifies else shown(piece.text)
    return f">{text}" if piece.is_fork else text


def shown(text: bytes) -> str:
    """A token's text, its spaces visible; bytes that are no whole character as escapes."""
    return escaped(text.decode(errors="backslashreplace")).replace(" ", "\u00b7")


def width(text: str) -> int:
    """Columns on a terminal."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def counted(count: int, one: str, several: str = "") -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def wrapped(start: str, text: str) -> str:
    lines = textwrap.wrap(text, COLUMNS - len(start), break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * len(start)}".join([start + lines[0], *lines[1:]])


def model_line(engine: Engine) -> str:
    identity = engine.backend.identity
    return f"{engine.model} ({engine.why}), {identity.backend} on {identity.device}, {identity.dtype}"


def model_json(engine: Engine) -> dict[str, Any]:
    identity = engine.backend.identity
    return {
        "model": engine.model,
        "why": engine.why,
        "backend": identity.backend,
        "device": identity.device,
        "dtype": identity.dtype,
        "strategy": identity.strategy,
    }


def review_json(found: Review) -> dict[str, Any]:
    return {
        "passed": found.count("ERROR") == 0,
        "sizes": asdict(found.sizes) | {"room": found.sizes.room} if found.sizes else None,
        "fields": [field_json(field) for field in found.fields],
        "findings": [asdict(finding) for finding in found.findings],
    }


def field_json(found: FieldReview) -> dict[str, Any]:
    return {
        "name": found.field.name,
        "type": found.field.field_type,
        "beginning": found.beginning.decode(errors="backslashreplace"),
        "choices": [
            {
                "choice": each.choice,
                "identified_by": each.needed,
                "tokens": [
                    {"id": p.token, "text": p.text.decode(errors="backslashreplace"), "fork": p.is_fork}
                    for p in each.pieces
                ],
            }
            for each in found.choices
        ],
        "groups": [
            {"shared": shared.decode(errors="backslashreplace"), "choices": list(choices)}
            for shared, choices in found.groups
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
