"""The web page: what a visitor sees of the engine. The engine imports nothing from here."""
