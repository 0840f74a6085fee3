"""Store the addresses that are notified when turns end, and what is still to be sent to them."""
