"""The lane of an engine: one at a time, in order, whatever those in it do."""

from __future__ import annotations

import threading
import time

import pytest

from ondevice.session.lane import Lane


def test_the_first_has_the_turn_and_the_others_wait_in_order() -> None:
    lane = Lane()
    with lane.ticket() as first:
        assert first.wait(0)
        with lane.ticket() as second, lane.ticket() as third:
            assert (second.num_ahead, third.num_ahead) == (1, 2)
            assert not second.wait(0.01)
    with lane.ticket() as later:
        assert later.wait(0)


def test_whoever_leaves_the_line_lets_the_next_ones_move_up() -> None:
    lane = Lane()
    with lane.ticket(), lane.ticket() as last:
        with pytest.raises(ZeroDivisionError), lane.ticket():
            raise ZeroDivisionError
        assert last.num_ahead == 1


def test_whoever_is_stopped_waits_no_longer_and_gets_no_turn() -> None:
    lane, stop = Lane(), threading.Event()
    with lane.ticket() as first, lane.ticket() as second:
        assert first.wait_unless(stop)
        assert not second.wait_unless(stop, seconds=0.01)
        timer = threading.Timer(0.02, stop.set)
        timer.start()
        assert not second.wait_unless(stop)
        assert not first.wait_unless(stop), "although it is the first"
        timer.join()


def test_long_work_lets_short_work_through_and_goes_on_after_it() -> None:
    lane, order = Lane(), list[str]()
    with lane.ticket() as long, lane.ticket() as other:
        assert not lane.let_through(), "the other one is as long"

        def answer() -> None:
            with lane.ticket(lambda: True) as ticket:
                assert ticket.wait(5)
                order.append("answered")
                assert not lane.let_through(), "nothing is shorter"

        thread = threading.Thread(target=answer)
        thread.start()
        while not lane.let_through():
            time.sleep(0.001)
        order.append("goes on")
        thread.join()
        assert order == ["answered", "goes on"]
        assert long.wait(0)
        assert other.num_ahead == 1


def test_what_has_become_long_gives_the_turn_back_to_what_it_interrupted() -> None:
    lane, order, is_asked = Lane(), list[str](), threading.Event()
    is_asked.set()
    with lane.ticket():

        def read_ahead() -> None:
            with lane.ticket(is_asked.is_set) as ticket:
                assert ticket.wait(5)
                order.append("answers")
                assert not lane.let_through(), "it is short still"
                is_asked.clear()
                assert lane.let_through()
                order.append("reads")

        thread = threading.Thread(target=read_ahead)
        thread.start()
        while not lane.let_through():
            time.sleep(0.001)
        order.append("goes on")
        assert not lane.let_through(), "each has the turn to its end now"
    thread.join()
    assert order == ["answers", "goes on", "reads"]


def test_nobody_is_let_through_who_does_not_wait_just_now() -> None:
    lane = Lane()
    with lane.ticket(), lane.ticket(lambda: True) as short:
        assert not short.wait(0.01)
        assert not lane.let_through()


def test_two_threads_are_never_in_it_at_once() -> None:
    lane, inside, most = Lane(), [], []

    def work() -> None:
        for _ in range(20):
            with lane.ticket() as ticket:
                assert ticket.wait(5)
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0002)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1
