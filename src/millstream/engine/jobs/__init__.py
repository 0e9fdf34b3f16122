"""What an engine knows of its jobs: their lifecycle, store, status, packages and switches."""
