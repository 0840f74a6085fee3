-- Credentials of users for the tools of agents, and the requests for them. Every secret is encrypted; see
-- lango.store.credentials.secret_box. In open_calls, input_request is 2 for a call that requests a credential.

CREATE TABLE credentials (
    app_name       TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    credential_key TEXT NOT NULL,              -- ADK's name of the credential
    kind           TEXT NOT NULL,              -- ADK's type: oauth2, apiKey, http, ...
    scopes         TEXT NOT NULL,              -- JSON list
    label          TEXT NOT NULL,              -- what it is for, as people read it
    expires_at     DOUBLE PRECISION,           -- of the access token; NULL: not known
    refreshable    BIGINT NOT NULL DEFAULT 0,  -- 1: it has a refresh token
    created_at     DOUBLE PRECISION NOT NULL,
    updated_at     DOUBLE PRECISION NOT NULL,
    secret         TEXT NOT NULL,              -- encrypted JSON of ADK's credential
    PRIMARY KEY (app_name, user_id, credential_key)
) /*sqlite WITHOUT ROWID*/;

-- What a request for a credential needs besides its call, until the turn that its answer starts has ended.
CREATE TABLE credential_requests (
    session_key BIGINT NOT NULL,
    call_id     TEXT NOT NULL,                 -- of the request, as in open_calls
    seq         BIGINT NOT NULL,               -- the message that makes the request
    state_hash  TEXT,                          -- SHA-256 of the OAuth state in the address; NULL: it has none
    secret      TEXT,                          -- encrypted JSON: the PKCE verifier
    answer      TEXT,                          -- encrypted JSON: ADK's credential as it was given
    PRIMARY KEY (session_key, call_id)
) /*sqlite WITHOUT ROWID*/;

CREATE INDEX credential_requests_state ON credential_requests (state_hash);
