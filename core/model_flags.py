"""The flags that choose a model, the same for the app and every command, and the engine that they ask for."""

from __future__ import annotations

import argparse
from typing import Any

from core.address import AddressError, servers
from core.backends import NAMES
from core.engine import Engine, default_of
from core.models import ProgressBar

#: Requests that a server may be asked to work on at the same time.
MOST_IN_FLIGHT = 256
#: Flags of a server, by what `Engine.load` calls them.
_OF_A_SERVER = {"key": "server_key", "tokenizer": "tokenizer", "in_flight": "in_flight"}


def add_model_flags(
    parser: argparse.ArgumentParser, model: str = "auto", *, is_positional: bool = False, or_none: bool = False
) -> None:
    """`model`: the one where neither a flag nor PCD_MODEL names one; `is_positional`: it is no flag.

    `or_none`: whether `none` is a choice.
    """
    usual = default_of("MODEL")
    usual = model if usual == "auto" else usual
    names = f"a name of python -m core.models, a hub id, {'a path, or none' if or_none else 'or a path'} (%(default)s)"
    which = parser.add_mutually_exclusive_group()
    if is_positional:
        which.add_argument("model", nargs="?", default=usual, action=_Model, metavar="MODEL", help=names)
    else:
        which.add_argument("--model", default=usual, metavar="NAME", help=names)
    url = "instead of a model a vLLM server's http://HOST:PORT; of several, with commas or the flag again"
    which.add_argument("--url", type=_addresses, action=_Url, metavar="URL", help=url)
    backends = "%(choices)s; vllm with --url"
    parser.add_argument("--backend", default=default_of("BACKEND"), choices=NAMES, help=backends)
    parser.add_argument(
        "--dtype",
        default=default_of("DTYPE"),
        choices=["auto", "bfloat16", "float16", "float32"],
        help="of the weights; not with --url",
    )
    key = (
        "what the vLLM server's own --api-key asks for; others on this machine see a flag with ps, so better set "
        "VLLM_API_KEY; the app's --api-key is another one and guards page and REST"
    )
    parser.add_argument("--server-key", metavar="KEY", help=key)
    tokenizer = "the served model's: a folder or a hub id (PCD_TOKENIZER, or what the server names)"
    parser.add_argument("--tokenizer", metavar="PATH", help=tokenizer)
    at_once = "requests to the vLLM server at a time (8)"
    parser.add_argument("--in-flight", type=in_flight, metavar="N", help=at_once)
    parser.add_argument("--offline", action="store_true", help="ask no network for a model")


def load_options(given: argparse.Namespace) -> dict[str, Any]:
    """What the flags say to `Engine.load` beside the model's name; of a server only what was given."""
    of_a_server = {option: getattr(given, flag) for option, flag in _OF_A_SERVER.items()}
    named = {option: value for option, value in of_a_server.items() if value is not None}
    return {"backend": given.backend, "dtype": given.dtype, "offline": given.offline, **named}


def loaded(given: argparse.Namespace, **more: Any) -> Engine:
    """The engine, with a bar while it loads; `more`: options that take the place of the flags'. Raises as it does."""
    with ProgressBar() as bar:
        return Engine.load(given.model, **(load_options(given) | more), progress=bar.show)


def in_flight(text: str) -> int:
    """A number of requests, for argparse."""
    if not text.isdecimal() or not 1 <= int(text) <= MOST_IN_FLIGHT:
        raise argparse.ArgumentTypeError(f"{text!r} in flight: give a number from 1 to {MOST_IN_FLIGHT}")
    return int(text)


def _addresses(text: str) -> tuple[str, ...]:
    try:
        return servers(text)
    except AddressError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


class _Model(argparse.Action):
    """A model without a flag: argparse sets its default wherever it finds none, also past a URL."""

    def __call__(
        self, parser: argparse.ArgumentParser, given: argparse.Namespace, value: Any, flag: Any = None
    ) -> None:
        if not given.url:
            given.model = value


class _Url(argparse.Action):
    """Puts the servers in the model's place."""

    def __call__(
        self, parser: argparse.ArgumentParser, given: argparse.Namespace, value: Any, flag: Any = None
    ) -> None:
        given.url = (*(given.url or ()), *value)
        given.model = ",".join(given.url)
        if len(set(given.url)) < len(given.url):
            raise argparse.ArgumentError(self, "a server is given twice; give each once")
