-- The schema, one text for SQLite and PostgreSQL: a comment that begins with the name of a database, such as
-- /*sqlite WITHOUT ROWID*/, is read by that database alone. Times are seconds since 1970, UTC. JSON is text: PostgreSQL's
-- jsonb refuses \u0000 and reorders keys. The primary key of every table of a session begins with the session's key, so
-- that a sharded database can split by it. SQLite puts each row of more than 1,000 bytes of a table WITHOUT ROWID on a
-- page of its own (4 kB), so only tables of small rows are. No constraint lists the values of a column: a newer version
-- may add one, and SQLite cannot drop a constraint.

-- Conversations ----------------------------------------------------------------------------------------------------------

CREATE TABLE sessions (
    session_key  BIGINT PRIMARY KEY,           -- random and internal; clients use app_name, user_id and id
    app_name     TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    id           TEXT NOT NULL,
    title        TEXT,                         -- NULL: the first words of the user are shown
    created_at   DOUBLE PRECISION NOT NULL,
    updated_at   DOUBLE PRECISION NOT NULL,
    revision     BIGINT NOT NULL DEFAULT 0,    -- grows by one with every event; a writer must name the one it has read
    last_seq     BIGINT NOT NULL DEFAULT 0,    -- the newest message
    user_seq     BIGINT NOT NULL DEFAULT 0,    -- the newest message of the user that no turn took in while it ran
    total_tokens BIGINT NOT NULL DEFAULT 0,
    epoch        BIGINT NOT NULL DEFAULT 0,    -- grows with every turn that starts; writes of an older epoch are refused
    input_hash   BIGINT,                       -- of the text of the newest turn's input; see store/sessions/client_history.py
    rewinds      TEXT,                         -- JSON [[seq of the rewind event, first seq that it removed], ...]
    forked_from  TEXT,                         -- JSON {"id", "seq"}: the source session, and its last message that was kept
    UNIQUE (app_name, user_id, id)
);

-- A client that resends its conversation and names no session: the session is found by the user's newest message.
CREATE INDEX sessions_input ON sessions (app_name, user_id, input_hash) WHERE input_hash IS NOT NULL;

CREATE TABLE messages (
    session_key   BIGINT NOT NULL,
    seq           BIGINT NOT NULL,             -- 1, 2, 3, ... without a gap: the order of the conversation
    role          TEXT NOT NULL,               -- user, assistant, tool, or event for an event without content
    author        TEXT NOT NULL DEFAULT '',
    content       TEXT NOT NULL DEFAULT '',
    tool_calls    TEXT,                        -- JSON [{"id", "name", "input" | "output"}, ...]
    tokens        BIGINT NOT NULL DEFAULT 0,
    total_tokens  BIGINT NOT NULL DEFAULT 0,   -- running total of the session, this message included
    created_at    DOUBLE PRECISION NOT NULL,
    event_id      TEXT NOT NULL,
    invocation_id TEXT NOT NULL DEFAULT '',
    call_seq      BIGINT,                      -- of a result: the message that made the call, if it is not the previous one
    state_delta   TEXT,                        -- JSON of the state that this event changed
    extra         TEXT,                        -- JSON of what the columns cannot express, without defaults
    PRIMARY KEY (session_key, seq)
);

CREATE UNIQUE INDEX messages_event ON messages (session_key, event_id);
-- For replaying the state at a message, and for finding the calls that were open at a message.
CREATE INDEX messages_state ON messages (session_key, seq) WHERE state_delta IS NOT NULL;
CREATE INDEX messages_call ON messages (session_key, call_seq, seq) WHERE call_seq IS NOT NULL;

-- Events that only change state. They are no messages and have no sequence number of their own.
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

-- What a user chose for the next turns of a session, instead of what is configured.
CREATE TABLE session_options (
    session_key BIGINT PRIMARY KEY,
    model       TEXT,                          -- NULL: as configured
    instruction TEXT                           -- NULL: as configured
);

-- Forks ------------------------------------------------------------------------------------------------------------------

