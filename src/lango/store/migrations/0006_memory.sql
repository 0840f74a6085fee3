-- Observational memory: what an observer noted of messages, and what a reflector condensed of notes. Messages stay.

-- One row per answer of an observer or a reflector. Nothing here is changed later: which batches hold now follows from
-- their ranges and from the session's rewinds.
CREATE TABLE observation_batches (
    session_key   BIGINT NOT NULL,
    batch         BIGINT NOT NULL,             -- 1, 2, 3, ...
    generation    BIGINT NOT NULL,             -- 0: of messages; n: condensed from batches of generations below n
    first_seq     BIGINT NOT NULL,             -- the messages that it covers, as far as no rewind had taken them back
    last_seq      BIGINT NOT NULL,
    floor_seq     BIGINT NOT NULL,             -- where the window begins while nothing after last_seq is observed
    rewinds       BIGINT NOT NULL DEFAULT 0,   -- how many rewinds the session had when it was made
    sources       TEXT,                        -- JSON [batch, ...] that a reflection condensed
    model         TEXT NOT NULL DEFAULT '',
    input_tokens  BIGINT NOT NULL DEFAULT 0,   -- what the model was paid for it
    output_tokens BIGINT NOT NULL DEFAULT 0,
    tokens        BIGINT NOT NULL DEFAULT 0,   -- what it costs in a request
    created_at    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session_key, batch)
);

CREATE TABLE observations (
    session_key BIGINT NOT NULL,
    batch       BIGINT NOT NULL,
    number      BIGINT NOT NULL,               -- 1, 2, 3, ... within its batch
    first_seq   BIGINT NOT NULL,               -- the messages that it came from
    last_seq    BIGINT NOT NULL,
    priority    TEXT NOT NULL,                 -- high, medium, low
    day         TEXT NOT NULL,                 -- of its last message, UTC
    text        TEXT NOT NULL,
    PRIMARY KEY (session_key, batch, number)
);

-- Who observes a session just now: one at a time, across processes.
CREATE TABLE observers (
    session_key BIGINT PRIMARY KEY,
    owner       TEXT,                          -- NULL: nobody
    claim       BIGINT NOT NULL DEFAULT 0,     -- grows with every claim: what fences a process that lost it
    beat        BIGINT NOT NULL DEFAULT 0      -- grows while the owner lives: no clock is compared
);

-- What holds for a user across sessions. Of one name, the newest row holds.
CREATE TABLE user_facts (
    app_name    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    id          BIGINT NOT NULL,               -- 1, 2, 3, ... of the user
    name        TEXT NOT NULL,                 -- what it is about
    text        TEXT NOT NULL,
    session_key BIGINT NOT NULL,               -- where it was said
    first_seq   BIGINT NOT NULL,
    last_seq    BIGINT NOT NULL,
    day         TEXT NOT NULL,
    model       TEXT NOT NULL DEFAULT '',
    created_at  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app_name, user_id, id)
);

CREATE INDEX user_facts_session ON user_facts (session_key);
