"""Modules with the names of others, on locks of tenure."""
