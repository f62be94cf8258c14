"""One vLLM server over HTTP: what it is, and single requests to it, each tried once.

Knows vLLM's routes and shapes (0.32) and its errors; knows nothing of prompts, schemas or of
other servers. Every method may be called from several threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from core.owner import Unavailable
from core.public import pathless, public_name
from core.vllm_wire import Wire
from core.wording import escaped

CONNECT_S = 5.0
#: Silence after which a request is given up. The first of a CPU server takes 20 s.
SILENCE_S = 300.0
#: A connection that was idle for longer is not used again: vLLM closes it after 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE).
IDLE_S = 4.0
#: Answers after which the same request may be sent again: it was not taken, or not finished.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
#: What OpenSSL says where another try cannot help: an authority that is unknown here, a server without TLS.
_NO_TLS = re.compile("CERTIFICATE_VERIFY_FAILED|WRONG_VERSION_NUMBER")
#: Where a server's own words say who it asks in its turn.
_NUMERIC_HOST = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b")
#: Characters of a name that a server gives, and of its own words.
MOST_NAME, MOST_REASON = 100, 200


class ServerAway(Unavailable):
    """The server does not answer, or not now; the message is one line for people."""


class ServerChanged(Unavailable):
    """The server answers, and runs another model than the one that was found there."""


class ServerRefused(Unavailable):
    """The server takes a request for wrong, or is none of vLLM's; the message has the reason."""

    is_passing = False


