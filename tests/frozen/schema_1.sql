--
-- PostgreSQL database dump
--


-- Dumped from database version 18.4
-- Dumped by pg_dump version 18.4

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET transaction_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: frozen_schema; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA frozen_schema;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: answered_events; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.answered_events (
    session_key bigint NOT NULL,
    name text NOT NULL,
    event_key text NOT NULL
);


--
-- Name: api_key_usage; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.api_key_usage (
    key_id text NOT NULL,
    day bigint NOT NULL,
    tokens bigint NOT NULL
);


--
-- Name: api_keys; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.api_keys (
    id text NOT NULL,
    hash text NOT NULL,
    user_id text NOT NULL,
    created_at double precision NOT NULL,
    revoked_at double precision,
    requests_per_minute bigint,
    tokens_per_day bigint
);


--
-- Name: app_states; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.app_states (
    app_name text NOT NULL,
    state text NOT NULL
);


--
-- Name: approval_grants; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.approval_grants (
    session_key bigint NOT NULL,
    id bigint NOT NULL,
    tool text NOT NULL,
    arguments text,
    request_id text NOT NULL,
    seq bigint NOT NULL,
    granted_by text NOT NULL,
    granted_at double precision NOT NULL,
    expires_at double precision,
    revoked_at double precision,
    revoked_by text
);


--
-- Name: artifacts; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.artifacts (
    app_name text NOT NULL,
    user_id text NOT NULL,
    session_id text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    kind text NOT NULL,
    mime_type text,
    hash text,
    size bigint DEFAULT 0 NOT NULL,
    part text,
    metadata text,
    after_seq bigint DEFAULT 0 NOT NULL,
    saved_by text,
    created_at double precision NOT NULL
);


--
-- Name: commits; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.commits (
    slot text NOT NULL,
    number bigint NOT NULL,
    used_at timestamp with time zone NOT NULL
);


--
-- Name: content_chunks; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.content_chunks (
    hash text NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL
);


--
-- Name: contents; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.contents (
    hash text NOT NULL,
    size bigint NOT NULL,
    uses bigint NOT NULL
);


--
-- Name: messages; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.messages (
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    role text NOT NULL,
    author text DEFAULT ''::text NOT NULL,
    content text DEFAULT ''::text NOT NULL,
    tool_calls text,
    tokens bigint DEFAULT 0 NOT NULL,
    total_tokens bigint DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    event_id text NOT NULL,
    invocation_id text DEFAULT ''::text NOT NULL,
    call_seq bigint,
    state_delta text,
    extra text
);


--
-- Name: session_lineage; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.session_lineage (
    session_key bigint NOT NULL,
    ordinal bigint NOT NULL,
    source_key bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    last_revision bigint NOT NULL,
    last_epoch bigint NOT NULL
);


--
-- Name: messages_with_lineage; Type: VIEW; Schema: frozen_schema; Owner: -
--

CREATE VIEW frozen_schema.messages_with_lineage AS
 SELECT messages.session_key,
    messages.session_key AS source_key,
    messages.seq,
    messages.role,
    messages.author,
    messages.content,
    messages.tool_calls,
    messages.tokens,
    messages.total_tokens,
    messages.created_at,
    messages.event_id,
    messages.invocation_id,
    messages.call_seq,
    messages.state_delta,
    messages.extra
   FROM frozen_schema.messages
UNION ALL
 SELECT l.session_key,
    l.source_key,
    m.seq,
    m.role,
    m.author,
    m.content,
    m.tool_calls,
    m.tokens,
    m.total_tokens,
    m.created_at,
    m.event_id,
    m.invocation_id,
    m.call_seq,
    m.state_delta,
    m.extra
   FROM (frozen_schema.session_lineage l
     CROSS JOIN frozen_schema.messages m)
  WHERE ((m.session_key = l.source_key) AND (m.seq >= l.first_seq) AND (m.seq <= l.last_seq));


