"""Store turns: their queue, leases, tool calls and events."""
