"""Other packages' ways to do what ratioscope does. Each runs in a process of its own, which need not have ratioscope."""
