"""Serve OpenAI's embeddings: `POST /v1/embeddings`, by the models of the setting `server.embedding_models`."""

import base64
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from lango.errors import ConfigError
from lango.server.compat.openai.completion import OpenAiErrorBody
from lango.server.context import CurrentUser
from lango.server.errors import ApiError
from lango.server.json_body import large_response
from lango.server.schemas import COMMON_ERROR_DESCRIPTIONS, error_responses
from lango.server.security.auth import AuthenticatedRouter

_MAX_INPUTS = 2_048
_ERRORS = error_responses(
    COMMON_ERROR_DESCRIPTIONS | {404: "The server has no such embedding model.", 500: "The provider failed."},
    OpenAiErrorBody,
)
_Tokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
_Text = Annotated[str, Field(min_length=1)]
router = AuthenticatedRouter("/v1", tags=["embeddings"], responses=_ERRORS)


class EmbeddingsRequest(BaseModel):
    """Texts to embed."""

    model_config = ConfigDict(
        strict=True, json_schema_extra={"examples": [{"model": "text-embedding-3-small", "input": "Hello!"}]}
    )

    model: str
    input: (
        _Text
        | Annotated[list[_Text], Field(min_length=1, max_length=_MAX_INPUTS)]
        | _Tokens
        | Annotated[list[_Tokens], Field(min_length=1, max_length=_MAX_INPUTS)]
    )
    """A text or several, or the tokens of each."""
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1, le=100_000)] | None = None
    user: str | None = None

    def inputs(self) -> Sequence[str] | Sequence[Sequence[int]]:
        """Return the texts, or the tokens of each."""
        match self.input:
            case str(text):
                return [text]
            case [int(), *_]:
                return [self.input]  # pyright: ignore[reportReturnType] - tokens, as the first one is
            case several:
                return several  # pyright: ignore[reportReturnType]


@router.post("/embeddings", response_model=None)
async def create_embeddings(request_body: EmbeddingsRequest, user: CurrentUser) -> Response:
    """Return the vectors of texts. The tokens count against the caller's quota."""
    models = user.context.agents.embeddings
    if not models.names:
        raise ApiError(
            404,
            "model_not_found",
            "model: this server has no embedding models; name some in the setting server.embedding_models, such as "
            '["openai/text-embedding-3-small"]',
        )
    name = models.find(request_body.model)
    if name is None:
        there = ", ".join(map(repr, models.names))
        message = f"model: there is no embedding model {request_body.model!r}; the models are {there}"
        raise ApiError(404, "model_not_found", message)
    await user.check_token_quota()
    try:
        made = await models.embed(name, request_body.inputs(), request_body.dimensions)
    except ConfigError as error:
        raise ApiError(400, "embeddings_not_configured", f"model: {error}") from error
    tokens = made.input_tokens or 0
    await user.spend_tokens(tokens)
    in_base64 = request_body.encoding_format == "base64"

    def body() -> dict[str, Any]:
        vectors: list[Any] = [_base64(vector) if in_base64 else vector for vector in made.vectors]
        data = [{"object": "embedding", "index": index, "embedding": one} for index, one in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": request_body.model, "usage": usage}

    return await large_response(body)


def _base64(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
