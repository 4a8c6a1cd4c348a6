"""What ratioscope costs, beside what others cost and beside what the machine allows: the measurements of docs/performance.md."""
