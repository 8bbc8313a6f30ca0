"""Pages of benchmarks: results as JSON in benchmarks/results/, and the tables and charts that are made of them."""
