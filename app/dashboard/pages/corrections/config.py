"""A correction in a trainer's own syntax, to copy, or the reason why the trainer cannot express it."""

from collections.abc import Sequence

import streamlit as st

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.correction_effects import TrainerCorrection
from ratioscope.metrics.corrections.correction import Correction, WeightedGap
from ratioscope.metrics.dialects import NAMES, dialect
from ratioscope.metrics.dialects.translation import correction_in, own_written, same_effect, written
from ratioscope.record import GAPS

from ....browser.code import code
from ....presentation.escape import streamlit_label as label
from .entries import Entry

LANGUAGES = {
    "verl": "yaml",
    "slime": "bash",
    "skyrl": "ini",
    "nemo_rl": "yaml",
    "fireworks": "python",
    "areal": "yaml",
    "trl": "python",
}
WHERE = {
    "verl": "in the trainer's configuration",
    "slime": "on the command line, and in the file that it names",
    "skyrl": "as overrides on the command line",
    "nemo_rl": "in the run's configuration",
    "fireworks": "in the recipe",
    "areal": "in the experiment's configuration",
    "trl": "where the trainer is made",
}

OF_READING = (
    "A trainer has no log-probs of a reading at hand: these settings are of the same correction on mismatch. The effects are"
    " those of weights from {gap}."
)


def trainer_config(entry: Entry, gap: WeightedGap, trainer_of_run: str) -> None:
    """Shows the chosen correction in the syntax of the chosen trainer, by default the run's."""
    own = entry.made.dialect if isinstance(entry.made, TrainerCorrection) else _named(trainer_of_run)
    if st.session_state.get("trainer") not in NAMES and st.query_params.get("trainer") not in NAMES:
        st.session_state["trainer"] = own
    trainer = st.segmented_control(
        "trainer", list(NAMES), key="trainer", bind="query-params", label_visibility="collapsed", wrap=True
    )
    name = trainer if trainer in NAMES else own
    text, notes = syntax(entry, gap, name)
    if text is None:
        st.caption(f":material/block: {name} cannot express {label(entry.name, 100)}: {label(notes[0], 400)}")
        return
    if gap not in GAPS:
        st.caption(f":material/info: {OF_READING.format(gap=label(gap))}")
    st.caption(f"{label(entry.name, 120)}, for {name} {dialect(name).VERSIONS[0]}, {WHERE[name]}")
    code(text, "config", language=LANGUAGES[name])
    for note in notes:
        st.caption(f":material/info: {label(note, 400)}")


def syntax(entry: Entry, gap: WeightedGap, trainer: str) -> tuple[str | None, Sequence[str]]:
    """(the correction in the trainer's syntax, notes on it); (None, [reason why the trainer cannot express it])."""
    made = entry.correction(gap if gap in GAPS else "mismatch")
    try:
        if isinstance(made, TrainerCorrection) and made.dialect == trainer:
            text = own_written(trainer, made.config)
            return _or_nothing(text), [str(note) for note in dialect(trainer).parse(made.config).warnings]
        correction = made if isinstance(made, Correction) else correction_in(made.dialect, made.config)
        text = written(trainer, correction)
    except RatioscopeError as error:
        return None, [str(error)]
    notes = [] if same_effect(trainer, correction) else [NEARLY]
    return _or_nothing(text), notes


NEARLY = (
    "The trainer applies these bounds in its own way (it limits log-ratios before exponentiation, or inverts a band), so the "
    "effect may differ from the one shown at extreme weights."
)


def _or_nothing(text: str) -> str:
    return text if text.strip() else "# nothing to set: this is the default of the trainer"


def _named(trainer: str) -> str:
    """The dialect whose name the run's trainer begins with, else the first dialect."""
    plain = trainer.lower().replace("-", "_")
    return next((name for name in NAMES if plain.startswith(name)), NAMES[0])