--
-- Name: sessions; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.sessions (
    session_key bigint NOT NULL,
    app_name text NOT NULL,
    user_id text NOT NULL,
    id text NOT NULL,
    title text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    user_seq bigint DEFAULT 0 NOT NULL,
    total_tokens bigint DEFAULT 0 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    input_hash bigint,
    rewinds text,
    forked_from text
);


--
-- Name: conversation; Type: VIEW; Schema: frozen_schema; Owner: -
--

CREATE VIEW frozen_schema.conversation AS
 SELECT s.app_name,
    s.user_id,
    s.id AS session_id,
    m.seq,
    m.role,
    m.author,
    m.content,
    m.tool_calls,
    m.tokens,
    m.total_tokens,
    m.created_at
   FROM (frozen_schema.messages_with_lineage m
     JOIN frozen_schema.sessions s ON ((s.session_key = m.session_key)))
  ORDER BY s.session_key, m.seq;


--
-- Name: credentials; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.credentials (
    app_name text NOT NULL,
    user_id text NOT NULL,
    credential_key text NOT NULL,
    kind text NOT NULL,
    scopes text NOT NULL,
    label text NOT NULL,
    expires_at double precision,
    refreshable bigint DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    secret text NOT NULL
);


--
-- Name: database_clock; Type: VIEW; Schema: frozen_schema; Owner: -
--

CREATE VIEW frozen_schema.database_clock AS
 SELECT (EXTRACT(epoch FROM clock_timestamp()))::double precision AS now;


--
-- Name: event_log; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.event_log (
    session_key bigint NOT NULL,
    id bigint NOT NULL,
    turn bigint NOT NULL,
    type text NOT NULL,
    data text NOT NULL,
    final bigint DEFAULT 0 NOT NULL
);


--
-- Name: event_names; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.event_names (
    app_name text NOT NULL,
    name text NOT NULL,
    changes bigint NOT NULL
);


--
-- Name: failures; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.failures (
    session_key bigint NOT NULL,
    id text NOT NULL,
    data text NOT NULL
);


--
-- Name: forgotten_memories; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.forgotten_memories (
    user_hash text NOT NULL,
    memory_id text NOT NULL
);


--
-- Name: lango_schema; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.lango_schema (
    version bigint NOT NULL,
    oldest_reader bigint NOT NULL,
    applied_at text NOT NULL
);


--
-- Name: memory_entries; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.memory_entries (
    user_hash text NOT NULL,
    number bigint NOT NULL,
    memory_id text NOT NULL,
    session_id text NOT NULL,
    author text NOT NULL,
    created_at double precision,
    text text NOT NULL,
    content text NOT NULL,
    metadata text
);


--
-- Name: memory_words; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.memory_words (
    user_hash text NOT NULL,
    word text NOT NULL,
    number bigint NOT NULL
);


--
-- Name: message_contents; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.message_contents (
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    hash text NOT NULL
);


--
-- Name: model_requests; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.model_requests (
    session_key bigint NOT NULL,
    id text NOT NULL,
    turn bigint NOT NULL,
    step text NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    url text NOT NULL,
    started_at double precision NOT NULL,
    duration_s double precision,
    status bigint,
    error text NOT NULL,
    size bigint NOT NULL,
    request text NOT NULL,
    response text NOT NULL
);


--
-- Name: observation_batches; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.observation_batches (
    session_key bigint NOT NULL,
    batch bigint NOT NULL,
    generation bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    floor_seq bigint NOT NULL,
    rewinds bigint DEFAULT 0 NOT NULL,
    sources text,
    model text DEFAULT ''::text NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    tokens bigint DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL
);


--
-- Name: observations; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.observations (
    session_key bigint NOT NULL,
    batch bigint NOT NULL,
    number bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    priority text NOT NULL,
    day text NOT NULL,
    text text NOT NULL
);


--
-- Name: observer_leases; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.observer_leases (
    session_key bigint NOT NULL,
    owner text,
    epoch bigint DEFAULT 0 NOT NULL
);


--
-- Name: open_calls; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.open_calls (
    session_key bigint NOT NULL,
    call_id text NOT NULL,
    seq bigint NOT NULL,
    long_running bigint DEFAULT 0 NOT NULL
);


