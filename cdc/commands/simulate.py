"""The command `shapelog simulate`: made-up stories of a server, a disk and the program, repeated by their seeds."""

from typing import Annotated, Final

import typer

from cdc.mistake import Mistake

WRONG: Final = 1
"""The exit code of a command that did its work, and found that something is wrong."""


def simulate(
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="One story, with all that happens in it.")
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="All stories from A up to, and without, B.")] = "0..200",
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=100_000, help="Deeds in a story.")] = 40,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=256, help="Processes that work at a time.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts as JSON.")] = False,
) -> None:
    """Run the whole program beside a made-up server, on a made-up disk that fails, in made-up time.

    Logs are compared with what was committed at every step and after every crash. A seed repeats its story. Exit code 1
    if something was found that must never be.

    \b
      shapelog simulate
      shapelog simulate --seeds 1000..5000 --jobs 2
      shapelog simulate --seed 17
    """  # noqa: D301 - typer wants the control character itself
    from dataclasses import asdict

    from cdc.output import print_json
    from cdc.simulate.run import simulations

    wanted = range(seed, seed + 1) if seed is not None else _range(seeds)
    count, found = 0, []
    for outcome in simulations(wanted, steps, jobs):
        count += 1
        if outcome.violation is not None or seed is not None:
            found.append(outcome)
    violations = [outcome for outcome in found if outcome.violation is not None]
    if as_json:
        print_json({"stories": count, "violations": len(violations), "found": [asdict(one) for one in found]})
    else:
        for outcome in found:
            lines = [*outcome.trace, outcome.cause] if seed is not None else []
            typer.echo("\n".join([*lines, f"seed {outcome.seed}: {outcome.violation or 'all as it must be'}"]))
        typer.echo(f"{count:,} stories, {len(violations):,} of them with something that must never be")
    if violations:
        raise typer.Exit(WRONG)


def _range(text: str) -> range:
    start, dots, stop = text.partition("..")
    if not (start.isdecimal() and dots and stop.isdecimal() and int(start) < int(stop)):
        raise Mistake(f"--seeds {text!r} is no range: write two numbers, as in 0..200, the smaller one first")
    return range(int(start), int(stop))
