"""Helpers for all parts: files, numbers as options, optional packages, progress, signals."""
