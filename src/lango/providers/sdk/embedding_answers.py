"""Check the vectors that a provider answers an embedding request with."""

from collections.abc import Sequence
from typing import Any

from lango.providers.protocol import EmbeddingRequest, Embeddings
from lango.providers.sdk.error_translation import VendorRequest


def checked_embeddings(
    request: EmbeddingRequest, exchange: VendorRequest, vectors: Sequence[Any], input_tokens: int | None = None
) -> Embeddings:
    """Return the vectors of a request. Raise `ProviderProtocolError` unless there is one of numbers for each input."""
    if len(vectors) != len(request.inputs):
        raise exchange.protocol_error(f"{len(vectors)} vectors for {len(request.inputs)} texts")
    for vector in vectors:
        if not isinstance(vector, list) or not all(isinstance(number, int | float) for number in vector):  # pyright: ignore[reportUnknownVariableType]
            raise exchange.protocol_error("a vector is not a list of numbers")
    return Embeddings(vectors, input_tokens)
