"""Providers around a provider: retries and fallbacks, spans, and the record of requests."""
