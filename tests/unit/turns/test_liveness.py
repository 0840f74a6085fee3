"""The heartbeat of an owner decides whether it is gone; a dead process of this machine is gone at once."""

import os
import signal
import subprocess
import sys

import pytest

from lango.turns import liveness
from lango.turns.liveness import LivenessMonitor, Owner


def test_a_runtime_of_this_process_is_alive_until_it_is_released() -> None:
    owner = Owner()
    monitor = LivenessMonitor(gone_after_s=0.0)
    assert not monitor.is_gone(owner.name, 0)
    assert not monitor.is_gone(owner.name, 0), "however long its beat stands still"
    owner.release()
    assert monitor.is_gone(owner.name, 0)


def test_runtimes_of_one_process_have_different_owners() -> None:
    one, other = Owner(), Owner()
    one.release()
    assert LivenessMonitor().is_gone(one.name, 0)
    assert not LivenessMonitor().is_gone(other.name, 0)
    other.release()


def other_process() -> tuple["subprocess.Popen[str]", str]:
    code = "from lango.turns.liveness import Owner; print(Owner().name, flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    return process, process.stdout.readline().strip()


def test_another_process_of_this_machine_is_gone_when_it_is_dead() -> None:
    process, name = other_process()
    monitor = LivenessMonitor()
    try:
        assert not monitor.is_gone(name, 0)
        assert not monitor.is_gone(name, 0)
        process.kill()
        while not monitor.is_gone(name, 0):  # a zombie process counts as gone before it is waited for
            pass
    finally:
        process.communicate(timeout=120)
    assert monitor.is_gone(name, 0)


def test_a_suspended_process_of_this_machine_is_judged_by_its_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now)
    process, name = other_process()
    monitor = LivenessMonitor(gone_after_s=4.0, suspended_after_s=15.0)
    try:
        process.send_signal(signal.SIGSTOP)
        assert not monitor.is_gone(name, 0)
        now += 14
        assert not monitor.is_gone(name, 0)
        now += 2
        assert monitor.is_gone(name, 0), "it exists, but sends no heartbeats"
        assert not monitor.is_gone(name, 1), "it continued, and sends heartbeats again"
    finally:
        process.kill()
        process.communicate(timeout=120)


def test_a_reused_process_id_is_not_taken_for_the_first_process() -> None:
    machine, pid, started, token = Owner().name.split("|")
    assert pid == str(os.getpid())
    assert LivenessMonitor().is_gone("|".join([machine, "1", started, token]), 0)
    assert LivenessMonitor().is_gone("|".join([machine, pid, str(int(started) - 1), token]), 0)


def test_another_machine_is_judged_by_its_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now)
    monitor = LivenessMonitor(gone_after_s=15.0)
    elsewhere = "elsewhere/boot/pid:[1]|7|123|token"
    for heartbeat in range(5):  # while it grows, the owner is alive
        now += 100
        assert not monitor.is_gone(elsewhere, heartbeat)
    now += 14
    assert not monitor.is_gone(elsewhere, 4)
    now += 2
    assert monitor.is_gone(elsewhere, 4)
    assert not monitor.is_gone("elsewhere/boot/pid:[1]|8|123|token", 4), "another owner was not seen before"


def test_a_turn_that_its_owner_released_can_be_taken_over_at_once() -> None:
    assert LivenessMonitor().is_gone("", -1)


def test_another_machine_is_given_time_after_the_database_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now, back_at = 100.0, 0.0
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now)
    monitor = LivenessMonitor(gone_after_s=15.0, back_at=lambda: back_at)
    elsewhere = "elsewhere/boot/pid:[1]|7|123|token"
    assert not monitor.is_gone(elsewhere, 0)
    now = back_at = 150.0
    assert not monitor.is_gone(elsewhere, 0), "it could not send heartbeats while the database was away"
    now += 14
    assert not monitor.is_gone(elsewhere, 0)
    now += 2
    assert monitor.is_gone(elsewhere, 0)


@pytest.mark.parametrize("name", ["somebody", "|||", "a|b"])
def test_an_owner_of_an_unknown_form_is_judged_by_its_heartbeat(name: str) -> None:
    assert not LivenessMonitor().is_gone(name, 0)


def test_the_silence_of_an_owner_that_held_nothing_is_no_sign_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now)
    idle, busy = "elsewhere|7|123|token", "elsewhere|8|123|token"
    monitor = LivenessMonitor(gone_after_s=4.0)
    assert not monitor.is_gone(idle, 3)
    assert not monitor.is_gone(busy, 3)
    monitor.forget_others([busy])
    now += 60
    assert not monitor.is_gone(idle, 3), "its next turn is stored, and its next heartbeat not yet"
    assert monitor.is_gone(busy, 3)
