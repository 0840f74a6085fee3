"""Trace turns, model calls and tools with OpenTelemetry."""