class NoAnswer(Exception):
    """One try without an answer: another one may have it, in `retry_s` at the earliest where the server says so."""

    def __init__(self, reason: str, retry_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_s = retry_s


@dataclass(frozen=True)
class Served:
    """What a server runs."""

    id: str  # the name that requests give
    root: str  # where its weights come from: a folder of the server, or a hub id
    window: int

    @property
    def name(self) -> str:
        """For people: of a path the last part, on one line and never long."""
        return escaped(public_name(self.id))[:MOST_NAME] or "a model without a name"


class VllmServer:
    """A server by its address, as `core/address.py` gives it; `key` is what its own `--api-key` asks for."""

    def __init__(self, url: str, key: str | None = None) -> None:
        self.url = url
        if key and not (key.isascii() and key.isprintable()):
            raise ServerRefused("the server's key has a character that no header carries; give it without line ends")
        self._key = key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(SILENCE_S, connect=CONNECT_S, pool=None)
        # A proxy of the environment is for the way out, not for a server that was named.
        self._client = httpx.Client(
            base_url=self.url, headers=headers, timeout=timeout, transport=Wire(IDLE_S), trust_env=False
        )

    def served(self) -> Served:
        """Raises `NoAnswer`, `ServerRefused`."""
        models = self._get("/v1/models").get("data")
        try:
            base = next(model for model in models if isinstance(model, dict) and not model.get("parent"))
            found = Served(str(base["id"]), str(base.get("root") or base["id"]), int(base["max_model_len"]))
            if found.window < 1:
                raise ValueError(found.window)
        except (TypeError, KeyError, ValueError, OverflowError, StopIteration):
            raise ServerRefused(f"the server at {self.url} is no vLLM: it names no model with a window") from None
        return found

    def tokens(self, model: str, text: str) -> list[int]:
        """The server's own ids of a text. Raises as `served` does."""
        asked = {"model": model, "prompt": text, "add_special_tokens": False}
        found = self._post("/tokenize", asked).get("tokens")
        if not isinstance(found, list) or not all(type(token) is int for token in found):
            raise ServerRefused("the vLLM server does not say how it tokenises; update it to 0.32 or later")
        return found

    def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """One answer. Raises `NoAnswer`, `ServerRefused`, `ServerChanged`."""
        return self._post("/v1/completions", body)

    @contextmanager
    def stream(self, body: Mapping[str, Any]) -> Iterator[Iterator[dict[str, Any]]]:
        """The parts of a streamed answer, as they come; leaving the block ends the request on the server too.

        Raises as `completions` does; the iterator raises `NoAnswer` where the stream breaks.
        """
        with _told_as_no_answer(), self._client.stream("POST", "/v1/completions", json=dict(body)) as answer:
            if answer.status_code != 200:
                answer.read()
                raise self._refused(answer)
            yield _parts(answer, self._key)

    def close(self) -> None:
        self._client.close()

    def version(self) -> str:
        """Raises `NoAnswer`."""
        try:
            version = escaped(str(self._get("/version").get("version") or ""))
            return version[:MOST_NAME] or "of unknown version"
        except ServerRefused:  # a balancer in front may not pass it on
            return "of unknown version"

    def _get(self, path: str) -> dict[str, Any]:
        with _told_as_no_answer():
            return self._object(self._client.get(path))

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        with _told_as_no_answer():
            return self._object(self._client.post(path, json=dict(body)))

    def _object(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code != 200:
            raise self._refused(answer)
        found = _parsed(answer.content)
        if not isinstance(found, dict):
            raise ServerRefused("the server's answer is no JSON object; is there a vLLM at this address?")
        return found

    def _refused(self, answer: httpx.Response) -> Exception:
        reason = _reason(_parsed(answer.content), self._key)
        return _refusal(answer.status_code, reason, _seconds(answer.headers.get("retry-after")))


def _parts(answer: httpx.Response, key: str | None) -> Iterator[dict[str, Any]]:
    """The data of server-sent events, up to the one that says that it was the last."""
    for line in _lines(answer):
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        part = _parsed(data)
        if not isinstance(part, dict):
            raise NoAnswer("the stream holds something that is no JSON object")
        if "error" in part:  # found out only now, with the status 200 before it
            raise _refusal(_status(part), _reason(part, key))
        yield part
    raise NoAnswer("the stream ends in the middle")


def _lines(answer: httpx.Response) -> Iterator[str]:
    with _told_as_no_answer():
        yield from answer.iter_lines()


def _parsed(text: str | bytes) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@contextmanager
def _told_as_no_answer() -> Iterator[None]:
    """What the wire raises, as `NoAnswer`."""
    try:
        yield
    except httpx.ConnectTimeout:
        raise NoAnswer(f"no connection within {CONNECT_S:g} s") from None
    except httpx.TimeoutException:
        raise NoAnswer(f"no answer within {SILENCE_S:g} s") from None
    except (httpx.TransportError, httpx.StreamError) as error:
        if _NO_TLS.search(str(error)):
            raise ServerRefused(
                "the server has no certificate that is trusted here; give its authority's as SSL_CERT_FILE, "
                "or http:// where it speaks no TLS"
            ) from None
        raise NoAnswer(type(error).__name__) from None
    except httpx.DecodingError:
        raise NoAnswer("an answer that cannot be unpacked") from None


def _refusal(status: int, reason: str, retry_s: float | None = None) -> Exception:
    if status in _PASSING:
        return NoAnswer(f"status {status}", retry_s)
    if status == 404 and "does not exist" in reason:
        return ServerChanged("the vLLM server runs another model than before; start again, or select the model anew")
    if status in (401, 403):
        return ServerRefused("the vLLM server refuses the key; give its own as --server-key or VLLM_API_KEY")
    words = f": {reason[:MOST_REASON]}" if reason else ""
    return ServerRefused(f"the vLLM server refuses the request with status {status}{words}")


def _reason(data: Any, key: str | None) -> str:
    """The server's own words on one line, without its folders and addresses, and without the key."""
    error = data.get("error") if isinstance(data, dict) else None
    words = error.get("message") if isinstance(error, dict) else error
    words = pathless(str(words or "").replace(key or "\0", "***"))
    return escaped(" ".join(_NUMERIC_HOST.sub("its address", words).split()))


def _status(part: Mapping[str, Any]) -> int:
    """Of an error in a stream; one that names none is the server's own fault."""
    error = part["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) else 500


def _seconds(text: str | None) -> float | None:
    """Of a Retry-After header; None where there is none in seconds."""
    return float(text) if text and text.isdecimal() else None
