"""Replacing the running version of a flow: the changes, the cut, the ownership, the steps."""
