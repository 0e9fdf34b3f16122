"""Actions: programs in any language that read and write frames, and the runtimes that host them."""
