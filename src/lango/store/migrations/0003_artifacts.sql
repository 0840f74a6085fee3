-- Files live apart from the rows that show them: artifacts of agents, and the files of messages.

-- The bytes of a file, stored once however often they are used.
CREATE TABLE contents (
    hash TEXT PRIMARY KEY,                     -- SHA-256, in hexadecimal digits
    size BIGINT NOT NULL,                      -- bytes
    uses BIGINT NOT NULL                       -- rows of message_contents and artifacts; the last one deletes the bytes
);

CREATE TABLE content_chunks (
    hash   TEXT NOT NULL,
    number BIGINT NOT NULL,                    -- 0, 1, 2, ...
    data   /*sqlite BLOB*/ /*postgres BYTEA*/ NOT NULL,
    PRIMARY KEY (hash, number)
);

-- The files of messages. The rows belong to the session that the message was written in, like the message.
CREATE TABLE message_contents (
    session_key BIGINT NOT NULL,
    seq         BIGINT NOT NULL,               -- 0: a session that is being imported holds it
    hash        TEXT NOT NULL,
    PRIMARY KEY (session_key, seq, hash)
) /*sqlite WITHOUT ROWID*/;

-- The versions of artifacts. Sessions are named and not keyed: ADK may save an artifact for a session of another store.
CREATE TABLE artifacts (
    app_name    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,                 -- empty: it belongs to the user, in every session
    name        TEXT NOT NULL,                 -- begins with user: if it belongs to the user
    version     BIGINT NOT NULL,               -- 0, 1, 2, ...
    kind        TEXT NOT NULL CHECK (kind IN ('bytes', 'text', 'uri')),
    mime_type   TEXT,
    hash        TEXT,                          -- of its content; NULL for a uri
    size        BIGINT NOT NULL DEFAULT 0,
    part        TEXT,                          -- JSON of the other fields of ADK's part
    metadata    TEXT,                          -- JSON given with it
    after_seq   BIGINT NOT NULL DEFAULT 0,     -- the session's newest message when it was saved
    saved_by    TEXT,                          -- the step of a turn: a turn that is run again does not save it again
    created_at  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app_name, user_id, session_id, name, version)
);
