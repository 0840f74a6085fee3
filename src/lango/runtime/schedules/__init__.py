"""The schedules of users, and the runs of those that are due."""
