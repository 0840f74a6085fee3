-- What a server keeps: the events of turns as its clients were told them, and who may talk to it.

-- One row is what one client event says: pieces of text are grouped before they are written.
CREATE TABLE turn_events (
    session_key BIGINT NOT NULL,
    id          BIGINT NOT NULL,                          -- the client's Last-Event-ID; grows within the session
    turn        BIGINT NOT NULL,
    type        TEXT NOT NULL,
    data        TEXT NOT NULL,                            -- JSON of the event, as it is sent
    final       BIGINT NOT NULL DEFAULT 0,                -- 1: nothing comes after it in its turn
    PRIMARY KEY (session_key, id)
);

CREATE TABLE api_keys (
    id                  TEXT PRIMARY KEY,
    hash                TEXT NOT NULL UNIQUE,             -- sha-256 of a random key of 256 bits; the key itself is not kept
    user_id             TEXT NOT NULL,
    created_at          DOUBLE PRECISION NOT NULL,
    revoked_at          DOUBLE PRECISION,
    requests_per_minute BIGINT,
    tokens_per_day      BIGINT
);

CREATE TABLE api_key_usage (
    key_id TEXT NOT NULL,
    day    BIGINT NOT NULL,                               -- days since 1970, UTC
    tokens BIGINT NOT NULL,
    PRIMARY KEY (key_id, day)
);
