"""Which metrics stand on the first page and in the report, per gap."""

CARDS = {
    "mismatch": ("kl_k3", "abs_log_ratio", "chi2_token", "ess_token", "ess_sequence", "ppl_ratio"),
    "total": ("kl_k3", "abs_log_ratio", "chi2_token", "ess_token", "ess_sequence", "ppl_ratio"),
    "drift": ("ppo_kl", "kl_k2", "abs_log_ratio", "max_abs_log_ratio", "share_outside_0.8_1.2", "prob_diff"),
}
_SAMPLED_CHARTS = (
    "kl_k3", "kl_direct", "abs_log_ratio", "max_abs_log_ratio", "chi2_token", "ess_token", "share_outside_0.5_2",
    "log_mean_square_weight_sequence", "ess_sequence", "ppl_ratio", "mean_weight_token", "pareto_k_token", "logprob_correlation",
    "surprisal_gap",
)  # fmt: skip
CHARTS = {
    "mismatch": _SAMPLED_CHARTS,
    "total": _SAMPLED_CHARTS,
    "drift": (
        "ppo_kl",
        "kl_k2",
        "abs_log_ratio",
        "max_abs_log_ratio",
        "share_outside_0.8_1.2",
        "prob_diff",
        "ppl_ratio",
    ),
}
"""The last ones say whether the first ones can be believed."""
