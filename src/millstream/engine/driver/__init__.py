"""The driver process: the commands it takes, the reports it gives, its main loop, and how an engine starts it."""