-- The rows of other sessions that a fork shares: rows of messages never change, so nothing is copied. A fork of a fork
-- has a row for each of its ancestors, so that a read never walks from fork to fork.
CREATE TABLE session_lineage (
    session_key   BIGINT NOT NULL,
    ordinal       BIGINT NOT NULL,             -- 1, 2, 3, ..., the oldest ancestor first
    source_key    BIGINT NOT NULL,             -- the session that the shared rows were written in
    first_seq     BIGINT NOT NULL,             -- the first shared message; a shared state event may stand one before it
    last_seq      BIGINT NOT NULL,
    last_revision BIGINT NOT NULL,             -- the source's revision at the fork: later state events are not shared
    last_epoch    BIGINT NOT NULL,             -- the source's epoch at the fork: later tool calls are not shared
    PRIMARY KEY (session_key, ordinal)
) /*sqlite WITHOUT ROWID*/;

CREATE INDEX session_lineage_source ON session_lineage (source_key);

-- The number of forks that share a session's rows. Forking and deleting lock this row: the deletion of the last session
-- that shares the rows deletes them.
CREATE TABLE shared_sessions (
    session_key BIGINT PRIMARY KEY,
    forks       BIGINT NOT NULL,
    deleted     BIGINT NOT NULL DEFAULT 0      -- 1: the session was deleted, its shared rows are still there
);

-- Turns ------------------------------------------------------------------------------------------------------------------

CREATE TABLE turns (
    session_key      BIGINT NOT NULL,
    turn             BIGINT NOT NULL,          -- 1, 2, 3, ...
    status           TEXT NOT NULL,            -- queued, running; ended: done, failed, cancelled, interrupted, steered
    idempotency_key  TEXT,
    digest           TEXT,                     -- sha-256 of the input, kept beside its idempotency key
    invocation_id    TEXT,                     -- ADK's, chosen when the turn is stored
    queued_input     TEXT,                     -- JSON of the turn's input while it is queued
    first_seq        BIGINT,                   -- the message that started it; NULL until it runs
    epoch            BIGINT,                   -- the session's epoch while it runs; NULL until it runs
    first_epoch      BIGINT,                   -- the epoch of its first run, which its journal entries keep
    begun_version    TEXT,                     -- the version of the app that began it
    version          TEXT,                     -- the version of the app that ran it last
    continued_seq    BIGINT,                   -- the message from which it continued after an update; NULL: it replays
    continued_epoch  BIGINT,                   -- the epoch then: later steps are journaled under this one
    attempts         BIGINT NOT NULL DEFAULT 0,          -- how often it continued after a crash or a failure
    resumptions      TEXT,                     -- JSON [{"at", "reason"}, ...]: when and why it continued
    request          TEXT,                     -- JSON of what came with its input: client tools, who approved
    quota_id         TEXT,                     -- the quota that its tokens are counted against at its end
    credential_wait  TEXT,                     -- the wait for a credential that its input answers
    steers           BIGINT,                   -- the turn that its message is taken into, if that still runs
    replaces         BIGINT,                   -- the turn that is rewound when this one starts
    owner            TEXT,                     -- the process that holds the lease
    cancel_requested BIGINT NOT NULL DEFAULT 0,          -- 1: the owner is asked to stop
    answer_stored    BIGINT NOT NULL DEFAULT 0,          -- 1: its last event is stored; if the owner dies now, it is done
    created_at       DOUBLE PRECISION NOT NULL,
    started_at       DOUBLE PRECISION,
    ended_at         DOUBLE PRECISION,
    input_tokens     BIGINT NOT NULL DEFAULT 0,
    output_tokens    BIGINT NOT NULL DEFAULT 0,
    cached_tokens    BIGINT NOT NULL DEFAULT 0,
    model_calls      BIGINT NOT NULL DEFAULT 0,
    cost_usd         DOUBLE PRECISION,         -- NULL: the price is not known
    extra            TEXT,                     -- JSON: how it ended, model calls in detail
    PRIMARY KEY (session_key, turn)
) /*sqlite WITHOUT ROWID*/;