--
-- Name: owners; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.owners (
    owner text NOT NULL,
    heartbeat bigint NOT NULL
);


--
-- Name: replicas; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.replicas (
    owner text NOT NULL,
    app_name text NOT NULL,
    version text NOT NULL,
    started_at double precision NOT NULL,
    seen_at double precision NOT NULL
);


--
-- Name: schedule_runs; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.schedule_runs (
    app_name text NOT NULL,
    user_id text NOT NULL,
    schedule_id text NOT NULL,
    slot double precision NOT NULL,
    manual bigint NOT NULL,
    recorded_at double precision NOT NULL,
    outcome text NOT NULL,
    reason text NOT NULL,
    session_id text,
    turn bigint,
    turn_key text,
    last_slot double precision,
    slots bigint DEFAULT 1 NOT NULL
);


--
-- Name: schedules; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.schedules (
    app_name text NOT NULL,
    user_id text NOT NULL,
    id text NOT NULL,
    spec text NOT NULL,
    paused bigint DEFAULT 0 NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    quota_id text,
    tokens_per_day bigint,
    next_slot double precision,
    seen_slot double precision,
    run_requested_at double precision,
    check_at double precision,
    last_session text,
    last_key text
);


--
-- Name: search_messages; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.search_messages (
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    size bigint NOT NULL,
    words tsvector NOT NULL
);


--
-- Name: search_progress; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.search_progress (
    session_key bigint NOT NULL,
    indexed_seq bigint NOT NULL,
    indexed_title text
);


--
-- Name: sent_events; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.sent_events (
    app_name text NOT NULL,
    name text NOT NULL,
    event_key text NOT NULL,
    user_id text NOT NULL,
    session_id text NOT NULL,
    data text NOT NULL,
    sent_at double precision NOT NULL,
    expires_at double precision NOT NULL
);


--
-- Name: session_options; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.session_options (
    session_key bigint NOT NULL,
    model text,
    instruction text
);


--
-- Name: session_states; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.session_states (
    session_key bigint NOT NULL,
    state text NOT NULL
);


--
-- Name: shared_sessions; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.shared_sessions (
    session_key bigint NOT NULL,
    forks bigint NOT NULL,
    deleted bigint DEFAULT 0 NOT NULL
);


--
-- Name: state_events; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.state_events (
    session_key bigint NOT NULL,
    seq bigint NOT NULL,
    revision bigint NOT NULL,
    event_id text NOT NULL,
    created_at double precision NOT NULL,
    state_delta text NOT NULL,
    extra text
);


--
-- Name: state_events_with_lineage; Type: VIEW; Schema: frozen_schema; Owner: -
--

CREATE VIEW frozen_schema.state_events_with_lineage AS
 SELECT state_events.session_key,
    state_events.session_key AS source_key,
    state_events.seq,
    state_events.revision,
    state_events.event_id,
    state_events.created_at,
    state_events.state_delta,
    state_events.extra
   FROM frozen_schema.state_events
UNION ALL
 SELECT l.session_key,
    l.source_key,
    e.seq,
    e.revision,
    e.event_id,
    e.created_at,
    e.state_delta,
    e.extra
   FROM (frozen_schema.session_lineage l
     CROSS JOIN frozen_schema.state_events e)
  WHERE ((e.session_key = l.source_key) AND (e.seq >= (l.first_seq - 1)) AND (e.seq <= l.last_seq) AND (e.revision <= l.last_revision));


--
-- Name: tool_journal; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.tool_journal (
    session_key bigint NOT NULL,
    call_id text NOT NULL,
    epoch bigint NOT NULL,
    name text NOT NULL,
    effect text NOT NULL,
    status text NOT NULL,
    arguments text NOT NULL,
    intended_at double precision NOT NULL,
    started_at double precision,
    finished_at double precision,
    result text,
    whole text,
    approved bigint,
    approved_by text,
    approved_at double precision,
    grant_id bigint,
    actions text
);


--
-- Name: tool_journal_with_lineage; Type: VIEW; Schema: frozen_schema; Owner: -
--

