"""The engine: jobs that are deployed, looked at, drained, undeployed, and go on after any crash."""
