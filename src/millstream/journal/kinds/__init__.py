"""The kinds of journals: what each is kept in. Today one, `files`."""
