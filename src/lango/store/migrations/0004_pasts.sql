-- Forks share the past with the session they come from: rows of messages never change, so nothing is copied.

ALTER TABLE sessions ADD COLUMN title TEXT;               -- as somebody named it
ALTER TABLE sessions ADD COLUMN forked_from TEXT;         -- JSON {"id", "seq"}: where it comes from, and the last message kept

-- Which rows of other sessions are the past of a fork. A fork of a fork has a row for each piece, so that nobody has to
-- climb from fork to fork.
CREATE TABLE session_pasts (
    session_key   BIGINT NOT NULL,
    piece         BIGINT NOT NULL,                        -- 1, 2, 3, ..., the oldest first
    first_seq     BIGINT NOT NULL,                        -- its first message; its first state may be that of the message before
    last_seq      BIGINT NOT NULL,
    last_revision BIGINT NOT NULL,                        -- the revision of the source when it was forked: what came later is not shared
    last_epoch    BIGINT NOT NULL,                        -- likewise, for the journal of effects
    source_key    BIGINT NOT NULL,
    PRIMARY KEY (session_key, piece)
) /*sqlite WITHOUT ROWID*/;

CREATE INDEX session_pasts_source ON session_pasts (source_key);

-- How many forks share a session's rows. This row is what they lock: the last of them to be deleted takes the rows along.
CREATE TABLE shared_sessions (
    session_key BIGINT PRIMARY KEY,
    forks       BIGINT NOT NULL,
    deleted     BIGINT NOT NULL DEFAULT 0                 -- 1: the session itself is gone, only its rows are left
);

-- What a state was at some point is replayed from few rows, and which calls were open then is found in as few.
CREATE INDEX messages_state ON messages (session_key, seq) WHERE state_delta IS NOT NULL;
CREATE INDEX messages_call ON messages (session_key, call_seq, seq) WHERE call_seq IS NOT NULL;

-- A session's rows and those of its past, for questions about one row or about all of them. CROSS JOIN: SQLite keeps
-- its order, from the pieces to their rows; else it may read the rows of every session.
CREATE VIEW history AS
SELECT session_key, session_key AS source_key, seq, role, author, content, tool_calls, tokens, total_tokens, created_at,
       event_id, invocation_id, call_seq, state_delta, extra
FROM messages
UNION ALL
SELECT p.session_key, p.source_key, m.seq, m.role, m.author, m.content, m.tool_calls, m.tokens, m.total_tokens,
       m.created_at, m.event_id, m.invocation_id, m.call_seq, m.state_delta, m.extra
FROM session_pasts p CROSS JOIN messages m WHERE m.session_key = p.source_key AND m.seq >= p.first_seq AND m.seq <= p.last_seq;

CREATE VIEW history_states AS
SELECT session_key, session_key AS source_key, seq, revision, event_id, created_at, state_delta, extra FROM state_events
UNION ALL
SELECT p.session_key, p.source_key, e.seq, e.revision, e.event_id, e.created_at, e.state_delta, e.extra
FROM session_pasts p CROSS JOIN state_events e WHERE e.session_key = p.source_key AND e.seq >= p.first_seq - 1
    AND e.seq <= p.last_seq AND e.revision <= p.last_revision;

CREATE VIEW history_effects AS
SELECT session_key, session_key AS source_key, call_id, epoch, name, effect, status, arguments, intended_at, started_at,
       finished_at, result, whole
FROM effects
UNION ALL
SELECT p.session_key, p.source_key, e.call_id, e.epoch, e.name, e.effect, e.status, e.arguments, e.intended_at,
       e.started_at, e.finished_at, e.result, e.whole
FROM session_pasts p CROSS JOIN effects e WHERE e.session_key = p.source_key AND e.epoch <= p.last_epoch;

DROP VIEW conversation;

-- For people: SELECT * FROM conversation WHERE session_id = '...'
CREATE VIEW conversation AS
SELECT s.app_name, s.user_id, s.id AS session_id, m.seq, m.role, m.author, m.content, m.tool_calls, m.tokens,
       m.total_tokens, m.created_at
FROM history m JOIN sessions s ON s.session_key = m.session_key
ORDER BY s.session_key, m.seq;
