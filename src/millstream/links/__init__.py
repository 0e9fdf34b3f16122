"""Links: how batches get from one process to a journal of another, each row once."""
