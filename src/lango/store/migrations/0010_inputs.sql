-- Where a client resends its conversation and names no session, the session is found by the user's newest message.

ALTER TABLE sessions ADD COLUMN input_hash BIGINT;        -- of the text of the newest turn's message; see store/carried.py

CREATE INDEX sessions_input ON sessions (app_name, user_id, input_hash) WHERE input_hash IS NOT NULL;
