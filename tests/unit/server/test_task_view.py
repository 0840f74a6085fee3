"""A task of A2A, as the events of its turn show it."""

from a2a.types import TaskState

from lango.events import TextDelta, TextEnd, TurnDone
from lango.server.compat.a2a.task_view import TaskView


def test_the_texts_of_parallel_agents_follow_each_other_in_the_answer() -> None:
    view = TaskView("task", "context")
    view.begin_turn(1, 0.0, None)
    for event in (
        TextDelta(1, "I am ", "anna", 1),
        TextDelta(2, "And I ", "ben", 2),
        TextDelta(3, "Anna.", "anna", 1),
        TextEnd(4, 1, "anna"),
        TextDelta(5, "am Ben.", "ben", 2),
        TextEnd(6, 2, "ben"),
        TurnDone(7, 1),
    ):
        list(view.add(event))
    [answer] = view.task.artifacts
    assert answer.parts[0].text == "I am Anna.\n\nAnd I am Ben."


def test_a_further_turn_of_a_task_goes_on_with_its_work() -> None:
    view = TaskView("task", "context")
    view.begin_turn(1, 0.0, None)
    assert view.state == TaskState.TASK_STATE_SUBMITTED
    list(view.add(TurnDone(1, 1, status="waiting")))
    view.begin_turn(2, 1.0, None)
    assert view.state == TaskState.TASK_STATE_WORKING