CREATE VIEW frozen_schema.tool_journal_with_lineage AS
 SELECT tool_journal.session_key,
    tool_journal.session_key AS source_key,
    tool_journal.call_id,
    tool_journal.epoch,
    tool_journal.name,
    tool_journal.effect,
    tool_journal.status,
    tool_journal.arguments,
    tool_journal.intended_at,
    tool_journal.started_at,
    tool_journal.finished_at,
    tool_journal.result,
    tool_journal.whole,
    tool_journal.approved,
    tool_journal.approved_by,
    tool_journal.approved_at,
    tool_journal.grant_id
   FROM frozen_schema.tool_journal
UNION ALL
 SELECT l.session_key,
    l.source_key,
    j.call_id,
    j.epoch,
    j.name,
    j.effect,
    j.status,
    j.arguments,
    j.intended_at,
    j.started_at,
    j.finished_at,
    j.result,
    j.whole,
    j.approved,
    j.approved_by,
    j.approved_at,
    j.grant_id
   FROM (frozen_schema.session_lineage l
     CROSS JOIN frozen_schema.tool_journal j)
  WHERE ((j.session_key = l.source_key) AND (j.epoch <= l.last_epoch));


--
-- Name: turn_contents; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.turn_contents (
    session_key bigint NOT NULL,
    turn bigint NOT NULL,
    hash text NOT NULL
);


--
-- Name: turns; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.turns (
    session_key bigint NOT NULL,
    turn bigint NOT NULL,
    status text NOT NULL,
    idempotency_key text,
    digest text,
    invocation_id text,
    queued_input text,
    first_seq bigint,
    epoch bigint,
    first_epoch bigint,
    begun_version text,
    version text,
    continued_seq bigint,
    continued_epoch bigint,
    attempts bigint DEFAULT 0 NOT NULL,
    resumptions text,
    request text,
    quota_id text,
    credential_wait text,
    steers bigint,
    replaces bigint,
    owner text,
    cancel_requested bigint DEFAULT 0 NOT NULL,
    answer_stored bigint DEFAULT 0 NOT NULL,
    created_at double precision NOT NULL,
    started_at double precision,
    ended_at double precision,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cached_tokens bigint DEFAULT 0 NOT NULL,
    model_calls bigint DEFAULT 0 NOT NULL,
    cost_usd double precision,
    extra text
);


--
-- Name: user_facts; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.user_facts (
    app_name text NOT NULL,
    user_id text NOT NULL,
    id bigint NOT NULL,
    name text NOT NULL,
    text text NOT NULL,
    session_key bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    day text NOT NULL,
    model text DEFAULT ''::text NOT NULL,
    created_at double precision NOT NULL
);


--
-- Name: user_states; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.user_states (
    app_name text NOT NULL,
    user_id text NOT NULL,
    state text NOT NULL
);


--
-- Name: waits; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.waits (
    session_key bigint NOT NULL,
    id text NOT NULL,
    kind text NOT NULL,
    turn bigint,
    epoch bigint,
    invocation_id text DEFAULT ''::text NOT NULL,
    seq bigint NOT NULL,
    about_id text,
    about_seq bigint,
    opened_at double precision NOT NULL,
    expires_at double precision,
    event_name text,
    app_name text,
    user_id text,
    data text,
    state_hash text,
    secret text,
    answer text,
    answered_at double precision,
    answered_by text,
    closed text,
    closed_at double precision
);


--
-- Name: webhook_deliveries; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.webhook_deliveries (
    session_key bigint NOT NULL,
    id text NOT NULL,
    app_name text NOT NULL,
    webhook_id text NOT NULL,
    turn bigint NOT NULL,
    event text NOT NULL,
    created_at double precision NOT NULL,
    next_at double precision,
    attempts bigint DEFAULT 0 NOT NULL,
    problem text
);


