"""The arguments of one `log`: copied to host memory, checked, turned into rows of the Record."""
