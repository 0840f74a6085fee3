"""The schedules of users, and the loop that runs what is due."""
