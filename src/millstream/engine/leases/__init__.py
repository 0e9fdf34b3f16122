"""Which engine runs which job, if several have the same coordination: leases, and who is next."""
