"""Forms of a model that OpenVINO gets right, each in place of one that it gets wrong."""
