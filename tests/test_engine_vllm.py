"""The engine on vLLM servers: what it decides, what it sends, what it does when a server fails."""

import gc
import shutil
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core import conformance, engine_served, vllm_fleet
from core.address import AddressError
from core.backend import BackendMissing, ModelUnsupported
from core.engine import Engine
from core.engine_served import ServedEngine
from core.models import ModelNotFound
from core.owner import Cancelled, TimedOut
from core.presets import load_presets
from core.schema import StructuredSchema
from core.vllm_server import ServerAway, ServerChanged, ServerRefused
from tests.vllm_faults import HANG, Fault
from tests.vllm_server import TinyServer

ONE = StructuredSchema({"urgent": {"type": "boolean"}})
TEXTS = conformance.TEXTS
PATIENT, IMPATIENT = 20.0, 0.5


@pytest.fixture(scope="module")
def folder(checkpoint) -> Path:
    return checkpoint("llama", "qwen")


@pytest.fixture
def server(folder):
    with TinyServer(folder, window=8192) as server:
        yield server


@pytest.fixture
def engine(server) -> ServedEngine:
    made = Engine.load(server.url, patience_s=PATIENT)
    server.received.clear()
    return made


@pytest.fixture(scope="module")
def local(folder) -> Engine:
    return Engine.load(str(folder), backend="torch", dtype="float32", offline=True)


def scores(result):
    return [np.array(decision.scores, dtype=float) for decision in result.decisions]


def until(happened) -> None:
    deadline = threading.Event()
    for _ in range(2_000):
        if happened():
            return
        deadline.wait(0.01)
    raise AssertionError("it did not happen")


# --- the same numbers ---


@pytest.mark.parametrize("architecture, tokenizer", [("llama", "qwen"), ("qwen2", "smol")])
def test_a_server_and_the_same_folder_here_give_the_same_scores(checkpoint, architecture, tokenizer):
    folder = checkpoint(architecture, tokenizer)
    here = Engine.load(str(folder), backend="torch", dtype="float32", offline=True)
    with TinyServer(folder, window=4096) as server:
        there = Engine.load(server.url)
        for text in TEXTS:
            one, other = (each.run_parallel(text, conformance.SMALL, complete=True) for each in (here, there))
            for a, b in zip(scores(one), scores(other), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-3)
            assert one.values == other.values


@pytest.mark.parametrize("options", [{"scoring": "full"}, {"prior": "content_free"}, {"style": "compact"}])
def test_every_way_to_score_gives_the_same_scores(engine, local, options):
    one, other = (each.run_parallel(TEXTS[0], conformance.SMALL, **options) for each in (local, engine))
    for a, b in zip(scores(one), scores(other), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-3)


