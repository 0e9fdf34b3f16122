"""Replacing the running version of a flow: what changes, where the cut is, who owns a result, which step comes next."""
