-- Memories that an agent adds by ADK's memory service, and results of long-running tools.

-- Memories of a user: events that were added explicitly. Stored conversations are not copied here.
CREATE TABLE memory_entries (
    user_hash  TEXT NOT NULL,                  -- of app and user, as in the search index
    number     BIGINT NOT NULL,                -- 1, 2, 3, ... per user: the order in which they were added
    memory_id  TEXT NOT NULL,                  -- the id of the event, or of the memory
    session_id TEXT NOT NULL,                  -- the session that it came from; empty: none
    author     TEXT NOT NULL,
    created_at DOUBLE PRECISION,               -- when the event happened; NULL: not known
    text       TEXT NOT NULL,                  -- what it is found by, and ranked
    content    TEXT NOT NULL,                  -- JSON of ADK's content
    metadata   TEXT,                           -- JSON
    PRIMARY KEY (user_hash, number)
);

CREATE UNIQUE INDEX memory_entries_id ON memory_entries (user_hash, session_id, memory_id);

CREATE TABLE memory_words (
    user_hash TEXT NOT NULL,
    word      TEXT NOT NULL,
    number    BIGINT NOT NULL,                 -- the memory that contains the word
    PRIMARY KEY (user_hash, word, number)
) /*sqlite WITHOUT ROWID*/;

CREATE INDEX memory_words_number ON memory_words (user_hash, number);

-- Memories that were deleted: adding their session again does not bring them back.
CREATE TABLE forgotten_memories (
    user_hash TEXT NOT NULL,
    memory_id TEXT NOT NULL,
    PRIMARY KEY (user_hash, memory_id)
) /*sqlite WITHOUT ROWID*/;

-- Calls of long-running tools that returned, and whose results may still come. A call that has no result at all is in
-- open_calls as well.
CREATE TABLE long_running_calls (
    session_key BIGINT NOT NULL,
    call_id     TEXT NOT NULL,
    seq         BIGINT NOT NULL,               -- the message that made the call
    created_at  DOUBLE PRECISION NOT NULL,     -- when the tool returned
    settled     BIGINT NOT NULL DEFAULT 0,     -- 1: a result came that may be the last, from a client that cannot say so
    PRIMARY KEY (session_key, call_id)
) /*sqlite WITHOUT ROWID*/;