--
-- Name: webhooks; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.webhooks (
    app_name text NOT NULL,
    id text NOT NULL,
    session_key bigint DEFAULT 0 NOT NULL,
    quota_id text,
    user_id text,
    url text NOT NULL,
    events text NOT NULL,
    include_text bigint DEFAULT 0 NOT NULL,
    secret_env text,
    secret text,
    from_settings bigint DEFAULT 0 NOT NULL,
    task_id text,
    created_at double precision NOT NULL
);


--
-- Data for Name: answered_events; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: api_key_usage; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: api_keys; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: app_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.app_states VALUES ('frozen app', '{"count":1}');


--
-- Data for Name: approval_grants; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: artifacts; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: commits; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.commits VALUES ('aca1d31c1a5e4a828ef7e969821d078a', 6, '2026-11-19 11:27:54.628803+00');


--
-- Data for Name: content_chunks; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: contents; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: credentials; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: event_log; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: event_names; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: failures; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: forgotten_memories; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: lango_schema; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.lango_schema VALUES (1, 1, '2026-11-19 11:27:54.212579+00');


--
-- Data for Name: memory_entries; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: memory_words; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: message_contents; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: messages; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.messages VALUES (510279044, 1, 'user', 'user', 'Hello, 漢字 and 😀', NULL, 11, 11, 1700000000.5, 'event-0', 'e-0', NULL, NULL, NULL);
INSERT INTO frozen_schema.messages VALUES (510279044, 2, 'assistant', 'helper', 'One moment.', '[{"id":"c1","name":"look_up","input":{"word":"naïve","depth":2,"ratio":0.1}},{"id":"c2","name":"look_up","input":{}}]', 47, 58, 1700000001.5, 'event-1', 'e-0', NULL, NULL, '{"finish_reason":"STOP","usage_metadata":{"candidates_token_count":34,"prompt_token_count":12},"long_running_tool_ids":["c2"],"parts":[{"text":"let me think","thought":true},11,{"call":{},"thought_signature":{"$lango:bytes":"/wBzaWc="}},"call"]}');
INSERT INTO frozen_schema.messages VALUES (510279044, 3, 'tool', 'helper', '{"found":[1,null]}', '[{"id":"c1","name":"look_up","output":{"found":[1,null]}}]', 20, 78, 1700000002.5, 'event-2', 'e-0', NULL, '{"words":{"naïve":1},"user:lang":"fr","app:count":1}', NULL);
INSERT INTO frozen_schema.messages VALUES (510279044, 4, 'assistant', 'helper', 'It means innocent.', NULL, 8, 86, 1700000004.5, 'event-4', 'e-1', NULL, NULL, '{"branch":"a.b"}');
INSERT INTO frozen_schema.messages VALUES (510279044, 5, 'user', 'user', 'nul � and half � a character', NULL, 1112, 1198, 1700000005.5, 'event-5', 'e-1', NULL, NULL, '{"custom_metadata":{"from":"a test"},"parts":[{"text":"nul \u0000 and half \ud800 a character"},{"inline_data":{"data":{"$lango:bytes":"iVBORwA="},"mime_type":"image/png"}}]}');
INSERT INTO frozen_schema.messages VALUES (510279044, 6, 'event', 'helper', '', NULL, 0, 1198, 1700000006.5, 'event-6', 'e-2', NULL, NULL, '{"error_code":"SAFETY","error_message":"blocked"}');
INSERT INTO frozen_schema.messages VALUES (510279044, 7, 'event', 'helper', '', NULL, 0, 1198, 1700000007.5, 'event-7', 'e-2', NULL, NULL, '{"actions":{"compaction":{"start_timestamp":1.0,"end_timestamp":2.0,"compacted_content":{"parts":[{"text":"so far"}],"role":"model"}}}}');


--
-- Data for Name: model_requests; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: observation_batches; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: observations; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: observer_leases; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: open_calls; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.open_calls VALUES (510279044, 'c2', 2, 1);


--
-- Data for Name: owners; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: replicas; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: schedule_runs; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: schedules; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: search_messages; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: search_progress; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: sent_events; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: session_lineage; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: session_options; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: session_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.session_states VALUES (510279044, '{"began":true,"words":{"naïve":1},"only":"state","gone":null}');


