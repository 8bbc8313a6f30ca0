"""Where a kernel runs: on a GPU beside CuPy or PyCUDA, or as C++ on the host."""
