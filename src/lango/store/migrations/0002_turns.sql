-- What a turn needs to be found again after its process is gone.

ALTER TABLE turns ADD COLUMN invocation_id TEXT;          -- ADK's, chosen when the turn is stored
ALTER TABLE turns ADD COLUMN message TEXT;                -- JSON of the user's message while it waits
ALTER TABLE turns ADD COLUMN beat BIGINT NOT NULL DEFAULT 0;  -- grows while the turn's process lives: no clock is compared
ALTER TABLE turns ADD COLUMN cancelled BIGINT NOT NULL DEFAULT 0;  -- 1: somebody asked it to stop

-- The journal of effects: what was asked of a tool, when it began, how it ended.
CREATE TABLE effects (
    session_key BIGINT NOT NULL,
    call_id     TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    name        TEXT NOT NULL,
    effect      TEXT NOT NULL,                            -- none, idempotent, once: what may be done after a crash
    status      TEXT NOT NULL CHECK (status IN ('intended', 'started', 'finished', 'unknown')),
    arguments   TEXT NOT NULL,                            -- a hash: the arguments are in the call
    intended_at DOUBLE PRECISION NOT NULL,
    started_at  DOUBLE PRECISION,
    finished_at DOUBLE PRECISION,
    result      TEXT,                                     -- JSON of the result, should it not become a message any more
    whole       TEXT,                                     -- the text of a result that the model was shown clipped
    PRIMARY KEY (session_key, call_id, epoch)
);
