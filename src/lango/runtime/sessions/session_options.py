"""Let users choose the model and the instruction of a session, where the settings allow it."""

from msgspec.structs import replace

from lango.config import Settings
from lango.errors import SessionOptionsRefused
from lango.sessions import SessionId
from lango.store import Store
from lango.store.sessions.sessions import SessionOptions, change_options, get_session, read_options
from lango.turns.turn_input import TurnInput

_MAX_INSTRUCTION = 20_000


class AllowedOptions:
    """The options of the sessions of one app, and which of them the settings allow."""

    def __init__(self, store: Store, app_name: str, settings: Settings) -> None:
        self._store = store
        self._app_name = app_name
        self.models = tuple(settings.agent.choices.models)
        """The models that a user may choose, in addition to the configured one."""
        self.with_instruction = settings.agent.choices.instruction
        """Whether a user may replace the instruction."""

    async def read(self, session_id: str, *, user_id: str = "user") -> SessionOptions:
        """Read what was chosen for a session. Raise `SessionNotFound`."""
        session = await self._store.read(get_session, SessionId(self._app_name, user_id, session_id))
        return await self._store.read(read_options, session.key)

    async def change(self, session_id: str, changes: dict[str, str | None], *, user_id: str = "user") -> SessionOptions:
        """Choose the `model` or the `instruction` of a session's next turns, or None for the configured one.

        Raise `SessionOptionsRefused`, and store nothing, if the settings do not allow it.
        """
        model, instruction = changes.get("model"), changes.get("instruction")
        if model is not None:
            self._check_model(model)
        if instruction is not None:
            if not self.with_instruction:
                raise SessionOptionsRefused(
                    "the instruction cannot be changed: set agent.choices.instruction = true to allow it"
                )
            if not instruction.strip() or len(instruction) > _MAX_INSTRUCTION:
                raise SessionOptionsRefused(
                    f"an instruction must have 1 to {_MAX_INSTRUCTION} characters; use null to remove it"
                )
        return await self._store.write(change_options, SessionId(self._app_name, user_id, session_id), changes)

    def _check_model(self, model: str) -> None:
        if not self.models:
            raise SessionOptionsRefused(
                "the model cannot be changed: list the allowed models in the setting agent.choices.models"
            )
        if model not in self.models:
            listed = ", ".join(self.models)
            raise SessionOptionsRefused(f"the model {model!r} is not one of agent.choices.models: {listed}")

    async def add_to(self, session_key: int, turn_input: TurnInput) -> TurnInput:
        """Return the input of a turn with what was chosen for its session; it is stored with the turn.

        Raise `SessionOptionsRefused` if the settings no longer allow a chosen model.
        """
        if not (self.models or self.with_instruction):
            return turn_input
        chosen = await self._store.read(read_options, session_key)
        model = chosen.model if self.models else None
        if model is not None:
            self._check_model(model)
        instruction = chosen.instruction if self.with_instruction else None
        if not (model or instruction):
            return turn_input
        options = replace(turn_input.options, model=model or "", session_instruction=instruction or "")
        return replace(turn_input, options=options)
