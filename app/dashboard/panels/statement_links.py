"""The row of statements below the verdict: each is a link to the page that shows it."""

import streamlit as st

from ratioscope.ingest.analysis.growth_rate import doubling_of

from ...pages.view import View
from ...presentation.escape import streamlit_label as label
from ...presentation.statements import statements
from .links import go_to


def statement_links(view: View, gap: str) -> None:
    """Now, the worst, the trend of the gap, the cause and the checks."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="statements"):
        found = statements(view.judged_verdict(), view.of(doubling_of, gap), has_tokens=not view.run.no_tokens)
        for statement in found:
            st.button(
                f"**{statement.name}** {label(statement.words, 300)} ›",
                key=f"to_{statement.name}",
                type="tertiary",
                help=label(statement.help, 1200) or None,
                on_click=go_to,
                args=(statement.page,),
                kwargs=dict(statement.choices),
            )
