"""The script that Streamlit runs on every interaction.

It is not beside the folder `pages`: Streamlit takes such a folder for scripts of its own. Streamlit runs it outside its package,
so it names the package in full.
"""

from ratioscope.app.dashboard import shell

shell.main()
