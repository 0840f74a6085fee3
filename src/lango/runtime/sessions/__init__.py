"""Read and change sessions: what they hold, their options and state, what they used, exports and documents."""
