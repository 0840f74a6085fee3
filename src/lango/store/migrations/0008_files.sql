-- Files of queued messages, and of messages that an earlier version stored with their bytes in the row.

-- The files of a message while its turn is queued. When the turn starts, they become the message's.
CREATE TABLE turn_contents (
    session_key BIGINT NOT NULL,
    turn        BIGINT NOT NULL,
    hash        TEXT NOT NULL,
    PRIMARY KEY (session_key, turn, hash)
) /*sqlite WITHOUT ROWID*/;

-- Messages whose rows hold the bytes of files in base64. They are readable as they are, and are moved to chunks one by
-- one while the store is in use, so that the upgrade of a large store does not wait for it.
CREATE TABLE inline_files (
    session_key BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    PRIMARY KEY (session_key, seq)
) /*sqlite WITHOUT ROWID*/;

INSERT INTO inline_files (session_key, seq)
SELECT session_key, seq FROM messages WHERE LENGTH(extra) > 1000 AND extra LIKE '%"$lango:bytes"%';
