"""The driver process: its commands and reports, its main loop, and how an engine starts it."""
