"""Run a turn of the agent of `benchmarks.deploys` on `dbos-google-adk`, or continue the one that a process began.

`python -m benchmarks._deploy_peer FOLDER VERSION [TEXT]` ends with the turn, and prints its status.
"""

import asyncio
import importlib
import sys
from pathlib import Path

from google.adk.apps.app import App
from google.adk.runners import Runner
from google.adk.sessions import DatabaseSessionService

from benchmarks._crash_systems import DBOS, POLL_S, DBOSPlugin, SetWorkflowID, ensure_session, user_message

APP, USER, SESSION = "shop", "user", "long"


async def main(folder: Path, version: str, text: str = "") -> None:
    """Launch DBOS, which continues what is pending, send a text if there is one, and wait for the end of the turn."""
    sys.path.insert(0, str(folder / f"version-{version}"))
    module = importlib.import_module("agent.agent")
    module.shop.tools = [DBOS.step()(module.charge)]
    DBOS(config={"name": APP, "system_database_url": f"sqlite:///{folder}/dbos.db"})

    @DBOS.workflow()
    async def run_turn(message: str) -> None:
        service = DatabaseSessionService(f"sqlite+aiosqlite:///{folder}/sessions.db")
        try:
            await ensure_session(service, SESSION, APP, USER)
            app = App(name=APP, root_agent=module.root, plugins=[DBOSPlugin()])
            runner = Runner(app=app, session_service=service)
            async for _ in runner.run_async(user_id=USER, session_id=SESSION, new_message=user_message(message)):
                pass
        finally:
            await service.close()

    await asyncio.to_thread(DBOS.launch)
    if text:
        with SetWorkflowID(SESSION):
            await DBOS.start_workflow_async(run_turn, text)
    while (status := await DBOS.get_workflow_status_async(SESSION)) is None or status.status in ("PENDING", "ENQUEUED"):
        await asyncio.sleep(POLL_S)
    print(status.status, repr(status.error) if status.error else "", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
