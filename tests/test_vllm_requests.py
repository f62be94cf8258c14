"""What a read asks a vLLM server for: lists of at most 128 ids, every wanted id once for its prompt."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.vllm_requests import LIST_IDS, MOST_PROMPTS, ListRequest, requests_for
from core.vllm_server import ServerRefused

IDS = st.lists(st.integers(0, 400), min_size=1, max_size=300, unique=True).map(np.array)


def answer(request: ListRequest, prompts=None) -> dict:
    """A server's, in which the log-probability of an id is its number times the prompt's first token, below 0."""
    prompts = request.prompts if prompts is None else prompts
    top = [{f"token_id:{i}": -float(i * prompt[0]) for i in request.ids} for prompt in prompts]
    return {"choices": [{"index": n, "logprobs": {"top_logprobs": [each]}} for n, each in enumerate(top)][::-1]}


@given(st.lists(IDS, min_size=1, max_size=40))
def test_every_wanted_id_is_asked_for_once_and_comes_back_in_its_column(wanted):
    prompts = [(n + 1, 7) for n in range(len(wanted))]
    rows = [np.full(len(ids), np.nan) for ids in wanted]
    requests = requests_for(prompts, wanted)
    for request in requests:
        assert len(request.ids) <= LIST_IDS and len(request.prompts) <= MOST_PROMPTS
        request.fill(rows, answer(request))
    assert sum(len(request.prompts) for request in requests) == sum(-(-len(ids) // LIST_IDS) for ids in wanted)
    for prompt, ids, row in zip(prompts, wanted, rows, strict=True):
        assert row.tolist() == [-i * prompt[0] for i in ids.tolist()]


def test_forks_that_want_the_same_ids_travel_in_one_request():
    booleans = [np.array([5, 6, 7])] * 28
    assert [len(request.prompts) for request in requests_for([(n,) for n in range(28)], booleans)] == [28]


def test_the_first_prompt_can_go_ahead_of_the_others():
    (request,) = requests_for([(1,), (2,), (3,)], [np.array([1])] * 3)
    assert [part.prompts for part in request.split()] == [[(1,)], [(2,), (3,)]]
    (alone,) = requests_for([(1,)], [np.array([1])])
    assert [part.prompts for part in alone.split()] == [[(1,)]]


@pytest.mark.parametrize(
    "broken, words",
    [
        (lambda good: {}, "answered 0 of 2 prompts"),
        (lambda good: {"choices": good["choices"][:1]}, "answered 1 of 2 prompts"),
        (lambda good: {"choices": [{**each, "logprobs": None} for each in good["choices"]]}, "answered 0 of 2"),
        (lambda good: {"choices": [{**each, "logprobs": {"top_logprobs": [{"token_id:1": 0.0}]}} for each in good["choices"]]}, "token ids that it was asked for"),
        (lambda good: {"choices": [{**each, "logprobs": {"top_logprobs": [None]}} for each in good["choices"]]}, "token ids that it was asked for"),
        (lambda good: {"choices": "none"}, "answered 0 of 2 prompts"),
    ],
)  # fmt: skip
def test_an_answer_of_another_shape_is_refused_with_the_way_out(broken, words):
    (request,) = requests_for([(1,), (2,)], [np.array([1, 2])] * 2)
    with pytest.raises(ServerRefused, match=words) as refused:
        request.fill([np.zeros(2), np.zeros(2)], broken(answer(request)))
    assert "update it to 0.32 or later" in str(refused.value)
