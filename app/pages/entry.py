"""The script that Streamlit runs on every interaction.

It lies in this folder because Streamlit takes a folder `pages` beside its script for pages that are scripts themselves.
Streamlit runs it outside its package, so it names the package in full.
"""

from ratioscope.app import dashboard

dashboard.main()
