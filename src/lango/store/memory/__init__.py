"""Store observations of sessions and facts about users."""
