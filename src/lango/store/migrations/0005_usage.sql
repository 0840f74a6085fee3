-- What a turn took, where people and pictures can sum it without reading `extra`.

ALTER TABLE turns ADD COLUMN first_seq BIGINT;            -- the message of the user; null before it runs
ALTER TABLE turns ADD COLUMN input_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN output_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN model_calls BIGINT NOT NULL DEFAULT 0;
ALTER TABLE turns ADD COLUMN cost_usd DOUBLE PRECISION;   -- null: no price is known

-- The tools of a turn, however many the session has run.
CREATE INDEX effects_epoch ON effects (session_key, epoch);
