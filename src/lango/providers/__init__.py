"""Models behind one small protocol. Each vendor's SDK is imported when its provider is first used."""