--
-- Data for Name: sessions; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.sessions VALUES (510279044, 'frozen app', 'Ada', 'one of everything', NULL, 1795087674.5489275, 1700000007.5, 8, 7, 5, 1198, 0, NULL, NULL, NULL);
INSERT INTO frozen_schema.sessions VALUES (2006294933, 'frozen app', 'Bob', 'empty', NULL, 1795087674.628661, 1795087674.628661, 0, 0, 0, 0, 0, NULL, NULL, NULL);


--
-- Data for Name: shared_sessions; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: state_events; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.state_events VALUES (510279044, 0, 0, '', 1795087674.5489275, '{"began":true,"user:name":"Ada"}', NULL);
INSERT INTO frozen_schema.state_events VALUES (510279044, 3, 4, 'event-3', 1700000003.5, '{"only":"state","gone":null}', '{"invocation_id":"e-1","author":"helper"}');


--
-- Data for Name: tool_journal; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: turn_contents; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: turns; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: user_facts; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: user_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.user_states VALUES ('frozen app', 'Ada', '{"name":"Ada","lang":"fr"}');


--
-- Data for Name: waits; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: webhook_deliveries; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: webhooks; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Name: answered_events answered_events_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.answered_events
    ADD CONSTRAINT answered_events_pkey PRIMARY KEY (session_key, name, event_key);


--
-- Name: api_key_usage api_key_usage_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.api_key_usage
    ADD CONSTRAINT api_key_usage_pkey PRIMARY KEY (key_id, day);


--
-- Name: api_keys api_keys_hash_key; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.api_keys
    ADD CONSTRAINT api_keys_hash_key UNIQUE (hash);


--
-- Name: api_keys api_keys_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);


--
-- Name: app_states app_states_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.app_states
    ADD CONSTRAINT app_states_pkey PRIMARY KEY (app_name);


--
-- Name: approval_grants approval_grants_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.approval_grants
    ADD CONSTRAINT approval_grants_pkey PRIMARY KEY (session_key, id);


--
-- Name: artifacts artifacts_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.artifacts
    ADD CONSTRAINT artifacts_pkey PRIMARY KEY (app_name, user_id, session_id, name, version);


--
-- Name: commits commits_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.commits
    ADD CONSTRAINT commits_pkey PRIMARY KEY (slot);


--
-- Name: content_chunks content_chunks_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.content_chunks
    ADD CONSTRAINT content_chunks_pkey PRIMARY KEY (hash, number);


--
-- Name: contents contents_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.contents
    ADD CONSTRAINT contents_pkey PRIMARY KEY (hash);


--
-- Name: credentials credentials_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.credentials
    ADD CONSTRAINT credentials_pkey PRIMARY KEY (app_name, user_id, credential_key);


--
-- Name: event_log event_log_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.event_log
    ADD CONSTRAINT event_log_pkey PRIMARY KEY (session_key, id);


--
-- Name: event_names event_names_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.event_names
    ADD CONSTRAINT event_names_pkey PRIMARY KEY (app_name, name);


--
-- Name: failures failures_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (session_key, id);


--
-- Name: forgotten_memories forgotten_memories_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.forgotten_memories
    ADD CONSTRAINT forgotten_memories_pkey PRIMARY KEY (user_hash, memory_id);


--
-- Name: lango_schema lango_schema_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.lango_schema
    ADD CONSTRAINT lango_schema_pkey PRIMARY KEY (version);


--
-- Name: memory_entries memory_entries_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.memory_entries
    ADD CONSTRAINT memory_entries_pkey PRIMARY KEY (user_hash, number);


--
-- Name: memory_words memory_words_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.memory_words
    ADD CONSTRAINT memory_words_pkey PRIMARY KEY (user_hash, word, number);


--
-- Name: message_contents message_contents_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.message_contents
    ADD CONSTRAINT message_contents_pkey PRIMARY KEY (session_key, seq, hash);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (session_key, seq);


--
-- Name: model_requests model_requests_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.model_requests
    ADD CONSTRAINT model_requests_pkey PRIMARY KEY (session_key, id);


