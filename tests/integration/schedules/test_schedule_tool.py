"""The built-in tool `schedule`: the model adds, lists and deletes schedules of its user, after an approval."""

from lango import open_runtime
from lango.messages import ToolCall
from lango.schedules import ScheduleSpec
from lango.submissions import SubmittedMessage
from lango.testing import ScriptedProvider
from lango.waits import Approve
from tests.agents.parts import collect, results_in, rows, settings_for
from tests.support.runtimes import store_of


async def test_the_model_adds_a_schedule_of_its_user_after_an_approval(store_url: str) -> None:
    call = ToolCall("c1", "schedule", {"action": "add", "name": "tea", "message": "Time for tea.", "every": "1d"})
    provider = ScriptedProvider([call, "I will remind you."])
    settings = settings_for(store_url, tools={"enabled": ["schedule"]})
    async with open_runtime(settings, provider=provider) as runtime:
        message = SubmittedMessage("remind me of tea")
        turn = await runtime.accept("s", message, user_id="ada", quota_id="k1", tokens_per_day=10_000)
        await collect(turn.follow())
        assert await runtime.schedules.list(user_id="ada") == [], "nothing happens before the approval"
        [wait] = await runtime.waits("s", user_id="ada")
        await collect((await runtime.answer("s", wait.id, Approve(), user_id="ada")).follow())
        [added] = await runtime.schedules.list(user_id="ada")
        assert (added.spec.name, added.spec.every_s) == ("tea", 86_400)
        assert await runtime.schedules.list(user_id="user") == []


async def test_the_model_lists_and_deletes_and_reads_what_is_wrong(sqlite_url: str) -> None:
    provider = ScriptedProvider([])
    settings = settings_for(sqlite_url, tools={"enabled": ["schedule"], "allow": ["schedule"]})
    async with open_runtime(settings, provider=provider) as runtime:
        own = await runtime.schedules.add(ScheduleSpec("tea", "Time for tea.", cron="@daily"))
        other = await runtime.schedules.add(ScheduleSpec("secret", "x", cron="@daily"), user_id="bob")
        calls = [
            {"action": "list"},
            {"action": "add", "name": "n", "message": "{planet}", "cron": "@daily"},
            {"action": "delete", "id": other.id},
            {"action": "delete", "id": own.id},
        ]
        provider._script = iter(  # pyright: ignore[reportPrivateUsage] - the ids are known now
            [*(ToolCall(f"c{number}", "schedule", arguments) for number, arguments in enumerate(calls)), "done"]
        )
        assert await runtime.run("s", "tidy up") == "done"
        results = results_in(provider.requests[-1])
        [listed] = results["c0"]["schedules"]
        assert (listed["id"], listed["message"], len(listed["next_times"])) == (own.id, "Time for tea.", 3)
        assert "there is no field {planet}" in str(results["c1"])
        assert "there is no schedule" in str(results["c2"])
        assert results["c3"] == {"deleted": own.id}
        assert await runtime.schedules.list() == []
        assert len(await rows(store_of(runtime), "SELECT 1 FROM schedules")) == 1