def test_fields_that_depend_on_others_are_read_after_their_lines(engine, local):
    schema = StructuredSchema(
        {
            "topic": {"type": "enum", "choices": ["BILLING", "BILLING_DISPUTE", "OTHER"]},
            "urgent": {"type": "boolean", "depends_on": ["topic"]},
        }
    )
    one, other = (each.run_parallel(TEXTS[0], schema, complete=True) for each in (local, engine))
    for a, b in zip(scores(one), scores(other), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_best_first_finds_the_winners_with_fewer_prompts(engine, local, server):
    engine.pass_overhead = 0.0  # as on a server that pays for each prompt
    whole = engine.run_parallel(TEXTS[0], conformance.LARGE, complete=True, cache=False)
    count = len(server.prompts)
    server.received.clear()
    first = engine.run_parallel(TEXTS[0], conformance.LARGE, complete=False, cache=False)
    assert first.values == whole.values == local.run_parallel(TEXTS[0], conformance.LARGE).values
    assert len(server.prompts) < count and first.reading == "best-first"


def test_the_server_keeps_the_promises_of_a_backend(engine):
    verdicts = dict(conformance.run(engine, conformance.CHECKS))
    assert {name: verdict.level for name, verdict in verdicts.items()} == dict.fromkeys(conformance.CHECKS, "PASS")


# --- what is sent ---


def test_the_prompt_is_sent_alone_before_the_forks_that_share_it(engine, server):
    result = engine.run_parallel(TEXTS[0], conformance.SMALL, complete=True)
    first, *others = server.completions
    assert first["max_tokens"] == 1 and "logprob_token_ids" not in first
    for body in others:
        assert len(body["logprob_token_ids"]) <= 128
        assert all(prompt[: len(first["prompt"])] == first["prompt"] for prompt in body["prompt"])
    assert result.passes == len(server.completions)
    assert result.sent_tokens == sum(map(len, server.prompts))


def test_a_cached_head_is_found_under_its_salt_and_one_prompt_goes_ahead(engine, server):
    engine.run_parallel(TEXTS[0], conformance.SMALL)
    (salt,) = {body["cache_salt"] for body in server.completions}
    server.received.clear()
    again = engine.run_parallel(TEXTS[1], conformance.SMALL)
    assert again.cache == "hit" and {body["cache_salt"] for body in server.completions} == {salt}
    assert len(server.completions[0]["prompt"]) == 1


def test_without_the_cache_each_request_is_cold_on_the_server_too(engine, server):
    for _ in range(2):
        engine.run_parallel(TEXTS[0], conformance.SMALL, cache=False)
    assert len({body["cache_salt"] for body in server.completions}) == 2


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("order", [("pcd", "ar"), ("ar", "pcd")])
def test_neither_lane_finds_what_the_other_has_had_read(engine, server, warm, order):
    if warm:
        engine.run_parallel(TEXTS[1], conformance.SMALL)
        server.received.clear()
    events = engine.race(TEXTS[0], conformance.SMALL, order=order).wait()
    assert events[-1].state == "done"
    is_stream = ["stream" in body for body in server.completions]
    at = is_stream.index(True)
    salts = [body["cache_salt"] for body in server.completions]
    if warm:  # each lane's head goes ahead of its clock
        assert [each.when for each in events if each.kind == "warmup"] == ["load", "run", "run"]
        streamed = {salts[at - 1], salts[at]}
    else:
        streamed = {salts[at]}
    assert len(streamed) == 1
    assert streamed.isdisjoint(salt for salt, body in zip(salts, server.completions, strict=True) if "logprob_token_ids" in body)  # fmt: skip


def test_a_fork_that_takes_too_many_ids_is_asked_for_the_shortest_and_says_so(local, server, monkeypatch):
    monkeypatch.setattr(engine_served, "MOST_IDS", 6)  # the vocabulary here is a small one
    engine = Engine.load(server.url)
    schema = StructuredSchema({"n": {"type": "enum", "choices": [1, 10, 100]}})
    here, there = (each.run_parallel(TEXTS[0], schema, complete=True) for each in (local, engine))
    one, other = here.decisions[0], there.decisions[0]
    assert one.unasked == 0 < other.unasked and 0.0 < other.unasked_mass <= 1.0
    lost = one.candidate_mass - other.candidate_mass
    assert -1e-6 <= lost <= other.unasked_mass
    telemetry = there.to_json()["field_telemetry"]["n"]
    assert telemetry["unasked_tokens"] == other.unasked and telemetry["unasked_mass"] == other.unasked_mass


def test_the_result_names_the_servers_clock_and_counts(engine):
    data = engine.run_parallel(TEXTS[0], ONE).to_json()
    assert (data["backend"], data["clock"], data["strategy"], data["dtype"]) == (
        "vllm",
        "client",
        "prompts",
        "as served",
    )
    assert data["device"] == "vLLM 0.32.0" and data["why"] == "served by vLLM 0.32.0" and data["model"] == "tiny"


def test_the_servers_own_queue_is_told_where_it_reports_it(folder):
    with TinyServer(folder, metrics=True) as server:
        server.queue_ms = 2.5
        engine = Engine.load(server.url)
        assert engine.run_parallel(TEXTS[0], ONE).server_queue_ms >= 2.5
        ended = [each for each in engine.race(TEXTS[0], ONE).wait() if each.kind == "lane_end"]
        assert [each.server_queue_ms >= 2.5 for each in ended] == [True, True]


def test_the_name_of_a_folder_of_the_server_stays_there(folder):
    with TinyServer(folder, name=str(folder)) as server:
        engine = Engine.load(server.url)
        data = str(engine.run_parallel(TEXTS[0], ONE).to_json())
    assert str(folder.parent) not in data and engine.model == folder.name


# --- the other lane ---


def ended(events, lane):
    return next(each for each in events if each.kind == "lane_end" and each.lane == lane)


def test_the_baseline_writes_what_the_same_model_writes_here(engine, local):
    one, other = (each.race(TEXTS[0], ONE, mode="free").wait() for each in (local, engine))
    assert ended(other, "ar").text == ended(one, "ar").text
    assert ended(other, "ar").tokens == ended(one, "ar").tokens and ended(other, "ar").how == ended(one, "ar").how
    assert [each.text for each in other if each.kind == "token"] == [each.text for each in one if each.kind == "token"]


@pytest.mark.parametrize("mode, rule", [("json", "response_format"), ("schema", "structured_outputs")])
def test_a_mode_is_the_servers_own_rule_and_begins_with_the_brace(engine, server, mode, rule):
    events = engine.race(TEXTS[0], conformance.SMALL, mode=mode).wait()
    (body,) = [body for body in server.completions if "stream" in body]
    assert {"response_format", "structured_outputs"} & body.keys() == {rule}
    started, end = next(each for each in events if each.kind == "run"), ended(events, "ar")
    assert started.opening == "" and end.text.lstrip().startswith("{") and started.clock == "client"
    assert end.passes == 1 and end.sent_tokens == len(body["prompt"])
    if mode == "schema":
        assert end.how == "closed" and [each.outcome for each in events if each.kind == "judged"][-1] == "parsed"


def test_tokens_are_told_one_by_one_as_they_arrive(engine, server):
    server.pace_s = 0.01
    events = engine.race(TEXTS[0], ONE, mode="schema").wait()
    times = [each.ms for each in events if each.kind == "token"]
    assert times == sorted(times) and len(set(times)) == len(times) and ended(events, "ar").first_token_ms == times[0]


def test_a_stopped_race_ends_its_stream_on_the_server(engine, server):
    server.pace_s = 0.2
    race = engine.race(TEXTS[0], conformance.SMALL)
    until(lambda: any(each.kind == "token" for each in race.drain()))
    race.cancel()
    assert race.wait()[-1].state == "stopped"
    until(lambda: server.in_flight == 0)


# --- many ---


def test_many_texts_are_in_flight_together_and_come_back_in_order(server, local):
    engine = Engine.load(server.url, in_flight=4)
    server.received.clear()
    server.most_in_flight = 0
    texts = [f"{TEXTS[n % 5]} {n}" for n in range(12)]
    together = engine.decode_many(texts, conformance.SMALL, complete=True)
    assert 1 < server.most_in_flight <= 4
    alone = [local.run_parallel(text, conformance.SMALL, complete=True) for text in texts]
    for one, other in zip(together, alone, strict=True):
        for a, b in zip(scores(one), scores(other), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-3)


def test_callers_of_one_engine_do_not_wait_for_one_another(server):
    engine = Engine.load(server.url, in_flight=3)
    server.meet(Fault(wait_s=0.5), times=3)
    server.most_in_flight = 0
    jobs = [engine.submit(text, ONE) for text in TEXTS[:3]]
    assert [job.result().values.keys() for job in jobs] == [{"urgent"}] * 3
    assert server.most_in_flight == 3


def test_a_text_that_is_too_long_is_no_fault_of_the_others(engine):
    texts = [TEXTS[0], "long " * 9_000, TEXTS[1]]
    one, two, three = engine.decode_many(texts, ONE, return_exceptions=True)
    assert "the window of tiny holds 8192" in str(two) and one.values and three.values


def test_two_servers_share_the_texts_and_a_text_stays_on_one(folder, local):
    with TinyServer(folder, window=4096) as one, TinyServer(folder, window=4096) as two:
        engine = Engine.load(f"{one.url},{two.url}/v1")
        one.received.clear(), two.received.clear()
        texts = [f"{TEXTS[n % 5]} {n}" for n in range(16)]
        results = engine.decode_many(texts, conformance.SMALL)
        assert [each.values for each in results] == [local.run_parallel(t, conformance.SMALL).values for t in texts]
        sent = [{tuple(prompt) for prompt in server.prompts} for server in (one, two)]
        assert all(len(each) > 16 for each in sent), "both have work"
        assert engine.backend.identity.device == "vLLM 0.32.0, 2 servers"
        heads = [sum(p[:40] == q[:40] for p in sent[0] for q in sent[1])]
        assert heads[0] > 0 and len(sent[0] & sent[1]) <= 1, "the head is read by both, a text by one"


# --- faults ---


def test_a_server_that_is_away_at_the_start_is_one_line(server):
    server.stop()
    with pytest.raises(ServerAway, match="the vLLM server does not answer") as away:
        Engine.load(server.url, patience_s=IMPATIENT)
    assert "\n" not in str(away.value)


@pytest.mark.parametrize(
    "fault",
    [Fault(status=429, retry_after="1"), Fault(status=500), Fault(status=503), Fault(drops=True), Fault(cut_after=0)],
)
def test_what_passes_is_tried_again_and_nothing_is_lost(engine, server, local, fault):
    server.meet(fault, times=2)
    result = engine.run_parallel(TEXTS[0], conformance.SMALL, complete=True)
    expected = local.run_parallel(TEXTS[0], conformance.SMALL, complete=True)
    for a, b in zip(scores(result), scores(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_what_does_not_pass_ends_with_one_line_and_the_next_request_works(server):
    engine = Engine.load(server.url, patience_s=IMPATIENT)
    server.meet(Fault(status=503), times=50)
    with pytest.raises(ServerAway, match=r"does not answer \(status 503\)"):
        engine.run_parallel(TEXTS[0], ONE)
    server.forgive()
    assert engine.run_parallel(TEXTS[0], ONE).values.keys() == {"urgent"}


def test_a_server_that_asks_for_a_longer_rest_than_there_is_patience_is_not_asked_again(server):
    engine = Engine.load(server.url, patience_s=5.0)
    server.received.clear()
    server.meet(Fault(status=429, retry_after="3600"), times=9)
    with pytest.raises(ServerAway, match="status 429"):
        engine.run_parallel(TEXTS[0], ONE)
    assert len(server.completions) == 1


def test_a_refused_request_is_not_sent_again(engine, server):
    server.meet(Fault(status=400), times=9)
    with pytest.raises(ServerRefused, match="refuses the request with status 400: told to fail"):
        engine.run_parallel(TEXTS[0], ONE)
    assert len(server.completions) == 1


def test_a_server_that_goes_in_the_middle_and_comes_back_is_found_again(engine, server, local):
    jobs = [engine.submit(text, conformance.SMALL) for text in TEXTS]
    until(lambda: server.completions)
    server.stop()
    back = threading.Timer(0.5, server.start)
    back.start()
    values = [job.result().values for job in jobs]
    back.join()
    assert values == [local.run_parallel(text, conformance.SMALL).values for text in TEXTS]


@pytest.mark.parametrize("changed", [{"name": "other"}, {"window": 1024}])
def test_a_server_that_comes_back_with_another_model_is_refused_and_the_engine_renewed(
    engine, server, changed, monkeypatch
):
    monkeypatch.setattr(vllm_fleet, "STALE_S", 0.0)  # a start takes longer than what was seen just now is believed
    renewed = []
    engine.renew = lambda: renewed.append(1)
    server.stop()
    server.start(**changed)
    for _ in range(2):
        with pytest.raises(ServerChanged, match="runs .* now, and ran tiny|runs another model than before"):
            engine.run_parallel(TEXTS[0], ONE, cache=False)
    assert renewed == [1]


def test_a_stream_that_breaks_is_not_written_twice(engine, server):
    options = {"order": ("ar",), "mode": "schema", "cache": False}
    server.meet(Fault(cut_after=3), times=1)
    events = engine.race(TEXTS[0], ONE, **options).wait()
    assert events[-1].state == "failed" and "stream broke after" in events[-1].message
    assert len(server.completions) == 1
    assert engine.race(TEXTS[0], ONE, **options).wait()[-1].state == "done"


def test_a_stream_that_breaks_behind_the_object_has_told_all_of_it(engine, server):
    options = {"order": ("ar",), "mode": "schema", "cache": False}
    whole = ended(engine.race(TEXTS[0], ONE, **options).wait(), "ar")
    server.meet(Fault(cut_after=whole.tokens), times=1)
    events = engine.race(TEXTS[0], ONE, **options).wait()
    assert events[-1].state == "done" and ended(events, "ar").text == whole.text


def test_a_race_says_that_it_waits_for_the_server_and_is_marked(engine, server):
    server.meet(Fault(status=503), times=2)
    events = engine.race(TEXTS[0], ONE).wait()
    assert "the vLLM server does not answer; trying again" in [each.stage for each in events if each.kind == "loading"]
    assert events[-1].state == "done" and "retried" in events[-1].marks


@pytest.mark.parametrize("is_away", [True, False])
def test_who_waits_for_a_server_can_stop(server, is_away):
    engine = Engine.load(server.url, patience_s=60.0)
    server.received.clear()
    server.meet(Fault(status=503) if is_away else Fault(wait_s=HANG), times=500)
    job = engine.submit(TEXTS[0], ONE)
    until(lambda: server.completions)
    job.cancel()
    with pytest.raises(Cancelled):
        job.result()


def test_a_request_has_its_time_also_where_a_server_hangs(server):
    engine = Engine.load(server.url, timeout_s=30.0)
    engine.owner._timeout_s = 0.3  # the load itself has taken its own
    server.meet(Fault(wait_s=HANG))
    with pytest.raises(TimedOut):
        engine.run_parallel(TEXTS[0], ONE)


def test_a_race_that_another_server_went_on_with_is_marked(folder):
    with TinyServer(folder) as one, TinyServer(folder) as two:
        engine = Engine.load(f"{one.url},{two.url}", patience_s=5.0)
        one.received.clear(), two.received.clear()
        engine.race(TEXTS[0], ONE, cache=False).wait()
        home, other = (one, two) if one.completions else (two, one)
        home.meet(Fault(drops=True), times=1)
        events = engine.race(TEXTS[0], ONE, cache=False).wait()
        assert other.completions
    assert events[-1].state == "done" and "retried" in events[-1].marks


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("mode", ["free", "schema"])
def test_both_lanes_of_a_race_go_to_the_same_of_several_servers(folder, warm, mode):
    with TinyServer(folder) as one, TinyServer(folder) as two:
        engine = Engine.load(f"{one.url},{two.url}")
        for number, text in enumerate(TEXTS):
            if warm:
                engine.run_parallel(text, ONE)
            one.received.clear(), two.received.clear()
            engine.race(f"{text} {number}", ONE, mode=mode, cache=warm).wait()
            assert (not one.completions) != (not two.completions)


def test_a_server_that_has_changed_is_told_once_though_another_has_not(folder, monkeypatch):
    monkeypatch.setattr(vllm_fleet, "STALE_S", 0.0)
    renewed = []
    with TinyServer(folder) as one, TinyServer(folder) as two:
        engine = Engine.load(f"{one.url},{two.url}")
        engine.renew = lambda: renewed.append(1)
        two.stop()
        two.start(window=1024)
        failed = []
        for number in range(12):
            try:
                engine.run_parallel(f"{TEXTS[0]} {number}", ONE, cache=False)
            except ServerChanged as error:
                failed.append(error)
    assert 1 < len(failed) < 12 and renewed == [1]


def test_an_engine_that_nobody_holds_is_gone_at_once(server):
    engine = Engine.load(server.url)
    its = weakref.ref(engine)
    engine.run_parallel(TEXTS[0], ONE)
    gc.disable()
    try:
        del engine
        until(lambda: its() is None)
    finally:
        gc.enable()


def test_one_server_that_is_away_leaves_its_texts_to_the_other(folder):
    with TinyServer(folder) as one, TinyServer(folder) as two:
        engine = Engine.load(f"{one.url},{two.url}", patience_s=5.0)
        two.stop()
        results = engine.decode_many([f"{TEXTS[n % 5]} {n}" for n in range(8)], ONE)
        assert len(results) == 8


def test_a_server_that_is_away_at_the_start_does_not_keep_the_others_from_working(folder, local):
    with TinyServer(folder) as one, TinyServer(folder) as two:
        two.stop()
        engine = Engine.load(f"{two.url},{one.url}", patience_s=5.0)
        texts = [f"{TEXTS[n % 5]} {n}" for n in range(8)]
        two.start()
        for member in engine.backend.fleet._members:
            member.rests_until = 0.0
        two.received.clear()
        values = [each.values for each in engine.decode_many(texts, ONE)]
        assert values == [local.run_parallel(text, ONE).values for text in texts]
        assert two.completions, "it works too when it is back"


def test_one_server_that_asks_for_a_rest_does_not_make_all_wait(folder):
    with TinyServer(folder) as one, TinyServer(folder) as two:
        engine = Engine.load(f"{one.url},{two.url}", patience_s=5.0)
        one.meet(Fault(status=429, retry_after="3600"), times=99)
        two.meet(Fault(status=503))
        assert engine.run_parallel(TEXTS[0], ONE).values.keys() == {"urgent"}


def test_another_tokenizer_behind_the_same_name_is_found_out_when_the_server_is_back(checkpoint, tmp_path):
    place = tmp_path / "served"
    shutil.copytree(checkpoint("llama", "qwen"), place)
    with TinyServer(place) as server:
        engine = Engine.load(server.url, patience_s=2.0)
        server.stop()
        with pytest.raises(ServerAway):
            engine.run_parallel(TEXTS[0], ONE)
        shutil.copy(checkpoint("llama", "smol") / "tokenizer.json", place)
        server.start()
        with pytest.raises(ServerChanged, match="makes other tokens of a text than before; start again"):
            engine.run_parallel(TEXTS[0], ONE)


def test_races_of_one_engine_are_run_one_after_the_other(engine, server):
    server.pace_s = 0.02
    first, second = (engine.race(text, ONE, mode="schema") for text in TEXTS[:2])
    events = second.wait()
    told = first.wait()
    started = next(each for each in events if each.kind == "run")
    assert [each.kind for each in events if each.kind == "waiting"] == ["waiting"]
    lanes = sum(each.ms for each in told if each.kind == "lane_end")
    assert started.ms > 0.9 * lanes, "the other one was over before, and that was waiting"
    streams = [number for number, body in enumerate(server.completions) if "stream" in body]
    assert all("stream" not in body for body in server.completions[: streams[0]]) and len(streams) == 2


# --- what is refused at the start ---


@pytest.mark.parametrize(
    "name, options, kind, words",
    [
        ("http://", {}, AddressError, "is no server's address; use http://HOST:PORT"),
        ("http://h:x", {}, AddressError, "is no server's address"),
        ("http://h:1/path", {}, AddressError, "is no server's address"),
        ("http://h:1/?q=1", {}, AddressError, "is no server's address"),
        ("http://me:secret@h:1", {}, AddressError, "give the key as --server-key"),
        (
            "http://127.0.0.1:1",
            {"dtype": "float32"},
            BackendMissing,
            "dtype float32 is the vLLM server's own to choose",
        ),
        ("http://127.0.0.1:1", {"backend": "torch"}, BackendMissing, "use --backend vllm or auto, not torch"),
        ("smollm2-135m", {"backend": "vllm"}, BackendMissing, "give its address, such as --url"),
        ("smollm2-135m", {"key": "x"}, BackendMissing, "key: only for a vLLM server"),
    ],
)
def test_what_names_no_server_is_refused(name, options, kind, words):
    with pytest.raises(kind, match=words.replace("?", r"\?")) as refused:
        Engine.load(name, patience_s=0.1 if name.startswith("http") else None, **options)
    assert "secret" not in str(refused.value)


def test_the_servers_key_is_sent_and_a_wrong_one_is_one_line(folder, monkeypatch):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    with TinyServer(folder, key="open sesame") as server:
        for key in (None, "wrong"):
            with pytest.raises(ServerRefused, match="refuses the key; give its own as --server-key or VLLM_API_KEY"):
                Engine.load(server.url, key=key)
        Engine.load(server.url, key="open sesame")
        monkeypatch.setenv("VLLM_API_KEY", "open sesame")
        Engine.load(server.url)


def test_a_tokenizer_that_is_not_the_servers_is_refused_with_the_line(checkpoint, server):
    other = checkpoint("llama", "smol")
    with pytest.raises(ModelUnsupported, match="the tokenizer here and the vLLM server's differ: .* there; give the"):
        Engine.load(server.url, tokenizer=str(other))


def test_a_tokenizer_that_cannot_be_found_is_asked_for(server):
    with pytest.raises(ModelNotFound, match="give the folder of the model's as --tokenizer"):
        Engine.load(server.url, tokenizer="/nowhere/at/all")


def test_servers_of_different_models_are_no_fleet(folder):
    with TinyServer(folder) as one, TinyServer(folder, name="other") as two:
        with pytest.raises(ServerChanged, match="runs other with a window of 2048, and another one tiny with a window of 2048; start"):
            Engine.load(f"{one.url},{two.url}")


def test_all_presets_can_be_asked_of_a_server(engine):
    longest = max(load_presets(), key=lambda preset: len(preset.schema))
    result = engine.run_parallel(longest.context, longest.schema)
    assert result.to_json()["schema_match"] and replace(result, text="").decisions
