import pytest
import torch
from support.helpers import small_config

from gpt_cli.config import Config
from gpt_cli.errors import CheckpointError
from gpt_cli.model import GPT
from gpt_cli.training.data_parallel import Replicated
from gpt_cli.training.optimizer import AdamW, Optimizer

CONFIG = small_config()
MUON = small_config("train.optimizer=muon", "train.muon_learning_rate=0.5", "model.num_heads=4")


def stepped(config: Config = CONFIG) -> tuple[GPT, Optimizer]:
    model = GPT(config.model, 257, torch.Generator().manual_seed(0)).eval()
    optimizer = Optimizer(Replicated(dict(model.named_parameters())), config.train)
    model(torch.tensor([[1, 2, 3]])).sum().backward()
    optimizer.step(1.0)
    return model, optimizer


def test_adamw_takes_every_parameter_and_muon_the_matrices_inside_blocks() -> None:
    model, optimizer = stepped()
    assert optimizer.muon is None
    assert optimizer.adamw.parameters.keys() == dict(model.named_parameters()).keys()
    model, optimizer = stepped(MUON)
    assert optimizer.muon is not None
    for name, parameter in model.named_parameters():
        taken = name.startswith("blocks.") and parameter.dim() == 2
        assert (name in optimizer.muon.parameters) == taken == (name not in optimizer.adamw.parameters)


def test_many_steps_are_those_of_torch_bit_for_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in ((5, 3), (7,))]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    optimizer = AdamW({str(n): parameter for n, parameter in enumerate(ours)}, weight_decay=0.1)
    groups = [{"params": theirs[:1], "weight_decay": 0.1}, {"params": theirs[1:], "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)
    for step in range(20):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for group in reference.param_groups:
            group["lr"] = 0.1 / (1 + step)
        optimizer.step(0.1 / (1 + step))
        reference.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_moments_that_do_not_fit_are_refused_with_the_name_of_their_file() -> None:
    model, optimizer = stepped()
    for config, stored in ((CONFIG, {}), (MUON, optimizer.state_dict())):
        other = Optimizer(Replicated(dict(model.named_parameters())), config.train)
        with pytest.raises(CheckpointError, match=r"^a file: no run can continue from it"):
            other.load_state_dict(stored, 1, "a file")
