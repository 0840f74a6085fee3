"""Accept what brings turns in: submissions of clients, schedules and triggers."""
