"""`python -m core.decode SCHEMA`: decides a text, or a preset's own, and prints the result as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import get_args

from core.backend import BackendMissing, ModelUnsupported
from core.engine import Engine, default_of
from core.models import ModelError, ModelNotFound, ProgressBar
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
    names = "a name of python -m core.models, a hub id or a path"
    parser.add_argument("--model", default=default_of("MODEL"), help=names)
    parser.add_argument("--backend", default=default_of("BACKEND"))
    parser.add_argument("--dtype", default=default_of("DTYPE"), choices=["auto", "bfloat16", "float16", "float32"])
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument(
        "--style", default="pretty", choices=get_args(Style), help="of the JSON that the prompt asks for"
    )
    parser.add_argument("--scoring", default="identify", choices=get_args(Scoring), help="how far a line is scored")
    parser.add_argument("--prior", default="none", choices=get_args(Prior), help="what is subtracted from the scores")
    parser.add_argument(
        "--reading", default="auto", choices=["auto", *READINGS], help="read everything, or what proves the winner"
    )
    parser.add_argument("--offline", action="store_true", help="ask no network")
    given = parser.parse_args(arguments)
    try:
        schema, context = read_schema(given.schema, given.on_unsupported)
        if given.text is not None:
            context = sys.stdin.read() if given.text == "-" else given.text
        if not context:
            parser.error(f"{given.schema} has no text of its own; give --text")
        print_remarks(schema)
        with ProgressBar() as bar:
            engine = Engine.load(
                given.model, backend=given.backend, dtype=given.dtype, offline=given.offline, progress=bar.show
            )
        result = engine.run_parallel(
            context,
            schema,
            given.temperature,
            scoring=given.scoring,
            style=given.style,
            prior=given.prior,
            complete=READINGS.get(given.reading),
        )
    except (ValueError, ArithmeticError, ModelError, ModelNotFound, BackendMissing, ModelUnsupported) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    print(json.dumps(result.to_json(), ensure_ascii=not is_unicode, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
