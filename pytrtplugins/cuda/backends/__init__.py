"""Where a kernel runs: through CuPy or PyCUDA on a GPU, or as C++ on the host."""
