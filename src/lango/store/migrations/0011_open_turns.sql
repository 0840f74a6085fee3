-- The turns of a session that are not over, found without reading those that are: a queued turn looks for them often.
CREATE INDEX turns_open ON turns (session_key, status, turn) WHERE status IN ('waiting', 'running');
