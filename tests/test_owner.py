"""The owner thread: one job at a time, in order; clocks and ticks beside it."""

import multiprocessing
import threading
import time

import pytest

from core.lane_clock import LaneClock, ticking
from core.owner import Cancelled, Job, Owner


@pytest.fixture
def held():
    """An owner that is busy until the event is set: (owner, event, the running job)."""
    owner, release, started = Owner(), threading.Event(), threading.Event()

    def work(job):
        started.set()
        release.wait(10)

    running = owner.submit(work)
    assert started.wait(10)
    yield owner, release, running
    release.set()
    running.result()


def settled(condition, patience_s=5.0):
    """Whether the condition comes true: the owner's book-keeping follows a job's end."""
    until = time.monotonic() + patience_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
    return condition()


# --- one thread, one order ---


def test_one_thread_runs_all_jobs_in_the_order_in_which_they_came():
    owner, ran = Owner(), []
    jobs = [owner.submit(lambda job, n=n: ran.append((n, threading.current_thread()))) for n in range(50)]
    for job in jobs:
        job.result()
    assert [n for n, _ in ran] == list(range(50))
    assert len({thread for _, thread in ran}) == 1 and ran[0][1] is not threading.current_thread()


def test_the_thread_starts_with_the_first_job_and_not_before():
    before = threading.active_count()
    owner = Owner()
    assert threading.active_count() == before
    assert owner.submit(lambda job: threading.current_thread().name).result() == "pcd-owner"


def test_two_threads_that_submit_at_once_share_one_owner_thread():
    owner, together = Owner(), threading.Barrier(8)
    names, running, most = [], [], []

    def work(job):
        running.append(1)
        most.append(len(running))
        time.sleep(0.001)
        running.pop()
        names.append(threading.current_thread().ident)

    def submit():
        together.wait()
        for _ in range(10):
            owner.submit(work).result()

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 80 and len(set(names)) == 1 and set(most) == {1}


def test_a_job_hands_its_value_to_whoever_waits():
    job = Owner().submit(lambda job: {"answer": job.done})
    assert job.result() == {"answer": False}
    assert job.done and job.result() == {"answer": False}


@pytest.mark.parametrize(
    "error", [ValueError("bad field 'x'"), RuntimeError("no memory"), KeyboardInterrupt(), SystemExit(3)]
)
def test_an_error_reaches_the_caller_and_not_the_next_job(error):
    owner = Owner()

    def fail(job):
        raise error

    failed, following = owner.submit(fail), owner.submit(lambda job: "fine")
    with pytest.raises(type(error)) as raised:
        failed.result()
    assert raised.value is error
    assert following.result() == "fine"


def test_an_owner_of_several_threads_runs_as_many_jobs_at_a_time():
    owner, together = Owner(threads=3), threading.Barrier(3)
    jobs = [owner.submit(lambda job: (together.wait(10), threading.current_thread())[1]) for _ in range(3)]
    assert len({job.result() for job in jobs}) == 3


def test_a_child_process_has_nothing_to_do_with_what_its_parent_runs():
    owner, started, release = Owner(limit=0), threading.Event(), threading.Event()
    running = owner.submit(lambda job: (started.set(), release.wait(30)))
    assert started.wait(10)
    processes = multiprocessing.get_context("fork")
    answers = processes.SimpleQueue()

    def child():
        answers.put(owner.submit(lambda job: 7).result())

    process = processes.Process(target=child)
    process.start()
    process.join(30)
    release.set()
    running.result()
    assert process.exitcode == 0 and answers.get() == 7


# --- waiting ---


def test_a_waiting_job_counts_those_ahead_of_it(held):
    owner, release, running = held
    waiting = [owner.submit(lambda job: None) for _ in range(3)]
    assert running.ahead == 0
    assert [job.ahead for job in waiting] == [1, 2, 3]
    release.set()
    for job in waiting:
        job.result()
    assert [job.ahead for job in waiting] == [0, 0, 0]


def test_a_cancelled_waiting_job_never_runs_and_is_over_at_once(held):
    owner, release, _ = held
    ran = []
    first, second, third = (owner.submit(lambda job, n=n: ran.append(n)) for n in range(3))
    second.cancel()
    assert second.done and (first.ahead, second.ahead, third.ahead) == (1, 0, 2)
    with pytest.raises(Cancelled, match="^$"):
        second.result()
    release.set()
    third.result()
    assert ran == [0, 2]


