-- Turns go on after a crash: a lease belongs to a process, and a turn may be run by several of them, one after the other.

-- The processes that hold leases. A heartbeat grows while its process lives; no clocks are compared.
CREATE TABLE owners (
    owner     TEXT PRIMARY KEY,
    heartbeat BIGINT NOT NULL
) /*sqlite WITHOUT ROWID*/;

ALTER TABLE turns DROP COLUMN heartbeat;
ALTER TABLE observer_leases DROP COLUMN heartbeat;

ALTER TABLE turns ADD COLUMN first_epoch BIGINT;                    -- the epoch of its first run, which its journal entries keep
UPDATE turns SET first_epoch = epoch;
ALTER TABLE turns ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;    -- how often it went on after a crash or a failure
ALTER TABLE turns ADD COLUMN resumptions TEXT;                      -- JSON [{"at", "reason"}, ...]: when and why it went on
ALTER TABLE turns ADD COLUMN request TEXT;                          -- JSON of what came with its input: client tools, who approved
ALTER TABLE tool_journal ADD COLUMN actions TEXT;                   -- JSON of what the tool did besides its result
