"""Record the events of turns and stream them to any number of clients."""
