"""Traces that verifiers' own code writes, annotated as a trainer annotates them, are imported to what they hold.

Needs verifiers 0.4 on PYTHONPATH, its graph module alone: pip install --no-deps verifiers. Skipped where it is not importable.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.imported import imported, rejected

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]
