"""Nexmark: an auction site's events, and questions about them that many streaming systems have answered."""
