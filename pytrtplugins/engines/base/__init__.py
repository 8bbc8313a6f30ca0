"""The contract of all engines: Engine, ExecutionContext, asynchronous runs, engine files, selection."""
