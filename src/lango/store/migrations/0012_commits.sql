-- The newest transaction of each connection to PostgreSQL, so that a lost answer to a COMMIT can be asked for again.

/*postgres CREATE TABLE commits (slot TEXT PRIMARY KEY, number BIGINT NOT NULL, used_at TIMESTAMPTZ NOT NULL)*/;
