"""The report of a run: its data assembled once (data.py), then drawn as HTML, Markdown or JSON, which compute nothing."""