CREATE UNIQUE INDEX turns_running ON turns (session_key) WHERE status = 'running';
CREATE UNIQUE INDEX turns_idempotency ON turns (session_key, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- The open turns of a session, found without reading those that are over.
CREATE INDEX turns_open ON turns (session_key, status, turn) WHERE status IN ('queued', 'running');
-- The turns of a session that ended without an answer, found by the message that started each.
CREATE INDEX turns_without_answer ON turns (session_key, first_seq)
    WHERE status IN ('failed', 'cancelled', 'interrupted');

-- The processes that hold leases. A heartbeat grows while its process lives; no clocks are compared.
CREATE TABLE owners (
    owner     TEXT PRIMARY KEY,
    heartbeat BIGINT NOT NULL
) /*sqlite WITHOUT ROWID*/;

-- The processes that take over turns of every session, such as servers, and the version of the app that each runs.
CREATE TABLE replicas (
    owner      TEXT PRIMARY KEY,
    app_name   TEXT NOT NULL,
    version    TEXT NOT NULL,
    started_at DOUBLE PRECISION NOT NULL,      -- by the database's clock
    seen_at    DOUBLE PRECISION NOT NULL       -- by the database's clock, every few seconds
) /*sqlite WITHOUT ROWID*/;

-- Tool calls without a result.
CREATE TABLE open_calls (
    session_key  BIGINT NOT NULL,
    call_id      TEXT NOT NULL,
    seq          BIGINT NOT NULL,              -- the message that made the call
    long_running BIGINT NOT NULL DEFAULT 0,    -- 1: the call stays open when its turn ends
    PRIMARY KEY (session_key, call_id)
) /*sqlite WITHOUT ROWID*/;

-- What turns wait for, of every kind in lango/waits. Rows stay when a wait is closed, as a record.
CREATE TABLE waits (
    session_key   BIGINT NOT NULL,
    id            TEXT NOT NULL,               -- of the call that asks, or waits for its result; safe in an address
    kind          TEXT NOT NULL,
    turn          BIGINT,                      -- the turn that opened it; NULL: a turn of another session, before a fork
    epoch         BIGINT,                      -- of a question of a running tool: it counts while its turn has this lease
    invocation_id TEXT NOT NULL DEFAULT '',
    seq           BIGINT NOT NULL,             -- the message that opened it
    about_id      TEXT,                        -- of an approval: the call that it is about
    about_seq     BIGINT,                      -- the message that made that call
    opened_at     DOUBLE PRECISION NOT NULL,
    expires_at    DOUBLE PRECISION,            -- by the database's clock; a timer is due then
    event_name    TEXT,                        -- of a wait for an event
    app_name      TEXT,                        -- set with user_id if it is in the inbox of that user
    user_id       TEXT,
    data          TEXT,                        -- JSON: see store/codec/wait_rows.py; NULL: it cannot be answered here
    state_hash    TEXT,                        -- of a credential: SHA-256 of the OAuth state in its address
    secret        TEXT,                        -- of a credential, until it is used: encrypted JSON of the PKCE verifier
    answer        TEXT,                        -- JSON of the answer; encrypted, and kept until used, if a credential; no results
    answered_at   DOUBLE PRECISION,            -- an answer came in time; it closes the wait when its turn starts
    answered_by   TEXT,
    closed        TEXT,                        -- answered, expired, superseded, cancelled, rewound; NULL: it is not closed
    closed_at     DOUBLE PRECISION,
    PRIMARY KEY (session_key, id)
);

CREATE INDEX waits_open ON waits (session_key, seq) WHERE closed IS NULL;
CREATE INDEX waits_inbox ON waits (app_name, user_id, opened_at, session_key, id)
WHERE closed IS NULL AND answered_at IS NULL AND user_id IS NOT NULL;
-- A tool that waits for the answer to its question closes that itself.
CREATE INDEX waits_expiry ON waits (expires_at)
WHERE closed IS NULL AND answered_at IS NULL AND epoch IS NULL AND expires_at IS NOT NULL;
CREATE INDEX waits_event ON waits (app_name, event_name)
WHERE event_name IS NOT NULL AND closed IS NULL AND answered_at IS NULL;
CREATE INDEX waits_state ON waits (state_hash) WHERE state_hash IS NOT NULL;

-- Events of other systems, for the waits that open soon after.
CREATE TABLE sent_events (
    app_name   TEXT NOT NULL,
    name       TEXT NOT NULL,
    event_key  TEXT NOT NULL,                  -- the idempotency key of the sender, or a random one
    user_id    TEXT NOT NULL,                  -- empty: for the waits of every user
    session_id TEXT NOT NULL,                  -- empty: for the waits of every session
    data       TEXT NOT NULL,                  -- JSON
    sent_at    DOUBLE PRECISION NOT NULL,      -- by the database's clock, as expires_at
    expires_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app_name, name, event_key)
);

CREATE INDEX sent_events_time ON sent_events (app_name, name, sent_at);
CREATE INDEX sent_events_expiry ON sent_events (expires_at);

