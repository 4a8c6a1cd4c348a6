"""What tests share: runs written to disk, oracles, servers and browsers, small trainers."""
