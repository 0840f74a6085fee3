-- What a user chose for the next turns of a session, instead of what is configured.
CREATE TABLE session_options (
    session_key BIGINT PRIMARY KEY,
    model       TEXT,                          -- NULL: as configured
    instruction TEXT                           -- NULL: as configured
);