-- A row that the sender of an event and a wait that opens both lock, so that neither overlooks the other.
CREATE TABLE event_names (
    app_name TEXT NOT NULL,
    name     TEXT NOT NULL,
    changes  BIGINT NOT NULL,
    PRIMARY KEY (app_name, name)
) /*sqlite WITHOUT ROWID*/;

-- Which events have answered a wait of a session: a later wait of it is not answered by the same event.
CREATE TABLE answered_events (
    session_key BIGINT NOT NULL,
    name        TEXT NOT NULL,
    event_key   TEXT NOT NULL,
    PRIMARY KEY (session_key, name, event_key)
) /*sqlite WITHOUT ROWID*/;

-- Grants of a session: calls of a tool run without asking again. Rows stay when a grant has ended, as a record.
CREATE TABLE approval_grants (
    session_key BIGINT NOT NULL,
    id          BIGINT NOT NULL,               -- 1, 2, 3, ...
    tool        TEXT NOT NULL,
    arguments   TEXT,                          -- JSON {name: {"equals" | "glob" | "any"}}; NULL: whatever the arguments
    request_id  TEXT NOT NULL,                 -- the approval request whose answer made it
    seq         BIGINT NOT NULL,               -- the message of that request: a rewind of it revokes the grant
    granted_by  TEXT NOT NULL,
    granted_at  DOUBLE PRECISION NOT NULL,
    expires_at  DOUBLE PRECISION,              -- by the database's clock
    revoked_at  DOUBLE PRECISION,
    revoked_by  TEXT,                          -- the user who revoked it, or rewind
    PRIMARY KEY (session_key, id)
);

-- What was done about each tool call: journaled before the tool starts, and when it ends.
CREATE TABLE tool_journal (
    session_key BIGINT NOT NULL,
    call_id     TEXT NOT NULL,
    epoch       BIGINT NOT NULL,               -- of the turn that made the entry: an id of a call may come again
    name        TEXT NOT NULL,
    effect      TEXT NOT NULL,                 -- none, idempotent, once: whether the tool may run again after a crash
    status      TEXT NOT NULL,                 -- intended, started, finished, unknown
    arguments   TEXT NOT NULL,                 -- a hash; the arguments themselves are in the message
    intended_at DOUBLE PRECISION NOT NULL,
    started_at  DOUBLE PRECISION,
    finished_at DOUBLE PRECISION,
    result      TEXT,                          -- JSON of the result, until it is stored as a message
    whole       TEXT,                          -- the full text of a result that the model was shown clipped
    approved    BIGINT,                        -- 1: yes, 0: no, NULL: no approval was needed
    approved_by TEXT,                          -- the user who answered, or policy
    approved_at DOUBLE PRECISION,
    grant_id    BIGINT,                        -- the grant that approved the call
    actions     TEXT,                          -- JSON of what the tool did besides its result
    PRIMARY KEY (session_key, call_id, epoch)
);

CREATE INDEX tool_journal_epoch ON tool_journal (session_key, epoch);

-- The events of turns as their readers receive them, for reading on from a Last-Event-ID in any process. They are kept
-- as long as the session; of older turns, with whole texts instead of pieces.
CREATE TABLE event_log (
    session_key BIGINT NOT NULL,
    id          BIGINT NOT NULL,               -- grows within the session; the layout is in store/codec/event_ids.py
    turn        BIGINT NOT NULL,
    type        TEXT NOT NULL,
    data        TEXT NOT NULL,                 -- JSON of the event, as it is sent
    final       BIGINT NOT NULL DEFAULT 0,     -- 1: the last event of its turn; 2: and the pieces of its texts were joined
    PRIMARY KEY (session_key, id)
);
CREATE INDEX event_log_nodes ON event_log (session_key, turn) WHERE type = 'node';

