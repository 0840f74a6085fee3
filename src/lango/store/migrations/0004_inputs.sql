-- Workflows ask a person for input: such a request is an open call, which is answered or expires like an approval request.

ALTER TABLE open_calls ADD COLUMN input_request BIGINT NOT NULL DEFAULT 0;   -- 1: the call requests a value from a person
