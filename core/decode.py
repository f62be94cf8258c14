"""`python -m core.decode SCHEMA`: decides a text, or a preset's own, and prints the result as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import get_args

from core.backend import BackendMissing, ModelUnsupported
from core.model_flags import add_model_flags, loaded
from core.models import ModelError
from core.owner import Unavailable
from core.prompt import Style
from core.result import Prior, Scoring
from core.schema_file import PLACES, add_on_unsupported, print_remarks, read_schema

#: `complete` of a request, by what the command line calls it.
READINGS = {"complete": True, "best-first": False}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m core.decode", description=__doc__)
    parser.add_argument("schema", metavar="SCHEMA", help=PLACES)
    parser.add_argument("--text", help="what is to be decided, if not the preset's text; - reads standard input")
    add_on_unsupported(parser)
    add_model_flags(parser)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument(
        "--style", default="pretty", choices=get_args(Style), help="of the JSON that the prompt asks for"
    )
    parser.add_argument("--scoring", default="identify", choices=get_args(Scoring), help="how far a line is scored")
    parser.add_argument("--prior", default="none", choices=get_args(Prior), help="what is subtracted from the scores")
    parser.add_argument(
        "--reading", default="auto", choices=["auto", *READINGS], help="read everything, or what proves the winner"
    )
    given = parser.parse_args(arguments)
    try:
        schema, context = read_schema(given.schema, given.on_unsupported)
        if given.text is not None:
            context = sys.stdin.read() if given.text == "-" else given.text
        if not context:
            parser.error(f"{given.schema} has no text of its own; give --text")
        print_remarks(schema)
        engine = loaded(given)
        result = engine.run_parallel(
            context,
            schema,
            given.temperature,
            scoring=given.scoring,
            style=given.style,
            prior=given.prior,
            complete=READINGS.get(given.reading),
        )
    except (ValueError, ArithmeticError, ModelError, BackendMissing, ModelUnsupported, Unavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(result.to_json(), ensure_ascii=not is_unicode, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
