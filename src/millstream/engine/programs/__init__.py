"""The programs that an engine keeps for actions."""
