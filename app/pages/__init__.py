"""The pages: each is a function from a Scope to blocks, which every face draws. No page knows a face."""
