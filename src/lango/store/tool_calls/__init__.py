"""Tool calls in SQL: the journal, approvals and grants, and what waits for a person or a client."""
