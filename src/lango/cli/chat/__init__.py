"""`lango chat`: `loop` reads messages, `slash_commands` runs commands, `chat_session` runs turns."""
