"""Top-k: the likeliest tokens of a place beside the sampled one, with the log-probs of each policy at them. Optional.

They lie in files of their own, a row per sequence and minibatch, because they take some twenty times the bytes of sampled tokens.
`topk_counts` has a number for each token of the row, the other lists one value for each of these tokens' alternatives, in a row.
"""

from functools import cache

import pyarrow as pa

from .layout import MOST_TOPK as MOST_TOPK
from .record import FIELDS, POLICIES

TOPK = "top-k"
"""The name under which collectors and readers carry top-k beside readings. No reading can have it, for its hyphen."""
COUNTS, IDS = "topk_counts", "topk_ids"
LOGPROBS = tuple(f"{policy}_topk_logprobs" for policy in POLICIES)
"""Log-probs at the ids, nats; NaN where a policy has none there, null where the row has none of the policy."""
ARGUMENTS = (IDS, *LOGPROBS)
"""The arguments of `Collector.log`."""


@cache
def topk_schema() -> pa.Schema:
    """The schema of a file of top-k: the key of a sequence, and its lists. The last two columns may be absent."""
    kinds = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string()}
    key = [(name, kinds[FIELDS[name].kind]) for name in ("attempt", "step", "minibatch", "sequence_id")]
    lists = [(COUNTS, pa.int16()), (IDS, pa.int32()), *((name, pa.float32()) for name in LOGPROBS)]
    more = [("positions", pa.list_(pa.int32())), ("inclusion_probability", pa.float64())]
    return pa.schema([*key, *((name, pa.list_(kind)) for name, kind in lists), *more])