-- The requests to models and their responses, as they went over the wire; only with the setting trace.requests.
CREATE TABLE model_requests (
    session_key BIGINT NOT NULL,
    id          TEXT NOT NULL,                 -- grows with the time of the request
    turn        BIGINT NOT NULL,
    step        TEXT NOT NULL,                 -- the model call: see store/sessions/developer_log.py
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
-- For the bound over all sessions.
CREATE INDEX model_requests_newest ON model_requests (id, size);

-- What the user's own code raised in turns, for its developer: the newest, without secrets.
CREATE TABLE failures (
    session_key BIGINT NOT NULL,
    id          TEXT NOT NULL,                 -- grows with the time of the failure
    data        TEXT NOT NULL,                 -- JSON of lango.development.failures.Failure
    PRIMARY KEY (session_key, id)
);
CREATE INDEX failures_newest ON failures (id);

-- Addresses that are told of the ends of turns. The secret that signs the requests is named or encrypted.
CREATE TABLE webhooks (
    app_name      TEXT NOT NULL,
    id            TEXT NOT NULL,               -- the name in the settings, or wh_ and random digits
    session_key   BIGINT NOT NULL DEFAULT 0,   -- 0: of every session
    quota_id      TEXT,                        -- turns that are counted against this quota, of an API key; NULL: any
    user_id       TEXT,                        -- the user who added it; NULL: an operator
    url           TEXT NOT NULL,
    events        TEXT NOT NULL,               -- JSON list
    include_text  BIGINT NOT NULL DEFAULT 0,   -- 1: the text of the answer is sent, too
    secret_env    TEXT,                        -- the environment variable of the secret
    secret        TEXT,                        -- or the secret, encrypted
    from_settings BIGINT NOT NULL DEFAULT 0,
    task_id       TEXT,                        -- only the turns of this task of A2A, in its protocol
    created_at    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app_name, id)
);

CREATE INDEX webhooks_session ON webhooks (app_name, session_key);

-- What is still to be sent: a row is written in the transaction that ends the turn, and deleted when it was received.
CREATE TABLE webhook_deliveries (
    session_key BIGINT NOT NULL,
    id          TEXT NOT NULL,                 -- the webhook-id, the same for every attempt
    app_name    TEXT NOT NULL,
    webhook_id  TEXT NOT NULL,
    turn        BIGINT NOT NULL,
    event       TEXT NOT NULL,                 -- done, waiting, failed, cancelled
    created_at  DOUBLE PRECISION NOT NULL,     -- by the database's clock; a day later it is given up
    next_at     DOUBLE PRECISION,              -- when it is due, or its sender's lease ends; NULL: given up
    attempts    BIGINT NOT NULL DEFAULT 0,
    problem     TEXT,                          -- of the last attempt
    PRIMARY KEY (session_key, id)
);

CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (app_name, webhook_id);

-- The clock that every process on this database shares.
CREATE VIEW database_clock AS
SELECT /*sqlite unixepoch('subsec')*/ /*postgres CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)*/ AS now;

-- Schedules --------------------------------------------------------------------------------------------------------------

-- What is to run at certain times. A slot is one of these times: it is the idempotency key of its turn. See
-- lango/schedules.
CREATE TABLE schedules (
    app_name         TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    id               TEXT NOT NULL,
    spec             TEXT NOT NULL,            -- JSON: its times, message and rules
    paused           BIGINT NOT NULL DEFAULT 0,
    revision         BIGINT NOT NULL DEFAULT 0,          -- grows with every change by a person
    created_at       DOUBLE PRECISION NOT NULL,
    quota_id         TEXT,                     -- what the tokens of its turns are counted against
    tokens_per_day   BIGINT,
    next_slot        DOUBLE PRECISION,         -- NULL: there is none
    seen_slot        DOUBLE PRECISION,         -- the newest slot that was not missed
    run_requested_at DOUBLE PRECISION,         -- a person wants a run now
    check_at         DOUBLE PRECISION,         -- when a process looks at it next; NULL: not at all
    last_session     TEXT,                     -- of the last run
    last_key         TEXT,                     -- the idempotency key of its turn
    PRIMARY KEY (app_name, user_id, id)
);

CREATE INDEX schedules_due ON schedules (app_name, check_at) WHERE check_at IS NOT NULL;

-- What became of the slots of schedules; the newest are kept.
CREATE TABLE schedule_runs (
    app_name    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    slot        DOUBLE PRECISION NOT NULL,
    manual      BIGINT NOT NULL,               -- 1: a person wanted it then; it is no slot
    recorded_at DOUBLE PRECISION NOT NULL,
    outcome     TEXT NOT NULL,                 -- started, missed, skipped, refused
    reason      TEXT NOT NULL,
    session_id  TEXT,                          -- of its turn
    turn        BIGINT,
    turn_key    TEXT,                          -- the idempotency key of its turn
    last_slot   DOUBLE PRECISION,              -- of several slots that were missed
    slots       BIGINT NOT NULL DEFAULT 1,     -- how many they are
    PRIMARY KEY (app_name, user_id, schedule_id, slot, manual)
);

