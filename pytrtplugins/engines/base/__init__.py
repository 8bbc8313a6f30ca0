"""Base classes of all engines: Engine, ExecutionContext, asynchronous runs, engine files, selection."""
