"""Shared by several commands: options, results, tables, and loading of models."""
