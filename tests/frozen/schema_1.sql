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
-- Name: app_states; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.app_states (
    app_name text NOT NULL,
    state text NOT NULL
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
-- Name: sessions; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.sessions (
    session_key bigint NOT NULL,
    app_name text NOT NULL,
    user_id text NOT NULL,
    id text NOT NULL,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    revision bigint DEFAULT 0 NOT NULL,
    last_seq bigint DEFAULT 0 NOT NULL,
    user_seq bigint DEFAULT 0 NOT NULL,
    total_tokens bigint DEFAULT 0 NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    rewinds text
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
   FROM (frozen_schema.messages m
     JOIN frozen_schema.sessions s ON ((s.session_key = m.session_key)))
  ORDER BY s.session_key, m.seq;


--
-- Name: lango_schema; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.lango_schema (
    version bigint NOT NULL,
    applied_at text NOT NULL
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
-- Name: session_states; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.session_states (
    session_key bigint NOT NULL,
    state text NOT NULL
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
-- Name: turns; Type: TABLE; Schema: frozen_schema; Owner: -
--

CREATE TABLE frozen_schema.turns (
    session_key bigint NOT NULL,
    turn bigint NOT NULL,
    status text NOT NULL,
    epoch bigint,
    idempotency_key text,
    owner text,
    lease_until double precision,
    created_at double precision NOT NULL,
    started_at double precision,
    ended_at double precision,
    extra text,
    CONSTRAINT turns_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'running'::text, 'done'::text, 'failed'::text, 'cancelled'::text, 'interrupted'::text])))
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
-- Data for Name: app_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.app_states VALUES ('frozen app', '{"count":1}');


--
-- Data for Name: lango_schema; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.lango_schema VALUES (1, '2026-11-15 09:46:49.16277+00');


--
-- Data for Name: messages; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.messages VALUES (359736284, 1, 'user', 'user', 'Hello, 漢字 and 😀', NULL, 11, 11, 1700000000.5, 'event-0', 'e-0', NULL, NULL, NULL);
INSERT INTO frozen_schema.messages VALUES (359736284, 2, 'assistant', 'helper', 'One moment.', '[{"id":"c1","name":"look_up","input":{"word":"naïve","depth":2,"ratio":0.1}},{"id":"c2","name":"look_up","input":{}}]', 47, 58, 1700000001.5, 'event-1', 'e-0', NULL, NULL, '{"finish_reason":"STOP","usage_metadata":{"candidates_token_count":34,"prompt_token_count":12},"long_running_tool_ids":["c2"],"parts":[{"text":"let me think","thought":true},11,{"call":{},"thought_signature":{"$lango:bytes":"/wBzaWc="}},"call"]}');
INSERT INTO frozen_schema.messages VALUES (359736284, 3, 'tool', 'helper', '{"found":[1,null]}', '[{"id":"c1","name":"look_up","output":{"found":[1,null]}}]', 20, 78, 1700000002.5, 'event-2', 'e-0', NULL, '{"words":{"naïve":1},"user:lang":"fr","app:count":1}', NULL);
INSERT INTO frozen_schema.messages VALUES (359736284, 4, 'assistant', 'helper', 'It means innocent.', NULL, 8, 86, 1700000004.5, 'event-4', 'e-1', NULL, NULL, '{"branch":"a.b"}');
INSERT INTO frozen_schema.messages VALUES (359736284, 5, 'user', 'user', 'nul � and half � a character', NULL, 1112, 1198, 1700000005.5, 'event-5', 'e-1', NULL, NULL, '{"custom_metadata":{"from":"a test"},"parts":[{"text":"nul \u0000 and half \ud800 a character"},{"inline_data":{"data":{"$lango:bytes":"iVBORwA="},"mime_type":"image/png"}}]}');
INSERT INTO frozen_schema.messages VALUES (359736284, 6, 'event', 'helper', '', NULL, 0, 1198, 1700000006.5, 'event-6', 'e-2', NULL, NULL, '{"error_code":"SAFETY","error_message":"blocked"}');
INSERT INTO frozen_schema.messages VALUES (359736284, 7, 'event', 'helper', '', NULL, 0, 1198, 1700000007.5, 'event-7', 'e-2', NULL, NULL, '{"actions":{"compaction":{"start_timestamp":1.0,"end_timestamp":2.0,"compacted_content":{"parts":[{"text":"so far"}],"role":"model"}}}}');


--
-- Data for Name: open_calls; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.open_calls VALUES (359736284, 'c2', 2, 1);


--
-- Data for Name: session_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.session_states VALUES (359736284, '{"began":true,"words":{"naïve":1},"only":"state","gone":null}');


--
-- Data for Name: sessions; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.sessions VALUES (359736284, 'frozen app', 'Ada', 'one of everything', 1794736009.3387, 1700000007.5, 8, 7, 5, 1198, 0, NULL);
INSERT INTO frozen_schema.sessions VALUES (1234517190, 'frozen app', 'Bob', 'empty', 1794736010.6893637, 1794736010.6893637, 0, 0, 0, 0, 0, NULL);


--
-- Data for Name: state_events; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.state_events VALUES (359736284, 0, 0, '', 1794736009.3387, '{"began":true,"user:name":"Ada"}', NULL);
INSERT INTO frozen_schema.state_events VALUES (359736284, 3, 4, 'event-3', 1700000003.5, '{"only":"state","gone":null}', '{"invocation_id":"e-1","author":"helper"}');


--
-- Data for Name: turns; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--



--
-- Data for Name: user_states; Type: TABLE DATA; Schema: frozen_schema; Owner: -
--

INSERT INTO frozen_schema.user_states VALUES ('frozen app', 'Ada', '{"name":"Ada","lang":"fr"}');


--
-- Name: app_states app_states_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.app_states
    ADD CONSTRAINT app_states_pkey PRIMARY KEY (app_name);


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
-- Name: open_calls open_calls_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.open_calls
    ADD CONSTRAINT open_calls_pkey PRIMARY KEY (session_key, call_id);


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
-- Name: state_events state_events_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.state_events
    ADD CONSTRAINT state_events_pkey PRIMARY KEY (session_key, seq, revision);


--
-- Name: turns turns_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.turns
    ADD CONSTRAINT turns_pkey PRIMARY KEY (session_key, turn);


--
-- Name: user_states user_states_pkey; Type: CONSTRAINT; Schema: frozen_schema; Owner: -
--

ALTER TABLE ONLY frozen_schema.user_states
    ADD CONSTRAINT user_states_pkey PRIMARY KEY (app_name, user_id);


--
-- Name: messages_event; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX messages_event ON frozen_schema.messages USING btree (session_key, event_id);


--
-- Name: state_events_event; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX state_events_event ON frozen_schema.state_events USING btree (session_key, event_id);


--
-- Name: turns_idempotency; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX turns_idempotency ON frozen_schema.turns USING btree (session_key, idempotency_key) WHERE (idempotency_key IS NOT NULL);


--
-- Name: turns_running; Type: INDEX; Schema: frozen_schema; Owner: -
--

CREATE UNIQUE INDEX turns_running ON frozen_schema.turns USING btree (session_key) WHERE (status = 'running'::text);


--
-- PostgreSQL database dump complete
--


