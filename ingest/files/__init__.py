"""Opens the files of a run and of the cache: follows no link, bounds sizes before decoding, sets damaged files aside."""
