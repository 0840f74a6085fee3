"""Store the addresses that are told of the ends of turns, and what is still to be sent to them."""
