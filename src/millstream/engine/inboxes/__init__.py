"""The inboxes of all jobs on an engine, and what comes into them: links, HTTP, runtimes, other engines."""
