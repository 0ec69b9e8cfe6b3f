"""A plan as a table for people and as a document for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specinfer.plan.capacity import PAGE, Estimate, Job
from specinfer.plan.choice import HOURS, LOAD, Choice
from specinfer.plan.speculation import Acceptance, nodes

GB = 1e9
HEAD = f"{'instance':<16}{'':>4}{'batch':>6} {'tree':<18}{'tok/step':>8}{'vs plain':>9}{'s':>7}"
HEAD += f"{'tok/s':>8}{'needed':>7}{'USD/h':>8}{'USD/1M':>8}{'busy':>7}"


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a report tells."""

    job: Job
    acceptance: Acceptance
    choices: Sequence[Choice]
    unfit: Sequence[str]  # instance types that do not do

    @property
    def best(self) -> Choice:
        """The cheapest that a stack starts, else the cheapest."""
        return next((choice for choice in self.choices if choice.stack), self.choices[0])

    def text(self) -> str:
        """Return the table, the recommendation and what all of it rests on."""
        rows = [_row(choice) for choice in self.choices]
        lines = [*_subject(self), "", HEAD, *rows, "", *_advice(self), "", *_basis(self)]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """Return the same for `--json`; sizes in bytes, times in seconds, prices in USD."""
        best = self.best
        return {
            "model": self.job.llm.name,
            "ssms": [ssm.name for ssm in self.job.ssms],
            "acceptance": {"rate": self.acceptance.rate, "from": self.acceptance.known_from},
            "recommended": {
                "stack": best.stack,
                "instance": best.machine.name,
                "instances": best.instances,
                "settings": settings_of(best, self.job),
            },
            "choices": [_document(choice) for choice in self.choices],
            "unfit": list(self.unfit),
        }


