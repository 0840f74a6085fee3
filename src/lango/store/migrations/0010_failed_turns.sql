-- The turns of a session that ended without an answer, found by the message that started each.
CREATE INDEX turns_without_answer ON turns (session_key, first_seq)
    WHERE status IN ('failed', 'cancelled', 'interrupted');
