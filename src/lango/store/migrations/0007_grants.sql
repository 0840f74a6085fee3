-- The inbox: what waits for a person in all sessions of a user. Grants: approvals that hold for later calls, too.

-- Set for requests to a person alone, so that their index is as small as the inbox.
ALTER TABLE open_calls ADD COLUMN app_name TEXT;
ALTER TABLE open_calls ADD COLUMN user_id TEXT;
ALTER TABLE open_calls ADD COLUMN asked_at DOUBLE PRECISION;
ALTER TABLE open_calls ADD COLUMN turn BIGINT;                      -- the turn that asked; NULL: a turn of another session, before a fork
UPDATE open_calls SET
    app_name = (SELECT s.app_name FROM sessions s WHERE s.session_key = open_calls.session_key),
    user_id = (SELECT s.user_id FROM sessions s WHERE s.session_key = open_calls.session_key),
    asked_at = COALESCE(
        (SELECT m.created_at FROM messages m WHERE m.session_key = open_calls.session_key AND m.seq = open_calls.seq),
        (SELECT now FROM database_clock))
WHERE approves_call_id IS NOT NULL OR input_request > 0;
CREATE INDEX open_calls_inbox ON open_calls (app_name, user_id, asked_at, session_key, call_id) WHERE user_id IS NOT NULL;

ALTER TABLE long_running_calls ADD COLUMN app_name TEXT;
ALTER TABLE long_running_calls ADD COLUMN user_id TEXT;
ALTER TABLE long_running_calls ADD COLUMN turn BIGINT;
UPDATE long_running_calls SET
    app_name = (SELECT s.app_name FROM sessions s WHERE s.session_key = long_running_calls.session_key),
    user_id = (SELECT s.user_id FROM sessions s WHERE s.session_key = long_running_calls.session_key);
CREATE INDEX long_running_calls_inbox ON long_running_calls (app_name, user_id, created_at, session_key, call_id)
WHERE settled = 0;

-- Grants of a session: calls of a tool run without asking again. Rows stay when a grant has ended, as a record.
CREATE TABLE approval_grants (
    session_key BIGINT NOT NULL,
    id          BIGINT NOT NULL,               -- 1, 2, 3, ...
    tool        TEXT NOT NULL,
    arguments   TEXT,                          -- JSON {name: {"equals" | "glob" | "any"}}; NULL: whatever the arguments
    request_id  TEXT NOT NULL,                 -- the approval request whose answer made it
    seq         BIGINT NOT NULL,               -- the message of that request: a rewind of it revokes the grant
    granted_by  TEXT NOT NULL,
    granted_at  DOUBLE PRECISION NOT NULL,
    expires_at  DOUBLE PRECISION,              -- by the database's clock
    revoked_at  DOUBLE PRECISION,
    revoked_by  TEXT,                          -- the user who revoked it, or rewind
    PRIMARY KEY (session_key, id)
);

ALTER TABLE tool_journal ADD COLUMN grant_id BIGINT;                -- the grant that approved the call

DROP VIEW tool_journal_with_lineage;
CREATE VIEW tool_journal_with_lineage AS
SELECT session_key, session_key AS source_key, call_id, epoch, name, effect, status, arguments, intended_at, started_at,
       finished_at, result, whole, approved, approved_by, approved_at, grant_id
FROM tool_journal
UNION ALL
SELECT l.session_key, l.source_key, j.call_id, j.epoch, j.name, j.effect, j.status, j.arguments, j.intended_at,
       j.started_at, j.finished_at, j.result, j.whole, j.approved, j.approved_by, j.approved_at, j.grant_id
FROM session_lineage l CROSS JOIN tool_journal j WHERE j.session_key = l.source_key AND j.epoch <= l.last_epoch;
