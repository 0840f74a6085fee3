-- One text for SQLite and PostgreSQL. Times are seconds since 1970, UTC. JSON is text: PostgreSQL's jsonb refuses
-- \u0000 and reorders keys. Every primary key begins with the session's key, so that a sharded database can split by
-- it; the state of users and apps is keyed by what it belongs to. SQLite: a table WITHOUT ROWID puts every row of more
-- than 1,000 bytes on a page of its own (4 kB), so only tables of small rows are.

CREATE TABLE sessions (
    session_key  BIGINT PRIMARY KEY,           -- random, ours; people and clients use app_name, user_id, id
    app_name     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    id           TEXT NOT NULL,
    created_at   DOUBLE PRECISION NOT NULL,
    updated_at   DOUBLE PRECISION NOT NULL,
    revision     BIGINT NOT NULL DEFAULT 0,    -- grows by one with every event: what a writer must have seen
    last_seq     BIGINT NOT NULL DEFAULT 0,
    user_seq     BIGINT NOT NULL DEFAULT 0,    -- the newest message of the user
    total_tokens BIGINT NOT NULL DEFAULT 0,
    epoch        BIGINT NOT NULL DEFAULT 0,    -- grows with every turn that is claimed: what fences a zombie's writes
    rewinds      TEXT,                         -- JSON [[seq of the rewind, first seq it took back], ...]
    UNIQUE (app_name, user_id, id)
);

CREATE TABLE messages (
    session_key   BIGINT NOT NULL,
    seq           BIGINT NOT NULL,             -- 1, 2, 3, ... without a gap: the order of the conversation
    role          TEXT NOT NULL,               -- user, assistant, tool, or event: one that carries no content
    author        TEXT NOT NULL DEFAULT '',
    content       TEXT NOT NULL DEFAULT '',
    tool_calls    TEXT,                        -- JSON [{"id", "name", "input" | "output"}, ...]
    tokens        BIGINT NOT NULL DEFAULT 0,
    total_tokens  BIGINT NOT NULL DEFAULT 0,   -- running total of the session, this message included
    created_at    DOUBLE PRECISION NOT NULL,
    event_id      TEXT NOT NULL,
    invocation_id TEXT NOT NULL DEFAULT '',
    call_seq      BIGINT,                      -- of a result: the message that made the call, where it is not the one before
    state_delta   TEXT,                        -- JSON of the state that this event changed
    extra         TEXT,                        -- JSON of what the columns cannot express, without defaults
    PRIMARY KEY (session_key, seq)
);

CREATE UNIQUE INDEX messages_event ON messages (session_key, event_id);

-- Events that only change state: no messages, so they stand apart and take no sequence number.
CREATE TABLE state_events (
    session_key BIGINT NOT NULL,
    seq         BIGINT NOT NULL,               -- the newest message when it happened
    revision    BIGINT NOT NULL,               -- 0: the state that the session was created with
    event_id    TEXT NOT NULL,
    created_at  DOUBLE PRECISION NOT NULL,
    state_delta TEXT NOT NULL,
    extra       TEXT,
    PRIMARY KEY (session_key, seq, revision)
);

CREATE UNIQUE INDEX state_events_event ON state_events (session_key, event_id);

-- Calls that have no result yet.
CREATE TABLE open_calls (
    session_key  BIGINT NOT NULL,
    call_id      TEXT NOT NULL,
    seq          BIGINT NOT NULL,
    long_running BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (session_key, call_id)
) /*sqlite WITHOUT ROWID*/;

CREATE TABLE session_states (
    session_key BIGINT PRIMARY KEY,
    state       TEXT NOT NULL
);

CREATE TABLE user_states (
    app_name TEXT NOT NULL,
    user_id  TEXT NOT NULL,
    state    TEXT NOT NULL,
    PRIMARY KEY (app_name, user_id)
);

CREATE TABLE app_states (
    app_name TEXT PRIMARY KEY,
    state    TEXT NOT NULL
);

CREATE TABLE turns (
    session_key     BIGINT NOT NULL,
    turn            BIGINT NOT NULL,           -- 1, 2, 3, ...
    status          TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'done', 'failed', 'cancelled', 'interrupted')),
    epoch           BIGINT,                    -- set when it runs
    idempotency_key TEXT,
    owner           TEXT,                      -- the process that runs it
    lease_until     DOUBLE PRECISION,
    created_at      DOUBLE PRECISION NOT NULL,
    started_at      DOUBLE PRECISION,
    ended_at        DOUBLE PRECISION,
    extra           TEXT,
    PRIMARY KEY (session_key, turn)
) /*sqlite WITHOUT ROWID*/;

CREATE UNIQUE INDEX turns_running ON turns (session_key) WHERE status = 'running';
CREATE UNIQUE INDEX turns_idempotency ON turns (session_key, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- For people: SELECT * FROM conversation WHERE session_id = '...'
CREATE VIEW conversation AS
SELECT s.app_name, s.user_id, s.id AS session_id, m.seq, m.role, m.author, m.content, m.tool_calls, m.tokens,
       m.total_tokens, m.created_at
FROM messages m JOIN sessions s ON s.session_key = m.session_key
ORDER BY s.session_key, m.seq;
