"""What all parts share: files, numbers as options, optional packages, progress, signals."""
