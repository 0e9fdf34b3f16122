"""The client of engines: one, or several that are a cluster."""

from millstream.cluster.client import DEFAULT, EngineClient
from millstream.cluster.cluster import Cluster, merged

__all__ = ["DEFAULT", "Cluster", "EngineClient", "merged"]
