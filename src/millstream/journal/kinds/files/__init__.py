"""Journals kept in folders of files (`layout.py` shows what lies where)."""
