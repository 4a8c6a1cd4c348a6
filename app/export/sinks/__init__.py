"""The metrics of a run in the loggers that people look at beside W&B: in one form for all of them."""
