"""Darknet itself, for comparison."""
