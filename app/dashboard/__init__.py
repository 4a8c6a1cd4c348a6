"""The dashboard: its Streamlit pages, the server they run in, and the model they read."""
