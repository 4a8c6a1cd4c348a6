"""A GRPO trainer with two engines, in a hundred lines, on a CPU. `python mytrainer.py RUN_DIR` records it.

The engines sample in bfloat16, the trainer scores in float32, and the second engine gets its weights only every second step. The
run shows both: a small mismatch everywhere, and a lag of one update on one replica.
"""

import copy
import sys

import torch

import ratioscope

VOCABULARY, PROMPTS, SAMPLES, LENGTH, STEPS = 16, 4, 4, 8, 6
END = 0


class Model(torch.nn.Module):
    """Logits of the next token from the last two."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 32)
        self.hidden = torch.nn.Linear(64, 64)
        self.head = torch.nn.Linear(64, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        before = torch.nn.functional.pad(ids, (1, 0))[:, :-1]
        both = torch.cat([self.embedding(ids), self.embedding(before)], -1)
        logits: torch.Tensor = self.head(torch.tanh(self.hidden(both)))
        return logits


class Engine:
    """Samples with a bfloat16 copy of the weights, and tells the log-prob of each token."""

    def __init__(self, name: str, model: Model) -> None:
        self.name, self.version = name, 0
        self.model = copy.deepcopy(model).to(torch.bfloat16)

    def load(self, model: Model, version: int) -> None:
        self.model.load_state_dict(model.state_dict())
        self.version = version

    @torch.no_grad()
    def sample(self, prompts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ids, logprobs = prompts, []
        for _ in range(LENGTH):
            distribution = torch.log_softmax(self.model(ids)[:, -1].float(), -1)
            token = torch.multinomial(distribution.exp(), 1)
            logprobs.append(distribution.gather(1, token))
            ids = torch.cat([ids, token], 1)
        return ids, torch.cat(logprobs, 1)


def scored(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """The trainer's log-probs of the sampled tokens, (B, LENGTH)."""
    distribution = torch.log_softmax(model(ids)[:, -LENGTH - 1 : -1], -1)
    return distribution.gather(2, ids[:, -LENGTH:, None])[..., 0]


def train(run_dir: str) -> None:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    engines = [Engine("a", model), Engine("b", model)]
    collector = ratioscope.Collector(run_dir, trainer="mytrainer", config={"lr": 1e-2, "samples": SAMPLES})
    for step in range(1, STEPS + 1):
        updates = step - 1
        for engine in engines:
            if engine.name == "a" or updates % 2 == 0:  # the second engine is loaded every second step
                engine.load(model, updates)
                collector.event("weight_sync", step, f"engine {engine.name} has the weights after {updates} updates")

        prompts = torch.randint(1, VOCABULARY, (PROMPTS, 3)).repeat_interleave(SAMPLES, 0)
        parts = [engine.sample(half) for engine, half in zip(engines, prompts.chunk(2), strict=True)]
        ids, rollout = (torch.cat(both) for both in zip(*parts, strict=True))
        sampled = ids[:, -LENGTH:]
        mask = (sampled == END).cumsum(1) - (sampled == END).int() == 0  # up to the first end token
        names = [f"{step}-{row}" for row in range(len(ids))]
        replicas = [engine.name for engine, (part, _) in zip(engines, parts, strict=True) for _ in part]
        versions = [engine.version for engine, (part, _) in zip(engines, parts, strict=True) for _ in part]

        rewards = ((sampled % 2 == 0) & mask).sum(1) / mask.sum(1)
        groups = rewards.view(PROMPTS, SAMPLES)
        advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-6)).flatten()

        old = scored(model, ids).detach()
        current = scored(model, ids)
        ratio = (current - old).exp() * (old - rollout).exp().clamp(max=2.0)  # truncated importance sampling
        loss = -(ratio * advantages[:, None] * mask).sum() / mask.sum()
        optimizer.zero_grad()
        loss.backward()
        collector.log(  # one call, at the place that has all three log-probs
            step=step, minibatch=0, rollout_logprobs=rollout, old_logprobs=old, current_logprobs=current, mask=mask,
            token_ids=sampled, prompt_ids=list(ids[:, :-LENGTH]), sequence_ids=names, rewards=rewards, advantages=advantages,
            group_ids=[f"{step}-{row // SAMPLES}" for row in range(len(ids))], replica=replicas, rollout_versions=versions,
            trainer_version=updates,
        )  # fmt: skip
        optimizer.step()
        collector.flush(0)  # hands the step to the writer, without waiting
    collector.close()


if __name__ == "__main__":
    train(sys.argv[1])