--
-- Name: observation_batches observation_batches_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.observation_batches
    ADD CONSTRAINT observation_batches_pkey PRIMARY KEY (session_key, batch);


--
-- Name: observations observations_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.observations
    ADD CONSTRAINT observations_pkey PRIMARY KEY (session_key, batch, number);


--
-- Name: observer_leases observer_leases_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.observer_leases
    ADD CONSTRAINT observer_leases_pkey PRIMARY KEY (session_key);


--
-- Name: open_calls open_calls_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.open_calls
    ADD CONSTRAINT open_calls_pkey PRIMARY KEY (session_key, call_id);


--
-- Name: owners owners_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.owners
    ADD CONSTRAINT owners_pkey PRIMARY KEY (owner);


--
-- Name: replicas replicas_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (owner);


--
-- Name: schedule_runs schedule_runs_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.schedule_runs
    ADD CONSTRAINT schedule_runs_pkey PRIMARY KEY (app_name, user_id, schedule_id, slot, manual);


--
-- Name: schedules schedules_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (app_name, user_id, id);


--
-- Name: search_messages search_messages_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.search_messages
    ADD CONSTRAINT search_messages_pkey PRIMARY KEY (session_key, seq);


--
-- Name: search_progress search_progress_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.search_progress
    ADD CONSTRAINT search_progress_pkey PRIMARY KEY (session_key);


--
-- Name: sent_events sent_events_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.sent_events
    ADD CONSTRAINT sent_events_pkey PRIMARY KEY (app_name, name, event_key);


--
-- Name: session_lineage session_lineage_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.session_lineage
    ADD CONSTRAINT session_lineage_pkey PRIMARY KEY (session_key, ordinal);


--
-- Name: session_options session_options_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.session_options
    ADD CONSTRAINT session_options_pkey PRIMARY KEY (session_key);


--
-- Name: session_states session_states_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.session_states
    ADD CONSTRAINT session_states_pkey PRIMARY KEY (session_key);


--
-- Name: sessions sessions_app_name_user_id_id_key; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.sessions
    ADD CONSTRAINT sessions_app_name_user_id_id_key UNIQUE (app_name, user_id, id);


--
-- Name: sessions sessions_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (session_key);


--
-- Name: shared_sessions shared_sessions_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.shared_sessions
    ADD CONSTRAINT shared_sessions_pkey PRIMARY KEY (session_key);


--
-- Name: state_events state_events_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.state_events
    ADD CONSTRAINT state_events_pkey PRIMARY KEY (session_key, seq, revision);


--
-- Name: tool_journal tool_journal_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.tool_journal
    ADD CONSTRAINT tool_journal_pkey PRIMARY KEY (session_key, call_id, epoch);


--
-- Name: turn_contents turn_contents_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.turn_contents
    ADD CONSTRAINT turn_contents_pkey PRIMARY KEY (session_key, turn, hash);


--
-- Name: turns turns_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (session_key, turn);


--
-- Name: user_facts user_facts_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.user_facts
    ADD CONSTRAINT user_facts_pkey PRIMARY KEY (app_name, user_id, id);


--
-- Name: user_states user_states_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.user_states
    ADD CONSTRAINT user_states_pkey PRIMARY KEY (app_name, user_id);


--
-- Name: waits waits_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.waits
    ADD CONSTRAINT waits_pkey PRIMARY KEY (session_key, id);


--
-- Name: webhook_deliveries webhook_deliveries_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.webhook_deliveries
    ADD CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (session_key, id);


--
-- Name: webhooks webhooks_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.webhooks
    ADD CONSTRAINT webhooks_pkey PRIMARY KEY (app_name, id);


--
-- Name: event_log_nodes; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX event_log_nodes ON frozen_schema.event_log USING btree (session_key, turn) WHERE (type = 'node'::text);


--
-- Name: failures_newest; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX failures_newest ON frozen_schema.failures USING btree (id);


--
-- Name: memory_entries_id; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX memory_entries_id ON frozen_schema.memory_entries USING btree (user_hash, session_id, memory_id);


