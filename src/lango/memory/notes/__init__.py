"""Notes on messages: how a model is asked for them, how they are read and checked, and which of them still hold."""
