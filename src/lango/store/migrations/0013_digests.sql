-- An idempotency key is that of one message, also of one that was taken back: nothing else is left of such a message.

ALTER TABLE turns ADD COLUMN digest TEXT;                 -- sha-256 of what the message says, where a key came with it
