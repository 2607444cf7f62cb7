"""The trainer on a real buffer and a real, tiny model: it learns, counts honestly, and goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.config import RunConfig
from harness.envs.errors import UserError
from harness.rl.buffer.sql import SqlBuffer
from harness.rl.experience import Example, Experience, ExperienceGroup
from harness.rl.trainer.batch import Batch
from harness.rl.trainer.trainer import Trainer, chained

Make = Callable[..., Trainer]
ECHO = {"env": {"name": "echo"}}
GROUPS = 5
"""Of a batch; `fill` makes up for what a test leaves out with groups of which nothing came."""


@pytest.fixture(scope="module")
def model(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model"))  # type: ignore[no-any-return]


@pytest.fixture
def make(tmp_path: Path, model: Path) -> Iterator[Make]:
    """Trainers of one run: same checkpoints, same buffer."""
    made: list[Trainer] = []

    def maker(*, base: Path = model, **sections: Any) -> Trainer:
        plan = RunConfig.model_validate({**ECHO, "explorer": {"groups": GROUPS}, **sections})
        made.append(Trainer(plan, base, tmp_path / "checkpoints", url(tmp_path)))
        return made[-1]

    yield maker
    for trainer in made:
        trainer.close()


def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'buffer.db'}"


@pytest.fixture
def fill(tmp_path: Path, tiny: Any) -> Iterator[Callable[..., None]]:
    """Store one group for each list of rewards, and empty ones up to a batch."""
    buffer = SqlBuffer(url(tmp_path))

    def filler(step: int, *rewards: list[float], dropped: dict[str, int] | None = None, version: int = 0) -> None:
        rng = np.random.default_rng(step)
        groups = []
        for g, of_attempts in enumerate([*rewards, *[[]] * (GROUPS - len(rewards))]):
            name = f"{step}/{g}"
            experiences = [
                replace(
                    tiny.experience(rng, int(rng.integers(4, 30)), i, reward=r, group=name),
                    advantages=None,
                    versions=(version, version + i),
                )
                for i, r in enumerate(of_attempts)
            ]
            groups.append(
                ExperienceGroup(
                    group=name,
                    task_key="echo/train/0",
                    experiences=tuple(experiences),
                    dropped=(dropped or {}) if g < len(rewards) else {},
                )
            )
        buffer.put(groups)

    yield filler
    buffer.close()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(w, b[n]) for n, w in a.items())


def test_groups_that_teach_nothing_are_left_out_and_counted(make: Make, fill: Callable[..., None]) -> None:
    fill(0, [1.0, 0.0, 0.0], [1.0, 1.0], [0.0], [], dropped={"timeout": 2, "env_error": 1})
    trainer = make()
    figures = trainer.train(0)
    assert {n: figures[f"groups_{n}"] for n in ("used", "equal", "empty")} == {"used": 1, "equal": 2, "empty": 2}
    assert figures["reward"] == figures["success"] == pytest.approx(3 / 6)
    assert figures["attempts"] == 6
    assert figures["attempts_dropped"] == 12
    assert (figures["dropped/timeout"], figures["dropped/env_error"]) == (8, 4)
    assert trainer._buffer.counts()["trained"] == 6
    assert figures["nothing_to_train"] == 0.0


def test_equal_groups_do_not_dilute_the_loss(make: Make, fill: Callable[..., None]) -> None:
    """The same useful group with and without useless ones beside it gives the same weights."""
    fill(0, [1.0, 0.0, 0.5])
    alone = make()
    alone.train(0)
    stored = alone._buffer
    stored.rewind(0)
    groups = stored.take(0, GROUPS, 0)
    assert groups is not None
    other = make()
    flat = [replace(e, reward=0.5, key=f"x{e.key}") for e in groups[0].experiences]
    judged = [ExperienceGroup(group="x", task_key="t", experiences=tuple(flat)), *groups]
    other._buffer = Given(judged)  # type: ignore[assignment]
    assert other.train(0)["groups_equal"] == 1
    assert same(alone.snapshot(), other.snapshot())


class Given:
    """A buffer that always hands out the same groups."""

    def __init__(self, groups: list[ExperienceGroup]) -> None:
        self.groups = groups
        self.acknowledged: list[int] = []

    def take(self, step: int, count: int, version: int) -> list[ExperienceGroup]:
        return self.groups

    def acknowledge(self, step: int) -> None:
        self.acknowledged.append(step)

    def close(self) -> None:
        pass


def test_a_batch_without_anything_to_learn_changes_nothing(make: Make, fill: Callable[..., None]) -> None:
    fill(0, [1.0, 1.0], [0.0, 0.0])
    fill(1, [], dropped={"timeout": 4})
    trainer = make()
    before = trainer.snapshot()
    assert trainer.train(0)["nothing_to_train"] == 1.0
    figures = trainer.train(1)
    assert figures["nothing_to_train"] == 1.0
    assert np.isnan(figures["reward"])
    assert trainer.version == 2
    assert same(before, trainer.snapshot())


def test_steps_are_taken_in_order_and_once(make: Make, fill: Callable[..., None]) -> None:
    fill(0, [1.0, 0.0])
    trainer = make()
    with pytest.raises(ValueError, match="next"):
        trainer.train(1)
    assert trainer.train(0) is not None
    assert trainer.train(1) is None
    with pytest.raises(ValueError, match="1 training steps"):
        trainer.save(2)


def test_updates_share_out_the_groups_each_once(make: Make, fill: Callable[..., None]) -> None:
    rewards = [[1.0, 0.0, 0.0]] * 5
    fill(0, *rewards)
    trainer = make(trainer={"updates": 3})
    groups = trainer._buffer.take(0, GROUPS, 0)
    assert groups is not None
    figures = trainer.train(0)
    assert figures["updates"] == 3
    assert figures["trained_tokens"] == sum(len(e) for g in groups for e in g.experiences)
    assert figures["trained_loss_tokens"] == sum(int(e.mask.sum()) for g in groups for e in g.experiences)


def test_fewer_groups_than_updates_make_fewer_updates(make: Make, fill: Callable[..., None]) -> None:
    fill(0, [1.0, 0.0], [0.0, 1.0])
    assert make(trainer={"updates": 5}).train(0)["updates"] == 2


def test_an_attempt_of_two_sequences_counts_once(make: Make, tiny: Any) -> None:
    rng = np.random.default_rng(0)

    def sequence(attempt: int, part: int, reward: float) -> Experience:
        e = tiny.experience(rng, 9, attempt, reward=reward)
        return replace(e, key=f"g#{attempt}.{part}", advantages=None)

    parts = (sequence(0, 0, 1.0), sequence(0, 1, 1.0), sequence(1, 0, 0.0))
    trainer = make()
    trainer._buffer = Given([ExperienceGroup(group="g", task_key="t", experiences=parts)])  # type: ignore[assignment]
    figures = trainer.train(0)
    assert figures["reward"] == 0.5
    assert figures["attempts"] == 2
    assert figures["response_tokens"] == sum(int(e.mask.sum()) for e in parts) / 2


def test_lag_is_told_from_the_oldest_version(make: Make, fill: Callable[..., None]) -> None:
    for step in range(3):
        fill(step, [1.0, 0.0], version=0)
    trainer = make()
    figures = [trainer.train(step) for step in range(3)]
    assert [f["lag_max"] for f in figures] == [0, 1, 2]
    assert [f["lag_min"] for f in figures] == [0, 1, 2]


@pytest.mark.parametrize(
    ("optimizer", "algorithm", "rank"),
    [("adamw", "grpo", 0), ("muon", "grpo", 0), ("adamw", "ppo", 0), ("adamw", "ppo", 3)],
)
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(
    make: Make, fill: Callable[..., None], tmp_path: Path, optimizer: str, algorithm: str, rank: int
) -> None:
    critic = {"critic": {"name": "muon", "lr": 3e-3}} if algorithm == "ppo" else {}
    sections = {
        "run": {"steps": 5},
        "algorithm": {"name": algorithm},
        "trainer": {
            "updates": 2,
            "optimizer": {"name": optimizer, "lr": 1e-2, "decay_steps": 4},
            "lora": {"rank": rank},
            **critic,
        },
    }
    for step in range(5):
        fill(step, [1.0, 0.0, 0.0], [0.0, 1.0], [1.0, 1.0, 0.0])
    whole = make(**sections)
    assert whole.resume() == 0
    whole.train(0)
    whole.train(1)
    whole.save(2)
    expected = [whole.train(step) for step in (2, 3, 4)]
    resumed = make(**sections)
    assert resumed.resume() == resumed.version == 2
    timed = ("tokens_per_second", "train_seconds")
    for step, want in zip((2, 3, 4), expected, strict=True):
        got = resumed.train(step)
        assert {k: v for k, v in got.items() if k not in timed} == {k: v for k, v in want.items() if k not in timed}
    assert same(whole.snapshot(), resumed.snapshot())
    if algorithm == "ppo":
        for number, trainer in enumerate((whole, resumed)):
            (tmp_path / str(number)).mkdir()
            trainer._critic_model().save(tmp_path / str(number))
        for file in ("model.safetensors", "optimizer.pt"):
            assert (tmp_path / "0" / file).read_bytes() == (tmp_path / "1" / file).read_bytes()


def test_a_critic_judges_before_a_steps_updates_and_learns_what_came(make: Make, fill: Callable[..., None]) -> None:
    """Knowing nothing yet, it expects 0 of all, so what is trained on is the whitened reward, in both updates; groups
    of one, and groups that all failed, are trained on too."""
    fill(0, [1.0], [0.0], [0.0, 0.0], [1.0], dropped={"timeout": 1})
    trainer = make(
        algorithm={"name": "ppo"},
        trainer={"updates": 2, "optimizer": {"lr": 0.0}, "critic": {"lr": 1e-2}},
    )
    seen: list[Batch] = []
    step = trainer._engine.step
    trainer._engine.step = lambda rows, loss: (seen.append(rows), step(rows, loss))[1]  # type: ignore[method-assign]
    groups = trainer._buffer.take(0, GROUPS, 0)
    assert groups is not None
    trainer._buffer = Given(groups)  # type: ignore[assignment]  # always the same, so that there is something to know
    figures = [trainer.train(step) for step in range(10)]
    assert figures[0]["groups_used"] == 4
    assert figures[0]["attempts"] == 5
    first = seen[:2]
    advantages, returns = (torch.cat([getattr(b, n)[b.mask] for b in first]) for n in ("advantages", "returns"))
    assert not any(b.values.any() for b in first)
    assert set(returns.tolist()) == {0.0, 1.0}
    torch.testing.assert_close(advantages, (returns - returns.mean()) / (returns.std() + 1e-6))
    assert seen[2].values.any()
    assert figures[0]["critic/explained"] == 0.0
    assert figures[9]["critic/explained"] > 0.5
    assert figures[9]["critic/loss"] < 0.2 * figures[0]["critic/loss"]
    assert figures[0]["critic/lr"] == 1e-2


def test_a_critic_begins_as_the_warmed_up_policy(make: Make, tiny: Any, tmp_path: Path) -> None:
    tiny.write(tmp_path / "checkpoints" / "warmup", seed=1)
    weights = dict(make(algorithm={"name": "ppo"})._critic_model().weights())  # type: ignore[attr-defined]
    theirs = tiny.make("qwen3", seed=1)
    assert not weights.pop("score.weight").any()
    assert not weights.pop("score.bias").any()
    assert same(weights, {n: p.detach() for n, p in theirs.named_parameters()})


def test_sequences_older_than_the_bound_carry_no_loss_but_their_rewards_count(make: Make, tiny: Any) -> None:
    rng = np.random.default_rng(0)

    def attempt(number: int, oldest: int, reward: float) -> Experience:
        e = tiny.experience(rng, 9, number, reward=reward)
        return replace(e, versions=(oldest, 4), advantages=None)

    group = ExperienceGroup(group="g", task_key="t", experiences=(attempt(0, 4, 1.0), attempt(1, 1, 0.0)))
    trainer = make(sync={"staleness": 2})
    trainer._buffer = Given([group])  # type: ignore[assignment]
    trainer.version = 4
    figures = trainer.train(4)
    assert figures is not None
    assert figures["stale_in_training"] == 1
    assert (figures["reward"], figures["lag/0"], figures["lag/3"]) == (0.5, 1, 1)
    assert figures["trained_tokens"] == len(group.experiences[0])


def test_what_was_sampled_with_another_tokenizer_is_refused(make: Make, tiny: Any) -> None:
    e = tiny.experience(np.random.default_rng(0), 9, reward=1.0)
    trainer = make()
    for mark, refused in ((trainer._tokenizer, False), ("another", True)):
        marked = replace(e, lineage={"tokenizer": mark}, advantages=None)
        trainer._buffer = Given([ExperienceGroup(group="g", task_key="t", experiences=(marked,))])  # type: ignore[assignment]
        with pytest.raises(UserError, match="another tokenizer") if refused else nullcontext():
            trainer.train(trainer.version)


def test_the_journal_tells_what_a_checkpoint_was_trained_on(make: Make, fill: Callable[..., None]) -> None:
    for step in range(3):
        fill(step, [1.0, 0.0], [0.0, 1.0])
    trainer, expected = make(), ""
    for step in range(3):
        groups = trainer._buffer.take(step, trainer._plan.explorer.groups, step)
        assert groups is not None
        trainer.train(step)
        expected = chained(expected, groups)
        assert trainer.journal == expected
    trainer.save(3)
    resumed = make()
    assert (resumed.resume(), resumed.journal) == (3, expected)


@pytest.mark.parametrize(
    ("weights", "order"),
    [({"uses": -0.3}, "weak strong weak strong"), ({"uses": -0.3, "advantage": 1.0}, "weak strong strong weak")],
)
def test_training_says_what_is_replayed_first(weights: dict[str, float], order: str, make: Make, tiny: Any) -> None:
    """Both are new, then both were used once; then the one that taught more comes first, where that is weighed."""
    trainer = make(
        explorer={"groups": 1},
        buffer={"strategy": "priority", "weights": weights, "reuse": 2},
        algorithm={"normalize_std": False},
    )
    rng, names = np.random.default_rng(0), {"weak": [0.5, 0.4], "strong": [1.0, 0.0]}
    groups = []
    for name, rewards in names.items():
        raw = [tiny.experience(rng, 9, i, reward=r, group=name) for i, r in enumerate(rewards)]
        experiences = tuple(replace(e, advantages=None) for e in raw)
        groups.append(ExperienceGroup(group=name, task_key="t", experiences=experiences))
    trainer._buffer.put(groups)
    journal = ""
    for step, name in enumerate(order.split()):
        assert trainer.train(step) is not None
        journal = chained(journal, [g for g in groups if g.group == name])
    assert trainer.journal == journal
    assert trainer.train(4) is None


def test_only_the_newest_checkpoints_are_kept(make: Make, fill: Callable[..., None], tmp_path: Path) -> None:
    trainer = make(trainer={"keep": 2})
    for step in range(4):
        fill(step, [1.0, 1.0])
        trainer.train(step)
        trainer.save(step + 1)
    folder = tmp_path / "checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == ["step-000003", "step-000004"]
    loaded = AutoModelForCausalLM.from_pretrained(folder / "step-000004")
    ours = trainer.snapshot()
    assert all(torch.equal(p, ours[n]) for n, p in loaded.named_parameters())


def test_another_models_checkpoints_are_refused(
    make: Make, fill: Callable[..., None], tiny: Any, tmp_path: Path
) -> None:
    fill(0, [1.0, 0.0])
    trainer = make()
    trainer.train(0)
    trainer.save(1)
    with pytest.raises(UserError, match="another model"):
        make(base=tiny.write(tmp_path / "other", "llama")).resume()


def test_a_snapshot_is_not_touched_by_later_steps(make: Make, fill: Callable[..., None]) -> None:
    fill(0, [1.0, 0.0])
    trainer = make()
    taken = trainer.snapshot()
    kept = {n: w.clone() for n, w in taken.items()}
    trainer.train(0)
    assert same(taken, kept)
    assert not same(taken, trainer.snapshot())


def test_what_is_kept_for_explorers_that_pull_is_in_the_checkpoint(make: Make, fill: Callable[..., None]) -> None:
    trainer = make()
    trainer.keep(0, "cpu")
    first = trainer.snapshot()
    fill(0, [1.0, 0.0, 0.5])
    trainer.train(0)
    trainer.keep(0, "cpu")
    assert same(dict(trainer._outlets.kept(0)), first)
    assert same(dict(trainer._outlets.kept(1)), trainer.snapshot())
    trainer.save(1, [0])
    other = make()
    assert (other.resume(), other.older()) == (1, [0])
    other.keep(0, "cpu", 0)
    assert same(dict(other._outlets.kept(0)), first)


def test_kl_holds_on_to_the_model_of_the_beginning(make: Make, fill: Callable[..., None]) -> None:
    for step in range(3):
        fill(step, [1.0, 0.0, 0.0], [0.0, 1.0])
    trainer = make(algorithm={"kl": 0.1}, trainer={"optimizer": {"lr": 1e-2}})
    figures = [trainer.train(step) for step in range(3)]
    assert figures[0]["kl_reference"] == pytest.approx(0.0, abs=1e-6)
    assert figures[2]["kl_reference"] > 1e-3


def test_imitation_lowers_the_loss(make: Make, tiny: Any) -> None:
    """Demonstrations of counting upwards; the first half of each is given."""
    examples = []
    for start in range(12):
        tokens = np.arange(start, start + 20, dtype=np.int32)
        examples.append(Example(tokens=tokens, mask=np.arange(20) >= 10))
    silent = Example(tokens=np.arange(9, dtype=np.int32), mask=np.zeros(9, np.bool_))
    warmup = {
        "passes": 20,
        "batch_tokens": 80,
        "optimizer": {"name": "muon", "lr": 0.02, "adam_lr": 0.01},
    }
    trainer = make(warmup=warmup)
    figures = list(trainer.sft([examples[:4], [*examples[4:], silent]]))
    assert [f["steps"] for f in figures] == [len(figures)] * len(figures)
    assert figures[0]["loss"] > 3.0
    assert figures[-1]["loss"] < 0.5
    assert sum(f["loss_tokens"] for f in figures) == 12 * 20 * 10
    again = make(warmup=warmup)
    assert [f["loss"] for f in again.sft([examples[:4], [*examples[4:], silent]])] == [f["loss"] for f in figures]


@pytest.mark.slow
def test_the_warm_up_imitates_the_expert_and_leaves_a_checkpoint(make: Make, tmp_path: Path) -> None:
    from harness.agents.config import TinyConfig
    from harness.agents.models.tiny import make_tiny
    from harness.envs.echo import Echo

    shape = TinyConfig(layers=2, width=32, heads=2, kv_heads=2, mlp=64, context=1024)
    make_tiny(tmp_path / "base", shape, Echo.texts(), seed=0)
    warmup = {
        "stages": [{"episodes": 40}],
        "passes": 2,
        "batch_tokens": 2000,
        "optimizer": {"name": "muon", "lr": 0.02, "adam_lr": 0.01},
    }
    trainer = make(base=tmp_path / "base", warmup=warmup)
    losses = [f["loss"] for f in trainer.warm_up()]
    assert len(losses) >= 6
    assert losses[-1] < 0.7 * losses[0]
    other = make(base=tmp_path / "base", warmup=warmup)
    assert other.resume() == 0
    assert same(other.snapshot(), trainer.snapshot())


def test_a_warm_up_whose_episodes_are_all_too_long_says_so(make: Make, tiny: Any, tmp_path: Path) -> None:
    from harness.agents.config import TinyConfig
    from harness.agents.models.tiny import make_tiny

    make_tiny(tmp_path / "base", TinyConfig(layers=1, width=16, heads=2, kv_heads=2, mlp=16, context=16), (), seed=0)
    trainer = make(base=tmp_path / "base", warmup={"stages": [{"episodes": 3}]})
    with pytest.raises(UserError, match="context"):
        list(trainer.warm_up())


@pytest.mark.parametrize(("temperature", "algorithm"), [(1.0, "grpo"), (0.7, "grpo"), (0.7, "ppo")])
def test_training_raises_the_reward(make: Make, model: Path, temperature: float, algorithm: str) -> None:
    """A bandit: one token is sampled after a fixed prompt, and one in three tokens is worth 1."""
    trainer = make(
        algorithm={"name": algorithm},
        sampling={"temperature": temperature},
        trainer={"optimizer": {"lr": 1e-2}},
        run={"steps": 15},
        explorer={"groups": 4},
    )
    policy = AutoModelForCausalLM.from_pretrained(model).eval()
    draws = torch.Generator().manual_seed(0)
    rewards = []
    for step in range(15):
        policy.load_state_dict(trainer.snapshot(), strict=False)
        with torch.no_grad():
            logprobs = (policy(torch.tensor([[4, 11]])).logits[0, -1] / temperature).log_softmax(-1)
        groups = []
        for g in range(4):
            sampled = torch.multinomial(logprobs.exp(), 16, replacement=True, generator=draws).tolist()
            experiences = tuple(
                Experience(
                    key=f"{step}/{g}#{i}.0",
                    task_key="t",
                    group=f"{step}/{g}",
                    attempt=i,
                    versions=(step, step),
                    reward=float(token % 3 == 0),
                    tokens=np.array([4, 11, token], np.int32),
                    mask=np.array([False, False, True]),
                    logprobs=np.array([0.0, 0.0, logprobs[token]], np.float32),
                )
                for i, token in enumerate(sampled)
            )
            groups.append(ExperienceGroup(group=f"{step}/{g}", task_key="t", experiences=experiences))
        trainer._buffer.put(groups)
        figures = trainer.train(step)
        if not figures["nothing_to_train"]:
            assert figures["ratio_max"] == pytest.approx(1.0, abs=1e-4)  # on-policy: engine and sampler agree
        rewards.append(figures["reward"])
    assert np.mean(rewards[:2]) < 0.6
    assert np.mean(rewards[-3:]) > 0.9
