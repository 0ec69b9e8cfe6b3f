"""The pretend card itself: it refuses, counts and replays as CUDA does."""

import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from specinfer.stopwatch import Stopwatch
from specinfer.testing.card import CaptureError, Card, CardError
from specinfer.transfer import send, staging

CUDA = torch.device("cuda")


@pytest.fixture
def card() -> Iterator[Card]:
    with Card() as card, torch.inference_mode():
        yield card


def captured(run: Callable[[], object]) -> Callable[[], None]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def test_tensors_say_where_they_are(card: Card) -> None:
    here = torch.ones(2, 3).to("cuda")
    assert here.device == torch.device("cuda", 0)
    assert here.is_cuda
    assert (here + 1)[0].device.type == "cuda"
    assert here.cpu().device.type == "cpu"
    assert torch.zeros_like(here, device="cpu").device.type == "cpu"
    with CUDA:
        assert torch.tensor([1]).is_cuda
    assert torch.nn.Linear(2, 2).to(CUDA).weight.is_cuda
    assert torch.ones(1).to(here.int()).is_cuda


def test_results_are_those_of_a_cpu(card: Card) -> None:
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))

    def work(rows: Tensor, weight: Tensor) -> Tensor:
        found = (rows @ weight).softmax(1)
        found[1, 2:5] = 0
        found[:, 6].add_(1)
        return found.sort(dim=1).values[:, -3:]

    assert torch.equal(work(rows.to(CUDA), weight.to(CUDA)).cpu(), work(rows, weight))


@pytest.mark.parametrize(
    "mixed",
    [
        lambda here, there: here + there,
        lambda here, there: there.add_(here),
        lambda here, there: torch.cat([here, there]),
        lambda here, there: here.index_select(0, there.long()),
        lambda here, there: here.gather(0, there.long()),
        lambda here, there: torch.where(here > 0, here, there),
        lambda here, there: torch.tensor(1.0).add_(here[0]),
        lambda here, there: here.dot(torch.tensor(1.0)),
    ],
)
def test_operands_of_two_devices_are_refused(
    card: Card, mixed: Callable[[Tensor, Tensor], object]
) -> None:
    with pytest.raises(CardError, match="on cpu beside cuda:0"):
        mixed(torch.ones(3, device=CUDA), torch.ones(3))


def test_numbers_and_indices_of_the_host_are_taken(card: Card) -> None:
    here = torch.arange(6.0, device=CUDA)
    assert (here * torch.tensor(2.0)).tolist() == [0, 2, 4, 6, 8, 10]
    assert here[torch.tensor([1, 3])].tolist() == [1, 3]
    assert card.count() == Counter(read=2, send=1)


@pytest.mark.parametrize(
    ("ask", "kinds"),
    [
        (lambda x: x.sum().item(), {"read": 1}),
        (lambda x: bool(x.any()), {"read": 1}),
        (lambda x: x.tolist(), {"read": 1}),
        (lambda x: x[x > 1], {"read": 1}),
        (lambda x: torch.equal(x, x), {"read": 1}),
        (lambda x: x[[0, 2]], {"send": 1}),
        (lambda x: torch.tensor([1, 2], device=x.device), {"send": 1}),
        (lambda x: x.copy_(torch.zeros(4), non_blocking=True), {"send": 1}),  # not pinned
        (lambda x: x.__setitem__(2, 5.0), {"send": 1}),  # CUDA copies the number there
        (lambda x: x.__setitem__(x > 1, 5.0), {}),  # but fills where a mask says so
        (lambda x: x.fill_(2.0), {}),
        (lambda x: x.copy_(torch.zeros(4, pin_memory=True), non_blocking=True), {}),
        (lambda x: send([1, 2], x.device), {}),
        (lambda x: torch.cuda.synchronize(), {"wait": 1}),
    ],
)
def test_waits_are_counted_by_kind(
    card: Card, ask: Callable[[Tensor], object], kinds: dict[str, int]
) -> None:
    here = torch.arange(4, device=CUDA, dtype=torch.float32)
    ask(here)
    assert card.count() == Counter(kinds)
    assert not card.count()


def test_a_wait_is_told_by_its_line(card: Card) -> None:
    torch.ones(1, device=CUDA).item()
    (place,) = card.waits
    assert place.startswith("read at test_card.py:")


def test_an_event_that_the_host_has_passed_is_no_wait(card: Card) -> None:
    watch = Stopwatch(CUDA)
    row = torch.ones(3, device=CUDA) + 1
    watch.stop()
    row.tolist()
    assert watch.milliseconds() >= 0
    assert card.count() == Counter(read=1)
    late = Stopwatch(CUDA)
    torch.ones(3, device=CUDA)
    late.stop()
    late.milliseconds()
    assert card.count() == Counter(wait=1)


