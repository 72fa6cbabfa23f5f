"""Day-2 operations: what a person or a pipeline does to a deployed cluster."""
