"""The inboxes of an engine, and what feeds them: links, HTTP, runtimes, other engines."""