def settings_of(choice: Choice, job: Job) -> Mapping[str, str]:
    """Return the server's settings for this choice."""
    tree, batch = choice.usual.tree, choice.peak.batch
    rows = 1 + nodes(tree) * len(job.ssms)
    pages = -(-(job.traffic.tokens + rows) // PAGE)
    settings = {
        "SPECINFER_MAX_BATCH": str(batch),
        "SPECINFER_CACHE_TOKENS": str(batch * pages * PAGE),
    }
    if tree:
        settings["SPECINFER_TREE"] = ",".join(map(str, tree))
    if choice.peak.tp > 1:
        settings["SPECINFER_TP"] = str(choice.peak.tp)
    if job.quantization != "none":
        settings["SPECINFER_QUANTIZATION"] = job.quantization
    if job.offloading is not None:
        settings["SPECINFER_OFFLOAD"] = job.offloading.where
        settings["SPECINFER_OFFLOAD_LAYERS"] = str(job.offloading.layers)
    return settings


def _subject(plan: Plan) -> list[str]:
    job, traffic = plan.job, plan.job.traffic
    llm = f"{job.llm.name}: {job.llm.parameters / 1e9:.2f} B parameters, "
    llm += f"{job.llm.parameters * job.width / GB:.1f} GB of weights, "
    llm += f"{job.llm.cache_bytes(max(2.0, job.width)) / 1024:.0f} KiB of cache a token"
    if job.quantization != "none":
        llm += f", {'SSMs' if job.offloading else 'linears'} {job.quantization}"
    if job.offloading is not None:
        llm += f"; layers come at {job.offloading.bandwidth / GB:g} GB/s in every pass"
    ssms = ", ".join(f"{ssm.name} ({ssm.parameters / 1e6:.0f} M)" for ssm in job.ssms)
    asked = f"{traffic.requests:g} requests/s of {traffic.prompt} prompt and {traffic.new} new "
    asked += f"tokens, each within {traffic.seconds:g} s"
    return [llm, f"SSMs: {ssms or 'none; look-up drafts come on top'}", f"traffic: {asked}"]


def _row(choice: Choice) -> str:
    e, machine = choice.usual, choice.machine
    tree = f"<{','.join(map(str, e.tree))}>" if e.tree else "none"
    split = f"{e.copies}x{e.tp}" if machine.devices > 1 else ""
    return (
        f"{machine.name:<16}{split:>4}{e.batch:>6} {tree:<18}{e.tokens_a_step:>8.2f}"
        f"{e.plain_latency_s / e.latency_s:>8.2f}x{e.latency_s:>7.2f}"
        f"{choice.peak.requests_s * choice.traffic.new:>8.0f}{choice.instances:>7}"
        f"{_usd(choice.usd_an_hour):>8}{_usd(choice.usd_a_million):>8}"
        f"{_usd(choice.usd_a_million_busy):>7}"
    )


def _usd(price: float | None) -> str:
    return "-" if price is None else f"{price:.2f}"


def _advice(plan: Plan) -> list[str]:
    best = plan.best
    e, hourly = best.usual, best.usd_an_hour
    what = f"{best.instances} x {best.machine.name}"
    if hourly:
        what += f", about {hourly * HOURS:,.0f} USD a month"
    settings = " ".join(f"{name}={value}" for name, value in settings_of(best, plan.job).items())
    lines = [
        f"Take the {best.stack} stack: {what}" if best.stack else f"No stack starts it: {what}",
        f"  {settings}",
        f"  node budget: {nodes(e.tree)} a sequence. About {e.free_rows:.0f} rows a pass cost "
        f"what one costs; a pass of {e.batch} sequences has {_rows(e, plan.job)}.",
        _memory_line(best.peak),
    ]
    if best.stack == "large" and best.machine.ec2_usd:
        nodes_h = best.machine.ec2_usd * best.instances
        lines.append(f"  as EC2 nodes of that stack: {nodes_h:.2f} USD/h on demand")
    return lines


def _rows(e: Estimate, job: Job) -> int:
    return e.batch * (1 + nodes(e.tree) * max(1, len(job.ssms)))


def _memory_line(e: Estimate) -> str:
    m = e.memory
    return (
        f"  memory of a device: {m.usable / GB:.1f} GB usable = weights {m.weights / GB:.1f}, "
        f"SSMs {m.ssms / GB:.1f}, activations {m.activations / GB:.1f}, and "
        f"{m.sequence / 1e6:.0f} MB a sequence: {m.sequences} fit."
    )


def _basis(plan: Plan) -> list[str]:
    machine = plan.best.machine
    lines = [
        "batch, tree, s a request: at this traffic.  tok/s: at the most one instance can do in "
        "the time allowed; busy: USD/1M then.",
        f"Acceptance {plan.acceptance.rate:.2f}, {plan.acceptance.known_from}; instances are "
        f"planned to {LOAD:.0%} load; speeds are shares of data sheets (docs/scale.md, Plan).",
    ]
    if machine.price_source:
        mark = "" if machine.price_verified else " (UNVERIFIED)"
        lines.append(f"Prices of {machine.price_read}: {machine.price_source}{mark}.")
    if plan.unfit:
        lines.append(f"Not fit: {', '.join(plan.unfit)}.")
    return lines


def _document(choice: Choice) -> dict[str, Any]:
    e, machine = choice.usual, choice.machine
    return {
        "instance": machine.name,
        "stack": choice.stack,
        "instances": choice.instances,
        "copies": e.copies,
        "tp": e.tp,
        "batch": e.batch,
        "max_batch": choice.peak.batch,
        "tree": list(e.tree),
        "nodes": nodes(e.tree),
        "free_rows": e.free_rows,
        "tokens_a_step": e.tokens_a_step,
        "step_s": e.step_s,
        "first_token_s": e.first_token_s,
        "latency_s": e.latency_s,
        "speedup": e.plain_latency_s / e.latency_s,
        "requests_per_s": choice.peak.requests_s,
        "tokens_per_s": choice.peak.requests_s * choice.traffic.new,
        "memory": asdict(choice.peak.memory) | {"sequences": choice.peak.memory.sequences},
        "usd_per_hour": choice.usd_an_hour,
        "usd_per_million_tokens": choice.usd_a_million,
        "usd_per_million_tokens_busy": choice.usd_a_million_busy,
        "price": {
            "read": machine.price_read,
            "source": machine.price_source,
            "verified": machine.price_verified,
        },
    }
