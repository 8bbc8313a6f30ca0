"""What several commands share: options, results, tables, and how models are loaded."""
