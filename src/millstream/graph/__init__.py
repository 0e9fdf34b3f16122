"""Pictures of graphs: where nodes go, and the lines between them."""
