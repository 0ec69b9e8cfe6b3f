"""Distilling one SSM on the LLM's laws: loss, steps, checkpoints (paper, section 3.2).

The run is a function of its seed, and its whole state is in a checkpoint; one that is killed goes
on from the last checkpoint and ends in the same bytes.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from specinfer.train.batches import Batch, Schedule, Targets
from specinfer.train.ranks import Ranks
from specinfer.train.settings import Loss, TrainConfig
from specinfer.train.student import Student

WARM_UP = 0.05  # share of the steps in which the rate rises
LAST_RATE = 0.05  # of the height, at the end of the cosine
Log = list[dict[str, float]]


def loss_of(log_laws: Tensor, batch: Batch, kind: Loss) -> Tensor:
    """Return the weighted sum over M places of a distance of the SSM's laws [M, D] to the LLM's.

    kl: the cross-entropy to the known part of the LLM's law, which differs from KL by a constant.
    tv: 1 - sum min(p, q) over it, the chance that verification rejects a draw.
    """
    own = log_laws.gather(1, batch.ids)
    if kind == "kl":
        rows = -(batch.probs * own).sum(1)
    else:
        rows = 1 - torch.minimum(batch.probs, own.exp()).sum(1)
    return (rows * batch.weights).sum()


@dataclass(frozen=True, slots=True)
class Step:
    """What a step tells its watcher."""

    done: int
    of: int
    loss: float  # mean by weight
    agreement: float  # share of places where the SSM's likeliest token is the LLM's


Watch = Callable[[Step], None]


class Distillation:
    """One SSM's training from the first or the last saved step to the last."""

    def __init__(
        self, student: Student, data: Targets, config: TrainConfig, steps: int, ranks: Ranks
    ) -> None:
        self.student = student
        self.log: Log = []
        self.done = 0
        self._data = data
        self._config = config
        self._steps = steps
        self._ranks = ranks
        self._schedule = Schedule(data.corpus.lengths(), config.batch_tokens, config.seed)
        self._learnt = [p for p in student.parameters() if p.requires_grad]
        self._optimizer = torch.optim.AdamW(self._learnt, betas=(0.9, 0.95), weight_decay=0.01)

    def run(self, checkpoint: Path, watch: Watch) -> None:
        """Train to the end, going on from the checkpoint if there is one."""
        if checkpoint.is_file():
            self._restore(checkpoint)
        while self.done < self._steps:
            step = self._step()
            watch(step)
            if self.done % self._config.save_every == 0 or self.done == self._steps:
                self.log.append({"step": self.done, "loss": step.loss, "agreement": step.agreement})
                if self._ranks.first:
                    self._save(checkpoint)

    def _step(self) -> Step:
        mine = self._ranks.share(self._schedule.sequences(self.done))
        self._optimizer.zero_grad()
        loss, weight, agreed = self._backward(mine) if mine else (0.0, 0.0, 0.0)
        loss, weight, agreed = self._ranks.total(loss, weight, agreed)
        self._ranks.total_gradients(self._learnt)
        for parameter in self._learnt:
            parameter.grad = _scaled(parameter, weight)
        torch.nn.utils.clip_grad_norm_(self._learnt, 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.rate * self.student.pace * self._height()
        self._optimizer.step()
        self.done += 1
        return Step(self.done, self._steps, loss / max(weight, 1e-9), agreed / max(weight, 1e-9))

    def _backward(self, sequences: Sequence[int]) -> tuple[float, float, float]:
        """Return the sums of loss, weight and agreeing weight of some sequences."""
        device = self.student.head.device
        batch = self.student.lesson(self._data, sequences, self.done).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._ranks.mixed):
            log_laws = self.student(*batch.inputs)
        loss = loss_of(log_laws, batch, self._config.loss)
        loss.backward()  # type: ignore[no-untyped-call]
        known = batch.probs[:, 0] > 0
        agreed = (log_laws.argmax(1) == batch.ids[:, 0]) & known
        return float(loss.detach()), float(batch.weights.sum()), float(batch.weights[agreed].sum())

    def _height(self) -> float:
        """Return the learning rate's share of its height: a rise, then a cosine."""
        rise = max(1, int(WARM_UP * self._steps))
        if self.done < rise:
            return (self.done + 1) / rise
        way = (self.done - rise) / max(1, self._steps - rise)
        return LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * way)) / 2

    def _save(self, checkpoint: Path) -> None:
        state: dict[str, Tensor] = {f"p.{n}": v for n, v in self.student.learnt().items()}
        for place, parameter in enumerate(self._learnt):
            for name, value in self._optimizer.state[parameter].items():
                state[f"o.{place}.{name}"] = value
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        part = checkpoint.with_suffix(".part")
        about = {"done": str(self.done), "log": json.dumps(self.log)}
        save_file({name: value.contiguous() for name, value in state.items()}, part, about)
        part.replace(checkpoint)

    def _restore(self, checkpoint: Path) -> None:
        with safe_open(checkpoint, "pt", device=str(self.student.head.device)) as file:
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about: Mapping[str, str] = file.metadata()
        self.student.learn({n[2:]: v for n, v in state.items() if n.startswith("p.")})
        for place, parameter in enumerate(self._learnt):
            start = f"o.{place}."
            self._optimizer.state[parameter] = {
                n.removeprefix(start): v for n, v in state.items() if n.startswith(start)
            }
        self.done, self.log = int(about["done"]), json.loads(about["log"])


def _scaled(parameter: Tensor, weight: float) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad / max(weight, 1e-9)
