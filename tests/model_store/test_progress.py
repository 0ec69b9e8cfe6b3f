import io

from specinfer.model_store import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_line_is_rewritten_and_gone_at_the_next_step() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, clock=clock)
    progress.megabytes("downloading", 1 << 20, 4 << 20)
    progress.say("done")
    assert out.getvalue() == (
        "\rspecinfer:   downloading: 1 of 4 MiB\x1b[K\r\x1b[Kspecinfer: done\n"
    )


def test_a_log_is_not_flooded() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, clock=clock)
    for second in range(100):
        clock.now = float(second)
        progress.items("tensors", second, 100)
    assert len(out.getvalue().splitlines()) == 10
    assert "\r" not in out.getvalue()