--
-- Name: memory_words_number; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX memory_words_number ON frozen_schema.memory_words USING btree (user_hash, number);


--
-- Name: messages_call; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX messages_call ON frozen_schema.messages USING btree (session_key, call_seq, seq) WHERE (call_seq IS NOT NULL);


--
-- Name: messages_event; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX messages_event ON frozen_schema.messages USING btree (session_key, event_id);


--
-- Name: messages_state; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX messages_state ON frozen_schema.messages USING btree (session_key, seq) WHERE (state_delta IS NOT NULL);


--
-- Name: model_requests_newest; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX model_requests_newest ON frozen_schema.model_requests USING btree (id, size);


--
-- Name: schedules_due; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX schedules_due ON frozen_schema.schedules USING btree (app_name, check_at) WHERE (check_at IS NOT NULL);


--
-- Name: search_messages_words; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX search_messages_words ON frozen_schema.search_messages USING gin (words);


--
-- Name: sent_events_expiry; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX sent_events_expiry ON frozen_schema.sent_events USING btree (expires_at);


--
-- Name: sent_events_time; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX sent_events_time ON frozen_schema.sent_events USING btree (app_name, name, sent_at);


--
-- Name: session_lineage_source; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX session_lineage_source ON frozen_schema.session_lineage USING btree (source_key);


--
-- Name: sessions_input; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX sessions_input ON frozen_schema.sessions USING btree (app_name, user_id, input_hash) WHERE (input_hash IS NOT NULL);


--
-- Name: state_events_event; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX state_events_event ON frozen_schema.state_events USING btree (session_key, event_id);


--
-- Name: tool_journal_epoch; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX tool_journal_epoch ON frozen_schema.tool_journal USING btree (session_key, epoch);


--
-- Name: turns_idempotency; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX turns_idempotency ON frozen_schema.turns USING btree (session_key, idempotency_key) WHERE (idempotency_key IS NOT NULL);


--
-- Name: turns_open; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX turns_open ON frozen_schema.turns USING btree (session_key, status, turn) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));


--
-- Name: turns_running; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX turns_running ON frozen_schema.turns USING btree (session_key) WHERE (status = 'running'::text);


--
-- Name: turns_without_answer; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX turns_without_answer ON frozen_schema.turns USING btree (session_key, first_seq) WHERE (status = ANY (ARRAY['failed'::text, 'cancelled'::text, 'interrupted'::text]));


--
-- Name: user_facts_session; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX user_facts_session ON frozen_schema.user_facts USING btree (session_key);


--
-- Name: waits_event; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX waits_event ON frozen_schema.waits USING btree (app_name, event_name) WHERE ((event_name IS NOT NULL) AND (closed IS NULL) AND (answered_at IS NULL));


--
-- Name: waits_expiry; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX waits_expiry ON frozen_schema.waits USING btree (expires_at) WHERE ((closed IS NULL) AND (answered_at IS NULL) AND (epoch IS NULL) AND (expires_at IS NOT NULL));


--
-- Name: waits_inbox; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX waits_inbox ON frozen_schema.waits USING btree (app_name, user_id, opened_at, session_key, id) WHERE ((closed IS NULL) AND (answered_at IS NULL) AND (user_id IS NOT NULL));


--
-- Name: waits_open; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX waits_open ON frozen_schema.waits USING btree (session_key, seq) WHERE (closed IS NULL);


--
-- Name: waits_state; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX waits_state ON frozen_schema.waits USING btree (state_hash) WHERE (state_hash IS NOT NULL);


--
-- Name: webhook_deliveries_due; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX webhook_deliveries_due ON frozen_schema.webhook_deliveries USING btree (next_at) WHERE (next_at IS NOT NULL);


--
-- Name: webhook_deliveries_of_webhook; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX webhook_deliveries_of_webhook ON frozen_schema.webhook_deliveries USING btree (app_name, webhook_id);


--
-- Name: webhooks_session; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX webhooks_session ON frozen_schema.webhooks USING btree (app_name, session_key);


--
-- PostgreSQL database dump complete
--


