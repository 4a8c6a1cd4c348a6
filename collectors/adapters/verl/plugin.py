"""What verl loads, in every process, as it is imported: verl loads an entry point and never calls it, so this file's import acts.

The one registration by import in ratioscope. It does nothing unless RATIOSCOPE_RUN is set; VERL_USE_EXTERNAL_PLUGINS=none
keeps verl from loading it.
"""

from ...environment import install

install()
