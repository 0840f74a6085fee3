-- Questions of running tools to a person. The tool waits in its process, so a row counts only while its turn has the
-- same lease, and is deleted when the tool goes on.
CREATE TABLE tool_questions (
    session_key  BIGINT NOT NULL,
    question_id  TEXT NOT NULL,
    epoch        BIGINT NOT NULL,              -- the lease of the turn that asks
    turn         BIGINT NOT NULL,
    app_name     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    question     TEXT NOT NULL,                -- JSON: the message, the schema of the answer, the call that asks, ...
    asked_at     DOUBLE PRECISION NOT NULL,
    expires_at   DOUBLE PRECISION NOT NULL,    -- by the database's clock
    answer       TEXT,                         -- JSON; NULL: there is none yet
    PRIMARY KEY (session_key, question_id)
) /*sqlite WITHOUT ROWID*/;

CREATE INDEX tool_questions_inbox ON tool_questions (app_name, user_id, asked_at, session_key, question_id)
WHERE answer IS NULL;