def test_a_running_job_learns_at_its_next_check_that_it_was_cancelled():
    owner, looked, go_on = Owner(), threading.Event(), threading.Event()
    steps = []

    def work(job):
        for step in range(100):
            job.check()
            steps.append(step)
            looked.set()
            go_on.wait(10)

    job = owner.submit(work)
    assert looked.wait(10)
    job.cancel()
    assert not job.done  # nothing is torn out of a pass
    go_on.set()
    with pytest.raises(Cancelled, match="^$"):
        job.result()
    assert steps == [0]
    assert owner.submit(lambda job: "still here").result() == "still here"


def test_stopping_cancels_what_runs_and_what_waits_and_waits_for_the_running_job_to_notice():
    owner, started, ran = Owner(), threading.Event(), []

    def work(job):
        started.set()
        while True:
            time.sleep(0.05)  # a pass
            job.check()

    running, waiting = owner.submit(work), owner.submit(lambda job: ran.append(1))
    assert started.wait(10)
    owner.stop(patience_s=10)
    assert running.done and waiting.done and ran == []
    assert owner.submit(lambda job: "still here").result() == "still here"


def test_stopping_waits_no_longer_than_it_was_told(held):
    owner, _, running = held
    before = time.perf_counter()
    owner.stop(patience_s=0.05)
    assert time.perf_counter() - before < 5 and not running.done


def test_cancelling_a_finished_job_changes_nothing():
    owner = Owner()
    job = owner.submit(lambda job: 7)
    assert job.result() == 7
    job.cancel()
    assert job.result() == 7 and owner.submit(lambda job: 8).result() == 8


def test_nobody_is_ahead_once_all_work_is_done():
    owner = Owner()
    owner.submit(lambda job: None).result()
    assert settled(lambda: owner.ahead_of(Job(owner, lambda job: None)) == 0)
    idle = owner.submit(lambda job: job.ahead)
    assert idle.result() == 0


# --- clocks ---


def test_phases_follow_one_another_without_a_gap():
    clock = LaneClock(lambda: None, plan=5.0)
    for phase in ("head", "context", "context"):
        time.sleep(0.01)
        took = clock.lap(phase)
        assert took >= 10
    assert list(clock.phases) == ["plan", "head", "context"]
    assert clock.phases["plan"] == 5.0 and clock.phases["context"] >= 20
    assert clock.elapsed_ms == sum(clock.phases.values())
    assert clock.elapsed_ms <= clock.now_ms < clock.elapsed_ms + 1000


def test_a_phase_ends_when_the_device_is_done():
    clock = LaneClock(lambda: time.sleep(0.02))
    assert clock.lap("pass") >= 20


def test_a_clock_starts_when_the_device_is_idle():
    pending = [0.05]  # seconds of work that somebody else has left behind
    clock = LaneClock(lambda: time.sleep(pending.pop() if pending else 0))
    assert clock.lap("pass") < 50


def test_a_thread_beside_gets_no_time_past_the_lanes_end():
    clock = LaneClock(lambda: None, plan=5.0)
    assert 5.0 <= clock.tick_ms() <= clock.now_ms
    clock.lap("pass")
    before = clock.tick_ms()
    assert before >= clock.elapsed_ms
    clock.lap("assembly", last=True)
    assert clock.tick_ms() is None and before <= clock.elapsed_ms


def test_ticks_come_during_one_long_step_and_stop_with_it():
    clock, ticks = LaneClock(lambda: None), []
    with ticking(lambda: ticks.append(clock.now_ms), every_s=0.01):
        time.sleep(0.3)
    seen = len(ticks)
    time.sleep(0.05)
    assert len(ticks) == seen >= 5  # thirty, on a machine with nothing else to do
    assert ticks == sorted(ticks) and ticks[-1] <= clock.now_ms


def test_ticking_stops_when_the_work_fails():
    with pytest.raises(RuntimeError, match="no memory"), ticking(lambda: None, every_s=0.01):
        raise RuntimeError("no memory")
    assert "pcd-ticker" not in {thread.name for thread in threading.enumerate()}
