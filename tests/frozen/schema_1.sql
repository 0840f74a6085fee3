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
-- Name: commits; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.commits (
    slot text NOT NULL,
    number bigint NOT NULL,
    used_at timestamp with time zone NOT NULL
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
-- Name: lango_schema; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.lango_schema (
    version bigint NOT NULL,
    applied_at text NOT NULL
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
    epoch bigint DEFAULT 0 NOT NULL,
    heartbeat bigint DEFAULT 0 NOT NULL
);


--
-- Name: open_calls; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.open_calls (
    session_key bigint NOT NULL,
    call_id text NOT NULL,
    seq bigint NOT NULL,
    long_running bigint DEFAULT 0 NOT NULL,
    approves_call_id text,
    approves_call_seq bigint,
    expires_at double precision,
    answered_at double precision
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
    CONSTRAINT tool_journal_status_check CHECK ((status = ANY (ARRAY['intended'::text, 'started'::text, 'finished'::text, 'unknown'::text])))
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
    tool_journal.approved_at
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
    j.approved_at
   FROM (frozen_schema.session_lineage l
     CROSS JOIN frozen_schema.tool_journal j)
  WHERE ((j.session_key = l.source_key) AND (j.epoch <= l.last_epoch));


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
    owner text,
    heartbeat bigint DEFAULT 0 NOT NULL,
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
    extra text,
    CONSTRAINT turns_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'running'::text, 'done'::text, 'failed'::text, 'cancelled'::text, 'interrupted'::text])))
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
-- Data for Name: commits; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.commits VALUES ('25f22559375d4a29b34cfeaf09f64bf3', 6, '2026-11-16 23:03:24.771205+00');


--
-- Data for Name: event_log; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: lango_schema; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.lango_schema VALUES (1, '2026-11-16 23:03:24.49975+00');


--
-- Data for Name: messages; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.messages VALUES (1929218059, 1, 'user', 'user', 'Hello, 漢字 and 😀', NULL, 11, 11, 1700000000.5, 'event-0', 'e-0', NULL, NULL, NULL);
INSERT INTO frozen_schema.messages VALUES (1929218059, 2, 'assistant', 'helper', 'One moment.', '[{"id":"c1","name":"look_up","input":{"word":"naïve","depth":2,"ratio":0.1}},{"id":"c2","name":"look_up","input":{}}]', 47, 58, 1700000001.5, 'event-1', 'e-0', NULL, NULL, '{"finish_reason":"STOP","usage_metadata":{"candidates_token_count":34,"prompt_token_count":12},"long_running_tool_ids":["c2"],"parts":[{"text":"let me think","thought":true},11,{"call":{},"thought_signature":{"$lango:bytes":"/wBzaWc="}},"call"]}');
INSERT INTO frozen_schema.messages VALUES (1929218059, 3, 'tool', 'helper', '{"found":[1,null]}', '[{"id":"c1","name":"look_up","output":{"found":[1,null]}}]', 20, 78, 1700000002.5, 'event-2', 'e-0', NULL, '{"words":{"naïve":1},"user:lang":"fr","app:count":1}', NULL);
INSERT INTO frozen_schema.messages VALUES (1929218059, 4, 'assistant', 'helper', 'It means innocent.', NULL, 8, 86, 1700000004.5, 'event-4', 'e-1', NULL, NULL, '{"branch":"a.b"}');
INSERT INTO frozen_schema.messages VALUES (1929218059, 5, 'user', 'user', 'nul � and half � a character', NULL, 1112, 1198, 1700000005.5, 'event-5', 'e-1', NULL, NULL, '{"custom_metadata":{"from":"a test"},"parts":[{"text":"nul \u0000 and half \ud800 a character"},{"inline_data":{"data":{"$lango:bytes":"iVBORwA="},"mime_type":"image/png"}}]}');
INSERT INTO frozen_schema.messages VALUES (1929218059, 6, 'event', 'helper', '', NULL, 0, 1198, 1700000006.5, 'event-6', 'e-2', NULL, NULL, '{"error_code":"SAFETY","error_message":"blocked"}');
INSERT INTO frozen_schema.messages VALUES (1929218059, 7, 'event', 'helper', '', NULL, 0, 1198, 1700000007.5, 'event-7', 'e-2', NULL, NULL, '{"actions":{"compaction":{"start_timestamp":1.0,"end_timestamp":2.0,"compacted_content":{"parts":[{"text":"so far"}],"role":"model"}}}}');


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

INSERT INTO frozen_schema.open_calls VALUES (1929218059, 'c2', 2, 1, NULL, NULL, NULL, NULL);


--
-- Data for Name: search_messages; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: search_progress; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: session_lineage; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: session_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.session_states VALUES (1929218059, '{"began":true,"words":{"naïve":1},"only":"state","gone":null}');


--
-- Data for Name: sessions; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.sessions VALUES (1929218059, 'frozen app', 'Ada', 'one of everything', NULL, 1794870204.687192, 1700000007.5, 8, 7, 5, 1198, 0, NULL, NULL, NULL);
INSERT INTO frozen_schema.sessions VALUES (1825317018, 'frozen app', 'Bob', 'empty', NULL, 1794870204.7710843, 1794870204.7710843, 0, 0, 0, 0, 0, NULL, NULL, NULL);


--
-- Data for Name: shared_sessions; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: state_events; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.state_events VALUES (1929218059, 0, 0, '', 1794870204.687192, '{"began":true,"user:name":"Ada"}', NULL);
INSERT INTO frozen_schema.state_events VALUES (1929218059, 3, 4, 'event-3', 1700000003.5, '{"only":"state","gone":null}', '{"invocation_id":"e-1","author":"helper"}');


--
-- Data for Name: tool_journal; Type: TABLE DATA; Schema: frozen_schema; Owner: -
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
-- Name: commits commits_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.commits
    ADD CONSTRAINT commits_pkey PRIMARY KEY (slot);


--
-- Name: event_log event_log_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.event_log
    ADD CONSTRAINT event_log_pkey PRIMARY KEY (session_key, id);


--
-- Name: lango_schema lango_schema_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.lango_schema
    ADD CONSTRAINT lango_schema_pkey PRIMARY KEY (version);


--
-- Name: messages messages_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (session_key, seq);


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
-- Name: session_lineage session_lineage_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.session_lineage
    ADD CONSTRAINT session_lineage_pkey PRIMARY KEY (session_key, ordinal);


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
-- Name: open_calls_expiry; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX open_calls_expiry ON frozen_schema.open_calls USING btree (expires_at) WHERE (expires_at IS NOT NULL);


--
-- Name: search_messages_words; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX search_messages_words ON frozen_schema.search_messages USING gin (words);


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
-- Name: user_facts_session; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE INDEX user_facts_session ON frozen_schema.user_facts USING btree (session_key);


--
-- PostgreSQL database dump complete
--