-- Files ------------------------------------------------------------------------------------------------------------------

-- Files are stored apart from the rows that show them: artifacts of agents, and the files of messages.

-- The bytes of a file, stored once however often they are used.
CREATE TABLE contents (
    hash TEXT PRIMARY KEY,                     -- SHA-256, in hexadecimal digits
    size BIGINT NOT NULL,                      -- bytes; negative: an import is still storing them
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
    kind        TEXT NOT NULL,                 -- bytes, text, uri
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

-- The files of a message while its turn is queued. When the turn starts, they become the message's.
CREATE TABLE turn_contents (
    session_key BIGINT NOT NULL,
    turn        BIGINT NOT NULL,
    hash        TEXT NOT NULL,
    PRIMARY KEY (session_key, turn, hash)
) /*sqlite WITHOUT ROWID*/;

-- Memory -----------------------------------------------------------------------------------------------------------------

-- One row per answer of an observer or a reflector. Rows never change: which batches are current follows from their
-- ranges and from the session's rewinds.
CREATE TABLE observation_batches (
    session_key   BIGINT NOT NULL,
    batch         BIGINT NOT NULL,             -- 1, 2, 3, ...
    generation    BIGINT NOT NULL,             -- 0: made from messages; n: condensed from batches of generations below n
    first_seq     BIGINT NOT NULL,             -- the messages that it covers, except those that a rewind had removed
    last_seq      BIGINT NOT NULL,
    floor_seq     BIGINT NOT NULL,             -- the first message of the window while nothing after last_seq is observed
    rewinds       BIGINT NOT NULL DEFAULT 0,   -- the number of rewinds of the session when it was made
    sources       TEXT,                        -- JSON [batch, ...] that a reflection condensed
    model         TEXT NOT NULL DEFAULT '',
    input_tokens  BIGINT NOT NULL DEFAULT 0,   -- used by the model to make it
    output_tokens BIGINT NOT NULL DEFAULT 0,
    tokens        BIGINT NOT NULL DEFAULT 0,   -- its size in a request
    created_at    DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session_key, batch)
);

CREATE TABLE observations (
    session_key BIGINT NOT NULL,
    batch       BIGINT NOT NULL,
    number      BIGINT NOT NULL,               -- 1, 2, 3, ... within its batch
    first_seq   BIGINT NOT NULL,               -- the messages that it was made from
    last_seq    BIGINT NOT NULL,
    priority    TEXT NOT NULL,                 -- high, medium, low
    day         TEXT NOT NULL,                 -- of its last message, UTC
    text        TEXT NOT NULL,
    PRIMARY KEY (session_key, batch, number)
);

-- The right to observe a session: one process at a time.
CREATE TABLE observer_leases (
    session_key BIGINT PRIMARY KEY,
    owner       TEXT,                          -- the process that holds the lease; NULL: it is free
    epoch       BIGINT NOT NULL DEFAULT 0      -- grows with every lease; writes of an older epoch are refused
);

-- Facts about a user, across sessions. Of several rows with one name, the newest is valid.
CREATE TABLE user_facts (
    app_name    TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    id          BIGINT NOT NULL,               -- 1, 2, 3, ... per user
    name        TEXT NOT NULL,                 -- what the fact is about
    text        TEXT NOT NULL,
    session_key BIGINT NOT NULL,               -- the session that it was learned in
    first_seq   BIGINT NOT NULL,
    last_seq    BIGINT NOT NULL,
    day         TEXT NOT NULL,
    model       TEXT NOT NULL DEFAULT '',
    created_at  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (app_name, user_id, id)
);

CREATE INDEX user_facts_session ON user_facts (session_key);

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

-- Search -----------------------------------------------------------------------------------------------------------------

-- The index is brought up to date by a search, so that appending costs nothing: see store/search/index.py.
CREATE TABLE search_progress (
    session_key   BIGINT PRIMARY KEY,
    indexed_seq   BIGINT NOT NULL,             -- the newest message of the session that is in the index
    indexed_title TEXT                         -- the title that is in the index
);

CREATE TABLE search_messages (
    /*sqlite id INTEGER PRIMARY KEY,*/
    session_key BIGINT NOT NULL,
    seq         BIGINT NOT NULL,               -- 0: the title
    size        BIGINT NOT NULL,               -- grows with the number of different words: a short message ranks higher
    /*postgres words TSVECTOR NOT NULL,*/
    /*sqlite UNIQUE (session_key, seq)*/
    /*postgres PRIMARY KEY (session_key, seq)*/
);

