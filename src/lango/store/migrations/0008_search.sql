-- What people search. The search itself brings it up to date, so that appending costs nothing: see lango.store.search.

-- How far a session's messages are in the index.
CREATE TABLE search_progress (
    session_key BIGINT PRIMARY KEY,
    seq         BIGINT NOT NULL,
    title       TEXT                                      -- the title that is in the index
);

CREATE TABLE search_messages (
    /*sqlite id INTEGER PRIMARY KEY,*/
    session_key BIGINT NOT NULL,
    seq         BIGINT NOT NULL,                          -- 0: the title
    size        BIGINT NOT NULL,                          -- of how many different words, roughly: in a short message a word means more
    /*postgres words TSVECTOR NOT NULL,*/
    /*sqlite UNIQUE (session_key, seq)*/
    /*postgres PRIMARY KEY (session_key, seq)*/
);

-- The words are made by us (lango.store.words), the same for both databases: neither splits or folds them again.
/*sqlite CREATE VIRTUAL TABLE search_words USING fts5 (owner, words, content = '', contentless_delete = 1, detail = column, tokenize = 'ascii')*/;
/*sqlite CREATE TRIGGER search_forgets AFTER DELETE ON search_messages BEGIN DELETE FROM search_words WHERE rowid = old.id; END*/;
/*postgres CREATE INDEX search_messages_words ON search_messages USING GIN (words)*/;
