"""Pictures of graphs: the layout of nodes, the lines between them, and their style."""