-- store/search/terms.py splits and folds words, the same for both databases: the databases do neither.
/*sqlite CREATE VIRTUAL TABLE search_words USING fts5 (user_hash, words, content = '', contentless_delete = 1, detail = column, tokenize = 'ascii')*/;
/*sqlite CREATE TRIGGER search_messages_deleted AFTER DELETE ON search_messages BEGIN DELETE FROM search_words WHERE rowid = old.id; END*/;
/*postgres CREATE INDEX search_messages_words ON search_messages USING GIN (words)*/;

-- Access and transactions ------------------------------------------------------------------------------------------------

-- Credentials of users for the tools of agents. Every secret is encrypted; see lango.store.credentials.secret_box.
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

CREATE TABLE api_keys (
    id                  TEXT PRIMARY KEY,
    hash                TEXT NOT NULL UNIQUE,  -- sha-256 of a random key of 256 bits; the key itself is not stored
    user_id             TEXT NOT NULL,
    created_at          DOUBLE PRECISION NOT NULL,
    revoked_at          DOUBLE PRECISION,
    requests_per_minute BIGINT,
    tokens_per_day      BIGINT
);

CREATE TABLE api_key_usage (
    key_id TEXT NOT NULL,
    day    BIGINT NOT NULL,                    -- days since 1970, UTC
    tokens BIGINT NOT NULL,
    PRIMARY KEY (key_id, day)
);

-- The number of the newest transaction of each connection to PostgreSQL: it tells whether a COMMIT whose answer was lost
-- took effect.
/*postgres CREATE TABLE commits (slot TEXT PRIMARY KEY, number BIGINT NOT NULL, used_at TIMESTAMPTZ NOT NULL)*/;

-- Views ------------------------------------------------------------------------------------------------------------------

-- A session's own rows together with those that it shares with its ancestors. CROSS JOIN: SQLite keeps its order, from
-- the lineage to the rows; otherwise it may read the rows of every session.
CREATE VIEW messages_with_lineage AS
SELECT session_key, session_key AS source_key, seq, role, author, content, tool_calls, tokens, total_tokens, created_at,
       event_id, invocation_id, call_seq, state_delta, extra
FROM messages
UNION ALL
SELECT l.session_key, l.source_key, m.seq, m.role, m.author, m.content, m.tool_calls, m.tokens, m.total_tokens,
       m.created_at, m.event_id, m.invocation_id, m.call_seq, m.state_delta, m.extra
FROM session_lineage l CROSS JOIN messages m
WHERE m.session_key = l.source_key AND m.seq >= l.first_seq AND m.seq <= l.last_seq;

CREATE VIEW state_events_with_lineage AS
SELECT session_key, session_key AS source_key, seq, revision, event_id, created_at, state_delta, extra FROM state_events
UNION ALL
SELECT l.session_key, l.source_key, e.seq, e.revision, e.event_id, e.created_at, e.state_delta, e.extra
FROM session_lineage l CROSS JOIN state_events e
WHERE e.session_key = l.source_key AND e.seq >= l.first_seq - 1 AND e.seq <= l.last_seq AND e.revision <= l.last_revision;

CREATE VIEW tool_journal_with_lineage AS
SELECT session_key, session_key AS source_key, call_id, epoch, name, effect, status, arguments, intended_at, started_at,
       finished_at, result, whole, approved, approved_by, approved_at, grant_id
FROM tool_journal
UNION ALL
SELECT l.session_key, l.source_key, j.call_id, j.epoch, j.name, j.effect, j.status, j.arguments, j.intended_at,
       j.started_at, j.finished_at, j.result, j.whole, j.approved, j.approved_by, j.approved_at, j.grant_id
FROM session_lineage l CROSS JOIN tool_journal j WHERE j.session_key = l.source_key AND j.epoch <= l.last_epoch;

-- To be read by people: SELECT * FROM conversation WHERE session_id = '...'
CREATE VIEW conversation AS
SELECT s.app_name, s.user_id, s.id AS session_id, m.seq, m.role, m.author, m.content, m.tool_calls, m.tokens,
       m.total_tokens, m.created_at
FROM messages_with_lineage m JOIN sessions s ON s.session_key = m.session_key
ORDER BY s.session_key, m.seq;
