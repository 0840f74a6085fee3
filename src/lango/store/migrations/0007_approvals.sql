-- Questions for approval expire, and the journal says who answered them.

-- The one clock that every process on this database shares.
CREATE VIEW database_clock AS
SELECT /*sqlite unixepoch('subsec')*/ /*postgres CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)*/ AS now;

ALTER TABLE open_calls ADD COLUMN asks_about TEXT;                -- of a question for approval: the call that it is about
ALTER TABLE open_calls ADD COLUMN about_seq BIGINT;               -- the message that made that call
ALTER TABLE open_calls ADD COLUMN expires_at DOUBLE PRECISION;    -- by the database's clock
ALTER TABLE open_calls ADD COLUMN answered_at DOUBLE PRECISION;   -- an answer came in time, and waits for its turn

CREATE INDEX open_calls_expiry ON open_calls (expires_at) WHERE expires_at IS NOT NULL;

ALTER TABLE effects ADD COLUMN approved BIGINT;                   -- 1: yes, 0: no, NULL: nobody needed to be asked
ALTER TABLE effects ADD COLUMN approved_by TEXT;                  -- the user who answered, or policy
ALTER TABLE effects ADD COLUMN approved_at DOUBLE PRECISION;

DROP VIEW history_effects;

CREATE VIEW history_effects AS
SELECT session_key, session_key AS source_key, call_id, epoch, name, effect, status, arguments, intended_at, started_at,
       finished_at, result, whole, approved, approved_by, approved_at
FROM effects
UNION ALL
SELECT p.session_key, p.source_key, e.call_id, e.epoch, e.name, e.effect, e.status, e.arguments, e.intended_at,
       e.started_at, e.finished_at, e.result, e.whole, e.approved, e.approved_by, e.approved_at
FROM session_pasts p CROSS JOIN effects e WHERE e.session_key = p.source_key AND e.epoch <= p.last_epoch;
