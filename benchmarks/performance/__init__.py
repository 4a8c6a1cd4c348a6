"""The cost of ratioscope beside that of others and the limit of the machine: the measurements of docs/develop/performance.md."""
