"""Recipes, overrides, and mistakes shown all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.bounds import AT_LEAST, AT_MOST, POSITIVE
from harness.config import RunConfig
from harness.envs.errors import UnknownName, UserError
from harness.load import ConfigError, default_recipe, dump, load, parse_yaml, recipes, reload, settings

ECHO = "env.name=echo"


def mistakes(*overrides: str, recipe: str | Path = "default") -> dict[str, str]:
    with pytest.raises(ConfigError) as e:
        load(recipe, [ECHO, *overrides])
    return dict(e.value.problems)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["default", "alfworld/tiny", "math/tiny", "office/tiny", "office/full"])
def test_every_recipe_that_comes_along_is_valid(name: str) -> None:
    assert name in recipes()
    load(name, [ECHO] if name == "default" else [])


def test_default_recipe_by_world() -> None:
    assert default_recipe("alfworld") == "alfworld/tiny"
    assert default_recipe("math") == "math/tiny"
    assert default_recipe("echo") == default_recipe("./mine.py") == "default"


def test_overrides_reach_deep_and_keep_the_rest() -> None:
    plain, config = (
        load("default", [ECHO]),
        load("default", [ECHO, "trainer.optimizer.lr=3e-4", "env.options.rounds=5"]),
    )
    assert config.trainer.optimizer.lr == 3e-4
    assert config.env.options == {"rounds": 5}
    assert config.explorer == plain.explorer
    assert config.warmup == plain.warmup


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_read_however_python_writes_them(x: float) -> None:
    assert parse_yaml(repr(x)) == x
    assert parse_yaml(f"{x:e}") == float(f"{x:e}")


@pytest.mark.parametrize("text", ["3e-4", "3E-4", "1.5e3", "+2e2", ".5e1", "1e6"])
def test_exponents_are_numbers(text: str) -> None:
    assert parse_yaml(text) == float(text)
    assert isinstance(parse_yaml(text), float)


@pytest.mark.parametrize("text", ["3e", "e4", "1e2x", "v1e2", "echo"])
def test_words_stay_words(text: str) -> None:
    assert parse_yaml(text) == text


def test_unknown_keys_are_refused_at_every_depth() -> None:
    """Pinned: pydantic forbids unknown keys in nested standard dataclasses too."""
    found = mistakes("trainer.optimizer.lrr=1", "model.tiny.widht=3", "explorer.group_sise=4", "trainr.engine=local")
    assert set(found) == {"trainer.optimizer.lrr", "model.tiny.widht", "explorer.group_sise", "trainr"}
    assert "Did you mean trainer.optimizer.lr?" in found["trainer.optimizer.lrr"]
    assert "Did you mean model.tiny.width?" in found["model.tiny.widht"]
    assert "Did you mean explorer.group_size?" in found["explorer.group_sise"]
    assert "Did you mean trainer?" in found["trainr"]


@pytest.mark.parametrize("path", [p for p in settings() if "." in p and "*" not in p and not p.endswith(".options")])
def test_every_setting_refuses_a_part_it_does_not_have(path: str) -> None:
    with pytest.raises(ConfigError) as e:
        load("default", [ECHO, f"{path}={{nonsense_key: 1}}"])
    assert any(p.startswith(path) for p, _ in e.value.problems)


def test_a_key_of_another_section_is_found() -> None:
    assert "trainer.optimizer.lr" in mistakes("trainer.lr=3e-4")["trainer.lr"]


def test_all_mistakes_at_once_types_names_bounds_and_spelling() -> None:
    found = mistakes(
        "run.steps=many", "trainer.lr=1", "explorer.groups=0", "algorithm.aggregate=token-men", "foo", "run.seed.x=1"
    )
    assert "whole number" in found["run.steps"]
    assert "at least 1" in found["explorer.groups"]
    assert "Did you mean token-mean?" in found["algorithm.aggregate"]
    assert "trainer.lr" in found
    with pytest.raises(ConfigError) as e:
        load("default", [ECHO, "foo", "run.steps.x=1"])
    assert "'foo' is no setting" in str(e.value)
    assert "'run.steps' is a value" in str(e.value)
    assert len(str(e.value).splitlines()) == 3


def test_mistakes_within_a_list() -> None:
    found = mistakes("warmup.stages=[{episodes: 3}, {episodes: 5, turn: 1}]")
    assert "Did you mean warmup.stages.1.turns?" in found["warmup.stages.1.turn"]
    assert "at least 1" in mistakes("warmup.stages=[{episodes: 0}]")["warmup.stages.0.episodes"]


def test_priority_weighs_what_there_is() -> None:
    assert (
        "Did you mean 'advantage'"
        in mistakes("buffer.strategy=priority", "buffer.weights={advantages: 1}")["buffer.weights"]
    )
    once = mistakes("buffer.strategy=priority", "buffer.weights={advantage: 1}")
    assert "buffer.reuse=1 trains on each once" in once["buffer.weights"]


def test_a_section_is_no_value() -> None:
    assert "section" in mistakes("trainer=3")["trainer"]


def test_unknown_world_is_named() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'echo'"):
        load("default", ["env.name=ecko"])


def test_unknown_split_is_named() -> None:
    assert "valid_unseen" in mistakes("env.eval_split=valid")["env.eval_split"]


def test_unknown_recipe() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'alfworld/tiny'"):
        load("alfworld/tinny")
    with pytest.raises(UserError, match="no recipe file"):
        load("nowhere/mine.yaml")


def test_broken_yaml_names_line_and_column(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 3, column 4"):
        load(write(tmp_path, "run:\n  steps: [1\nenv: {}\n"))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'steps' is given twice"):
        load(write(tmp_path, "run:\n  steps: 1\n  steps: 2\n"))


def test_a_recipe_is_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must hold sections"):
        load(write(tmp_path, "- 1\n"))


def test_dump_reads_back_equal(tmp_path: Path) -> None:
    config = load("default", [ECHO, "trainer.optimizer.lr=1e-7", "model.path=owner/name", "env.options.rounds=3"])
    assert reload(write(tmp_path, dump(config))) == config


class TestRules:
    def test_bounds_speak_of_settings_that_exist(self) -> None:
        assert {*AT_LEAST, *AT_MOST, *POSITIVE} <= settings().keys()

    def test_training_and_evaluation_splits_differ(self) -> None:
        assert "held out" in mistakes("env.eval_split=train")["env.eval_split"]
        assert load("default", [ECHO, "env.eval_split=train"], training=False).env.eval_split == "train"

    def test_one_attempt_has_no_group_to_compare_with(self) -> None:
        assert "explorer.group_size" in mistakes("explorer.group_size=1")

    def test_greedy_training_is_refused(self) -> None:
        assert "alike" in mistakes("sampling.temperature=0")["sampling.temperature"]

    def test_training_on_a_cut_off_distribution_is_refused(self) -> None:
        assert "logprobs" in mistakes("sampling.top_p=0.9")["sampling.top_p"]
        assert load("default", [ECHO, "sampling.top_p=0.9", "run.steps=0"]).sampling.top_p == 0.9
        assert load("default", [ECHO, "sampling.top_p=0.9"], training=False).sampling.top_p == 0.9

    def test_settings_of_another_engine_are_refused(self) -> None:
        found = mistakes("model.tensor_parallel=2", "model.urls=['http://127.0.0.1:8000']")
        assert "'local', and only vllm heed it" in found["model.tensor_parallel"]
        assert "vllm-server" in found["model.urls"]
        found = mistakes("model.engine=vllm-server", "model.threads=2", "model.cache_gib=0")
        assert found.keys() >= {"model.urls", "model.threads", "model.cache_gib"}
        assert load("default", [ECHO, "model.engine=vllm", "model.engines=2"]).model.engines == 2
        assert "only vllm" in mistakes("model.sleep=true")["model.sleep"]
        assert (
            "while the trainer trains"
            in mistakes("model.engine=vllm", "model.sleep=true", "sync.offset=1")["model.sleep"]
        )

    def test_a_process_group_needs_processes(self) -> None:
        for place, why in (("inline", "has one process"), ("apart", "the run's folder")):
            assert why in mistakes("sync.transport=group", f"run.place={place}")["sync.transport"]
        assert "sync" in mistakes("sync.transport=group", "explorer.workers=0")
        assert "only sync.transport=group" in mistakes("sync.transfer_seconds=5")["sync.transfer_seconds"]
        assert load("default", [ECHO, "sync.transport=group", "sync.transfer_seconds=5"]).sync.transfer_seconds == 5

    def test_rewards_that_the_world_gives_are_not_waited_for(self) -> None:
        waits = ("buffer.reward_seconds=5", "buffer.reward_share=0.5")
        found = mistakes(*waits)
        assert all("explorer.rewards=world" in found[w.partition("=")[0]] for w in waits)
        assert load("default", [ECHO, "explorer.rewards=later", *waits]).buffer.reward_share == 0.5

    def test_noise_without_warm_up_is_refused(self) -> None:
        assert "no warm-up" in mistakes("warmup.stages=[]", "warmup.noise=0.1")["warmup.noise"]

    def test_leaving_out_the_recipes_warm_up_is_a_choice(self) -> None:
        assert load("default", [ECHO, "warmup.stages=[]"]).warmup.passes == 2  # the recipe's, idle now

    def test_a_recipe_that_describes_an_idle_warm_up_is_refused(self, tmp_path: Path) -> None:
        recipe = write(tmp_path, "env: {name: echo}\nwarmup: {passes: 3}\n")
        with pytest.raises(ConfigError, match=r"warmup\.passes: would be ignored"):
            load(recipe)

    def test_a_given_model_has_its_shape(self) -> None:
        found = mistakes("model.path=owner/name", "model.tiny.width=64")
        assert "has its shape already" in found["model.tiny"]

    def test_a_change_alone_is_trained_by_adam_and_has_no_vectors(self) -> None:
        idle = mistakes("trainer.lora.alpha=8", "trainer.lora.targets=[q_proj]")
        assert set(idle) == {"trainer.lora.alpha", "trainer.lora.targets"}
        assert "trainer.lora.rank is 0" in idle["trainer.lora.alpha"]
        found = mistakes(
            "trainer.lora.rank=8",
            "trainer.optimizer.name=muon",
            "warmup.optimizer.name=muon",
            "trainer.optimizer.vector_lr=1e-3",
        )
        assert set(found) == {"trainer.optimizer.name", "warmup.optimizer.name", "trainer.optimizer.vector_lr"}
        load("default", [ECHO, "trainer.lora={rank: 8, alpha: 16, targets: [q_proj]}"])

    def test_second_rate_needs_muon(self) -> None:
        assert "muon" in mistakes("trainer.optimizer.adam_lr=1e-3")["trainer.optimizer.adam_lr"]
        load("default", [ECHO, "trainer.optimizer.adam_lr=1e-3", "trainer.optimizer.name=muon"])
        assert "muon" in mistakes("algorithm.name=ppo", "trainer.critic.adam_lr=1e-3")["trainer.critic.adam_lr"]
        assert "no critic" in mistakes("trainer.critic.lr=1e-3")["trainer.critic"]
        load("default", [ECHO, "algorithm.name=ppo", "trainer.critic.lr=1e-3", "explorer.group_size=1"])

    def test_a_setting_that_the_algorithm_ignores_is_refused(self) -> None:
        found = mistakes("algorithm.name=reinforce", "algorithm.kl=0.1")
        assert "would be ignored" in found["algorithm.kl"]

    def test_model_folder_without_a_model(self, tmp_path: Path) -> None:
        assert "config.json" in mistakes(f"model.path={tmp_path}")["model.path"]

    def test_shape_must_divide(self) -> None:
        assert "multiple" in mistakes("model.tiny.width=130")["model.tiny.width"]

    def test_what_was_checked_once_is_not_refused_on_resume(self, tmp_path: Path) -> None:
        config = load("default", [ECHO, "warmup.stages=[]"])
        path = write(tmp_path, dump(config))
        assert reload(path) == config
        with pytest.raises(ConfigError, match=r"eval\.m"):
            reload(path, ["eval.m=3"])


def test_config_is_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        RunConfig().run = None  # type: ignore[misc, assignment]
