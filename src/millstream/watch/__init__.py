"""Watchers: patterns at the edge of a network, on devices that keep each other's runs."""
