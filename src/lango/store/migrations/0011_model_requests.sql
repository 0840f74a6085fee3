-- The requests to models and their responses, as they went over the wire; only with the setting trace.requests.
CREATE TABLE model_requests (
    session_key BIGINT NOT NULL,
    id          TEXT NOT NULL,                 -- grows with the time of the request
    turn        BIGINT NOT NULL,
    step        TEXT NOT NULL,                 -- the model call: see store/turns/model_requests.py
    provider    TEXT NOT NULL,
    model       TEXT NOT NULL,
    url         TEXT NOT NULL,                 -- empty: the model runs in the process of the turn
    started_at  DOUBLE PRECISION NOT NULL,
    duration_s  DOUBLE PRECISION,
    status      BIGINT,                        -- the HTTP status
    error       TEXT NOT NULL,                 -- why the attempt failed; empty: it did not
    size        BIGINT NOT NULL,               -- the bytes of the two texts
    request     TEXT NOT NULL,                 -- JSON, without secrets, shortened if it is long
    response    TEXT NOT NULL,
    PRIMARY KEY (session_key, id)
);
