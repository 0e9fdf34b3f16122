"""From a flow to groups, as data: what runs as one query, how far it reads, what it means."""
