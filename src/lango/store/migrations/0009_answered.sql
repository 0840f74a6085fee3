-- A turn whose process is gone after its last event was stored has its answer: it is done, not interrupted.

ALTER TABLE turns ADD COLUMN answered BIGINT NOT NULL DEFAULT 0;  -- 1: nothing comes after what is stored of it
