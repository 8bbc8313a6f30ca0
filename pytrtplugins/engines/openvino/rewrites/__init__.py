"""Rewrites of models that avoid OpenVINO's errors."""
