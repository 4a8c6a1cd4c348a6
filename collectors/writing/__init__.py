"""The way of rows to disk: queue, writer process or thread, token files, statistics segments, commit log."""
