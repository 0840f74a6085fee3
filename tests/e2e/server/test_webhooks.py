"""Webhooks of real servers: who may add one, and what becomes of a delivery whose sender is killed."""

import asyncio
import json
from pathlib import Path
from typing import Any

from lango.store import Store
from lango.store.credentials.secret_box import KEY_VARIABLE, new_key
from lango.store.engine.database import Operation
from tests.support.servers.server_process import TIMEOUT_S, lango, send, serving
from tests.support.servers.webhook_receiver import Receiver, receiving

SECRET = "whsec_c2VjcmV0IG9mIHRoZXNlIHRlc3Rz"


def addresses(receiver: Receiver) -> str:
    return f'webhook_addresses = ["{receiver.address}"]'


def configured(receiver: Receiver) -> str:
    return f'[webhooks.ops]\nurl = "{receiver.url}/ops"\nsecret_env = "OPS"'


def _end_leases() -> Operation[None]:
    yield "UPDATE webhook_deliveries SET next_at = 0", ()


async def test_a_delivery_whose_sender_is_killed_is_sent_by_another_process(tmp_path: Path, store_url: str) -> None:
    env = {"OPS": SECRET}
    with receiving() as receiver:
        config: Any = {"server": addresses(receiver), "rest": configured(receiver)}
        receiver.go_on.clear()  # the first sender never gets its answer
        with serving(tmp_path / "one", store_url, env=env, **config) as one:
            async with one.client() as client:
                await send(client, "s", "hello")
            first = await receiver.next()
            one.kill()
        async with Store(store_url) as store:
            await store.write(_end_leases)
        receiver.go_on.set()
        with serving(tmp_path / "two", store_url, env=env, **config):
            again = await receiver.next()
            assert again.id == first.id
            assert again.verified(SECRET) == first.verified(SECRET)


async def test_an_end_that_was_committed_without_a_sender_is_told_later(tmp_path: Path, store_url: str) -> None:
    with receiving() as receiver:
        config: Any = {"server": addresses(receiver), "rest": configured(receiver)}
        with serving(tmp_path / "one", store_url, env={"OPS": ""}, **config) as one:  # it cannot sign
            async with one.client() as client:
                await send(client, "s", "hello")
            one.kill()
        async with Store(store_url) as store:
            await store.write(_end_leases)
        assert receiver.requests.empty()
        with serving(tmp_path / "two", store_url, env={"OPS": SECRET}, **config):
            assert (await receiver.next()).verified(SECRET)["data"]["session_id"] == "s"


async def test_users_add_webhooks_of_their_sessions_and_keys_and_operators_of_all(tmp_path: Path) -> None:
    with receiving() as receiver:
        access = f'auth = "keys"\noperators = ["root"]\n{addresses(receiver)}'
        env = {KEY_VARIABLE: new_key()}
        with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=access, env=env) as server:
            config = ("--config", str(tmp_path / "lango.toml"))
            keys = {
                user: lango("keys", "add", "--user", user, *config, cwd=tmp_path).stdout.strip()
                for user in ("alice", "bob", "root")
            }
            async with server.client() as client:

                async def call(user: str, method: str, path: str = "/webhooks", **body: Any) -> tuple[int, Any]:
                    headers = {"Authorization": f"Bearer {keys[user]}"}
                    answer = await client.request(method, f"/v1{path}", headers=headers, json=body or None)
                    return answer.status_code, answer.json() if answer.content else None

                async def say(user: str, session: str) -> None:
                    await send(client, session, "hello", Authorization=f"Bearer {keys[user]}")

                await say("alice", "a1")
                url = f"{receiver.url}/hook"
                assert (await call("bob", "POST", url=url, session_id="a1"))[0] == 404
                assert (await call("bob", "POST", url=url))[0] == 403
                assert (await call("bob", "POST", url="ftp://x.example"))[0] == 400
                status, own = await call("alice", "POST", url=url, session_id="a1")
                assert status == 201
                status, of_key = await call("bob", "POST", url=f"{url}/bob", of_key=True)
                assert status == 201
                status, of_all = await call("root", "POST", url=f"{url}/all", events=["cancelled"])
                assert status == 201

                await say("alice", "a1")
                await say("bob", "b1")
                received = {one.path: one for one in [await receiver.next(), await receiver.next()]}
                assert received["/hook"].verified(own["secret"])["data"]["session_id"] == "a1"
                assert received["/hook/bob"].verified(of_key["secret"])["data"]["session_id"] == "b1"

                _, listed = await call("alice", "GET")
                assert [one["id"] for one in listed["webhooks"]] == [own["id"]]
                assert own["secret"] not in json.dumps(listed)
                _, listed = await call("root", "GET")
                assert {one["id"] for one in listed["webhooks"]} == {own["id"], of_key["id"], of_all["id"]}
                assert (await call("bob", "DELETE", f"/webhooks/{own['id']}"))[0] == 404
                assert (await call("alice", "DELETE", f"/webhooks/{own['id']}"))[0] == 204
                assert await call("alice", "GET", "/dead-deliveries") == (200, {"dead": []})
                assert (await call("alice", "POST", "/dead-deliveries/msg_1/resend"))[0] == 404
        assert own["secret"] not in server.log.read_text()


async def test_lango_webhooks_adds_lists_and_resends(tmp_path: Path) -> None:
    env = {KEY_VARIABLE: new_key()}
    with receiving() as receiver:
        receiver.answers.append((410, {}))
        with serving(tmp_path, f"sqlite:///{tmp_path}/lango.db", server=addresses(receiver), env=env) as server:

            def run(*words: str) -> str:
                done = lango(*words, "--config", str(tmp_path / "lango.toml"), cwd=tmp_path, env=env)
                assert done.returncode == 0, done.stderr
                return done.stdout

            async with server.client() as client:
                await send(client, "s-1", "hello")
                id_, secret = run("webhooks", "add", f"{receiver.url}/own", "--session", "s-1").split()
                await send(client, "s-1", "again")
                first = await receiver.next()
                assert first.verified(secret)["data"]["turn"] == 2
            async with asyncio.timeout(TIMEOUT_S):
                while not (dead := run("webhooks", "dead", "--json")):
                    await asyncio.sleep(0.1)
            assert json.loads(dead)["problem"] == "HTTP 410"
            [listed] = [json.loads(line) for line in run("webhooks", "list", "--json").splitlines()]
            assert (listed["id"], listed["session_id"], listed["dead"]) == (id_, "s-1", 1)
            assert run("webhooks", "resend") == "1 to be sent again\n"
            assert (await receiver.next()).id == first.id
            assert "deleted" in run("webhooks", "delete", id_)
            assert run("webhooks", "list") == "no webhooks\n"