def test_a_graph_does_its_operations_again_on_the_same_memory(card: Card) -> None:
    given, out = torch.zeros(3, device=CUDA), torch.zeros(3, device=CUDA)
    replay = captured(lambda: out.copy_(given.cumsum(0) * 2))
    for numbers in ([1.0, 2.0, 3.0], [4.0, 4.0, 4.0]):
        given.copy_(torch.tensor(numbers))
        replay()
        assert out.tolist() == (torch.tensor(numbers).cumsum(0) * 2).tolist()


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda x: x.sum().item(),
        lambda x: x + torch.tensor([1.0, 2.0], device=x.device),
        lambda x: x[[0]],
        lambda x: send([1], x.device),
        lambda x: staging(8, x.device),
        lambda x: x.uniform_(),
        lambda x: torch.cuda.synchronize(),
    ],
)
def test_what_no_graph_can_hold_is_refused(
    card: Card, forbidden: Callable[[Tensor], object]
) -> None:
    here = torch.ones(2, device=CUDA)
    with pytest.raises(CaptureError):
        captured(lambda: forbidden(here))
    forbidden(here)  # outside it is allowed, and nothing is left of the attempt


def test_a_graph_whose_input_was_freed_is_found_out(card: Card) -> None:
    given, out = [torch.ones(2, device=CUDA)], torch.empty(2, device=CUDA)
    view = [given[0][1:]]
    replay = captured(lambda: out.copy_(view[0] + 1))
    given.clear()
    replay()  # the view keeps the memory
    view.clear()
    with pytest.raises(CaptureError, match="freed"):
        replay()


def test_what_a_capture_made_is_garbage_until_a_replay(card: Card) -> None:
    kept: list[Tensor] = []
    replay = captured(lambda: kept.append(torch.ones(2, device=CUDA) + 1))
    assert kept[0].isnan().all()
    replay()
    assert kept[0].tolist() == [2, 2]


def test_pinned_memory_may_change_only_after_its_copy(card: Card) -> None:
    host = torch.zeros(4, pin_memory=True)
    here = host.to(CUDA, non_blocking=True)
    (here + 1).tolist()
    host[0] = 1  # the host has seen a later result
    here = host.to(CUDA, non_blocking=True)
    host[0] = 2
    with pytest.raises(CardError, match="before its copy"):
        here.tolist()


def test_what_is_fetched_without_waiting_is_there_after_a_wait(card: Card) -> None:
    host = torch.zeros(2, pin_memory=True)
    host.copy_(torch.ones(2, device=CUDA), non_blocking=True)
    assert host.isnan().all()
    torch.cuda.synchronize()
    assert host.tolist() == [1, 1]
    assert card.count() == Counter(wait=1)


def test_what_cuda_has_no_kernel_for_is_refused(card: Card) -> None:
    whole = torch.ones(32, 8, device=CUDA, dtype=torch.int64)
    with pytest.raises(CardError, match="not implemented"):
        whole @ whole.t()
    with pytest.raises(CardError, match="generator"):
        torch.rand(2, device=CUDA, generator=torch.Generator())
    assert torch.rand(2, device=CUDA, generator=torch.Generator(CUDA)).is_cuda
    with pytest.raises(TypeError, match="numpy"):
        whole.numpy()


def test_other_threads_find_the_card_too_and_later_nobody(card: Card) -> None:
    found: list[Tensor] = []
    thread = threading.Thread(target=lambda: found.append(torch.ones(2, device="cuda")))
    thread.start()
    thread.join()
    assert (found[0] + torch.ones(2, device=CUDA)).tolist() == [2, 2]


def test_it_is_asked_as_torch_cuda_is() -> None:
    """No fake takes an argument that the real function has not."""
    real = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
    with Card():
        fakes = {
            name: fake for name, fake in vars(torch.cuda).items() if fake is not real.get(name)
        }
    assert len(fakes) > 15
    for name, fake in fakes.items():
        taken = set(inspect.signature(fake).parameters)
        made = [real[name], *(getattr(real[name], part) for part in ("__new__", "__init__"))]
        assert any(taken <= parameters(one) for one in made), name


def parameters(function: Callable[..., object]) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except ValueError:
        return set()


def test_nothing_is_left_of_a_card() -> None:
    with Card():
        assert torch.cuda.is_available()
    assert not torch.cuda.is_available()
    assert not torch.ones(1, pin_memory=False).is_cuda
