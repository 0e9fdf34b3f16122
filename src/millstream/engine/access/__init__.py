"""Who may do what on an engine, and who did it: permissions, tokens, the audit log."""
