"""The small server against what was recorded of the real one, and its numbers against the backend's own."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest

from core.backend import TreeBatch
from tests.fakes import lexicon
from tests.vllm.record import asked, recorded
from tests.vllm_faults import HANG, Fault
from tests.vllm_server import VERSION, TinyServer

EXCHANGES = {each["name"]: each for each in recorded()["exchanges"]}
KEY = "secret"
#: Keys whose value may be null on one side only: which token ended an answer is the model's affair.
LOOSE = {"stop_reason", "finish_reason"}
#: In a stream's metrics only where several tokens were written.
SOMETIMES = {"mean_itl_ms"}


@pytest.fixture(scope="module")
def server(checkpoint):
    with TinyServer(checkpoint("llama", "qwen"), "smollm2-135m", 8192, KEY, metrics=True) as server:
        yield server


@pytest.fixture()
def client(server):
    server.received.clear()
    server.forgive()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=60) as client:
        yield client


def shape(value, key=""):
    """Keys and types at every level; of a list its different shapes; of a map from tokens that of its numbers."""
    if key in LOOSE:
        return "loose"
    if key == "top_logprobs":
        return [different(row.values()) for row in value][:1]
    if isinstance(value, dict):
        return {name: shape(each, name) for name, each in value.items() if name not in SOMETIMES}
    if isinstance(value, list):
        return different(value)
    return "number" if type(value) in (int, float) and key.endswith(("ms", "second")) else type(value).__name__


def different(values):
    found = []
    for value in map(shape, values):
        found += [] if value in found else [value]
    return found


# --- shapes ---


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_answer_has_the_shape_that_was_recorded(client, name):
    exchange = EXCHANGES[name]
    told = asked(client, exchange["request"])
    assert (told["status"], told["type"]) == (exchange["status"], exchange["type"])
    if isinstance(exchange["answer"], list):
        assert [shape(told["answer"][at]) for at in (0, -2, -1)] == [
            shape(exchange["answer"][at]) for at in (0, -2, -1)
        ]
    else:
        assert shape(told["answer"]) == shape(exchange["answer"])


#: Words of pydantic, of a grammar or with the vocabulary's size.
OWN_WORDS = ("negative id in the prompt", "no JSON", "JSON that is", "temperature", "beyond the vocabulary", "negative")


@pytest.mark.parametrize(
    "name",
    [name for name, each in EXCHANGES.items() if each["status"] >= 400 and not any(w in name for w in OWN_WORDS)],
)
def test_a_refusal_has_the_words_that_were_recorded(client, name):
    assert asked(client, EXCHANGES[name]["request"])["answer"] == EXCHANGES[name]["answer"]


def test_the_recording_names_its_version():
    assert recorded()["version"] == VERSION


# --- numbers ---

PROMPT = [40, 41, 42, 43, 44, 45]
ASKED = {"model": "smollm2-135m", "max_tokens": 1, "temperature": 0, "logprobs": 1, "return_tokens_as_token_ids": True}


def completed(client, **body):
    answer = client.post("/v1/completions", json=ASKED | body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def test_the_numbers_are_those_of_the_backend_on_the_same_folder(client, tiny):
    backend, ids = tiny("llama", "qwen"), [3, 70, 41, 300, 5]
    tree, _ = TreeBatch.of([(7, 2, 5), (7, 4, 9)])
    wanted = [np.array(ids)] * len(tree.tokens)
    read, _ = backend.read(backend.prefill(PROMPT), [], tree, range(len(tree.tokens)), wanted)
    paths = [[tree.tokens[step] for step in tree.path(node)] for node in range(len(tree.tokens))]
    choices = completed(client, prompt=[PROMPT + path for path in paths], logprob_token_ids=ids)
    for row, choice in zip(read, choices, strict=True):
        told = choice["logprobs"]["top_logprobs"][0]
        assert [told[f"token_id:{i}"] for i in ids] == pytest.approx(list(map(float, row)), abs=1e-4)


def test_the_numbers_are_of_the_full_vocabulary_though_few_tokens_are_allowed(client):
    [free], [held] = (
        completed(client, prompt=PROMPT, logprob_token_ids=[70, 71], **limits)
        for limits in ({}, {"allowed_token_ids": [70, 71]})
    )
    best, told = (choice["logprobs"]["top_logprobs"][0] for choice in (free, held))
    assert {key: best[key] for key in told} == told
    assert held["logprobs"]["tokens"][0] == max(told, key=told.get) != free["logprobs"]["tokens"][0]


def streamed(client, **body):
    told = asked(client, {"method": "POST", "path": "/v1/completions", "body": ASKED | {"stream": True} | body})
    return [event["choices"][0] for event in told["answer"] if isinstance(event, dict) and event["choices"]]


def test_a_stream_writes_what_a_whole_answer_holds(client):
    [whole] = completed(client, prompt=PROMPT, max_tokens=12, return_token_ids=True)
    parts = streamed(client, prompt=PROMPT, max_tokens=12, return_token_ids=True)
    assert [part["token_ids"][0] for part in parts] == whole["token_ids"]
    assert "".join(part["text"] for part in parts) == whole["text"]
    ids = []
    for token in whole["token_ids"]:  # each is the likeliest after a plain forward over those before it
        [choice] = completed(client, prompt=PROMPT + ids)
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}"]
        ids.append(token)


@pytest.mark.parametrize("choices", [["a"], [1, "b"], [True]])
def test_a_schema_is_enforced(client, choices):
    schema = {
        "type": "object",
        "properties": {"k": {"enum": choices}},
        "required": ["k"],
        "additionalProperties": False,
    }
    # White space is allowed anywhere, and a random model writes it for ever.
    dense = [i for i, text in enumerate(lexicon("qwen").texts) if text == text.strip() and b" " not in text]
    options = {"structured_outputs": {"json": schema}, "allowed_token_ids": dense}
    parts = streamed(client, prompt=PROMPT, max_tokens=60, **options)
    assert json.loads("".join(part["text"] for part in parts))["k"] in choices
    assert parts[-1]["finish_reason"] == "stop"


def test_json_mode_begins_an_object_and_may_use_white_space(client):
    parts = streamed(client, prompt=PROMPT, max_tokens=20, response_format={"type": "json_object"})
    assert "".join(part["text"] for part in parts).lstrip().startswith("{")


def test_tokens_are_those_of_the_folders_tokenizer(client, tiny):
    text = '{\n  "risk": "HIGH",\n<|im_end|>'
    told = client.post("/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert told["tokens"] == tiny("llama", "qwen").tokenizer(text, add_special_tokens=False)["input_ids"]


# --- faults ---


def test_requests_fail_as_often_as_was_said_and_are_remembered(server, client):
    server.meet(Fault(status=429, retry_after="2"), times=2)
    server.meet(Fault(status=503, page="<h1>no backend</h1>"))
    answers = [client.post("/v1/completions", json=ASKED | {"prompt": [PROMPT, PROMPT]}) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [429, 429, 503, 200]
    assert answers[0].headers["retry-after"] == "2" and answers[0].json()["error"]["code"] == 429
    assert answers[2].text == "<h1>no backend</h1>"
    assert len(server.completions) == 4 and server.prompts == [PROMPT] * 8
    assert {each.key for each in server.received} == {f"Bearer {KEY}"}


def test_a_fault_waits_for_its_path(server, client):
    server.meet(Fault(status=500, path="/v1/models"))
    assert client.get("/version").status_code == 200
    assert [client.get("/v1/models").status_code for _ in range(2)] == [500, 200]


def test_a_connection_is_dropped_before_the_answer(server, client):
    server.meet(Fault(drops=True))
    with pytest.raises(httpx.RemoteProtocolError, match="disconnected without sending"):
        completed(client, prompt=PROMPT)
    assert completed(client, prompt=PROMPT)


@pytest.mark.parametrize("whole", [0, 3])
def test_a_stream_is_cut_after_so_many_tokens(server, client, whole):
    server.meet(Fault(cut_after=whole))
    body, got = ASKED | {"prompt": PROMPT, "max_tokens": 8, "stream": True}, ""
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
        with client.stream("POST", "/v1/completions", json=body) as answer:
            for text in answer.iter_text():
                got += text
    assert got.count("\n\n") == whole and "[DONE]" not in got
    assert len(streamed(client, **{"prompt": PROMPT, "max_tokens": 8})) == 8


def test_half_a_plain_answer_is_cut_too(server, client):
    server.meet(Fault(cut_after=0))
    with pytest.raises(httpx.RemoteProtocolError):
        completed(client, prompt=PROMPT)


@pytest.mark.parametrize("wait_s, outcome", [(0.05, 200), (HANG, httpx.ReadTimeout)])
def test_a_server_is_slow_or_hangs(server, client, wait_s, outcome):
    server.meet(Fault(wait_s=wait_s))
    ask = {"json": ASKED | {"prompt": PROMPT}, "timeout": 5 if outcome == 200 else 0.2}
    if outcome == 200:
        assert client.post("/v1/completions", **ask).status_code == outcome
    else:
        with pytest.raises(outcome):
            client.post("/v1/completions", **ask)


def test_a_server_stops_in_the_middle_and_comes_back_as_another(checkpoint):
    server = TinyServer(checkpoint("llama", "qwen")).start()
    port, body = server.port, ASKED | {"model": "tiny", "prompt": PROMPT, "max_tokens": 50, "stream": True}
    server.pace_s = 0.05
    try:
        with httpx.Client(base_url=server.url, timeout=20) as client:
            with pytest.raises(httpx.TransportError):
                with client.stream("POST", "/v1/completions", json=body) as answer:
                    for _ in answer.iter_text():
                        server.stop()
            with pytest.raises(httpx.ConnectError):
                client.get("/health")
            server.start(name="other", folder=checkpoint("qwen2", "smol"), window=99)
            [card] = client.get("/v1/models").json()["data"]
            assert (server.port, card["id"], card["max_model_len"]) == (port, "other", 99)
            assert client.post("/v1/completions", json=body).status_code == 404
    finally:
        server.stop()
