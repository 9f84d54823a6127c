"""The command line. One module per command, loaded only when that command is called; one handler turns errors into exit
codes."""

from __future__ import annotations

import importlib
import os
import sys

import click

import seekserve

__all__ = ["cli", "main"]

# name -> (module, one-line help). The help stands here so that `seekserve --help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Run the whole path on the tiny checkpoint: build, render, install, launch, generate."),
    "serve": ("serve", "Build, render, install and launch a checkpoint in one command."),
    "inspect": ("inspect", "Say what a checkpoint is and what is wrong with it."),
    "convert": ("convert", "Convert a checkpoint to FP8 blocks, or from FP8 to bf16."),
    "plan": ("plan", "Say what fits on which GPUs: memory, cache, limits, legal shapes."),
    "build-engine": ("build_engine", "Build an engine bundle from a checkpoint."),
    "calibrate": ("calibrate", "Fit a bundle's step model, by which requests are priced, to measured steps."),
    "evaluate": ("evaluate", "Measure how often a build answers right, alone or against another."),
    "render": ("render", "Render the Triton model repository of a bundle."),
    "check": ("check", "Check a Triton model repository, whoever made it."),
    "policy": ("policy", "Check, show and compare policy files."),
    "install-backend": ("install_backend", "Install the seekserve backend into a Triton backend directory."),
    "launch": ("launch", "Start tritonserver on a rendered repository and watch over it."),
    "status": ("status", "Show models, readiness, URLs, queue and KV numbers of a launched server."),
    "swap": ("swap", "Replace the variant that a running launch serves, without losing a request."),
    "stop": ("stop", "Stop a server started with launch --detach."),
    "generate": ("generate", "Send one prompt to a running server and stream the answer."),
    "gateway": ("gateway", "Serve the OpenAI protocol in front of one or several running servers."),
    "simulate": ("simulate", "Replay a trace against scheduling policies, in virtual time."),
    "bench": ("bench", "Load a running server and say what it was worth."),
    "top": ("top", "Watch running servers: queues, cache, pressure, rates and times, the verdict first."),
    "diagnose": ("diagnose", "Say what is wrong with a running server, by which numbers, and what to change."),
    "soak": ("soak", "Try a deployment under load against its SLO file: smoke, load or drill."),
    "collect": ("collect", "Gather what is needed to understand a failure into one archive, secrets masked."),
    "doctor": ("doctor", "Check this machine for what commonly breaks a deployment."),
    "versions": ("versions", "Show what each TensorRT-LLM version can do."),
}


class LazyGroup(click.Group):
    """Imports a command's module when the command runs; listing them imports nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"{__name__}.{entry[0]}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{error.format_message()} Did you mean {near[0]!r}?", ctx=ctx) from None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version=seekserve.__version__, message="%(version)s", prog_name="seekserve")
def cli() -> None:
    """From a DeepSeek checkpoint to a service that keeps its promises under load."""


def main(argv: list[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 1 the system refused something, 2 bad input, 3 does not fit or conflict,
    4 server, 128 and the number of a signal (Ctrl-C: 130)."""
    from seekserve.cli.interruption import unwinding_signals

    with unwinding_signals():
        code = _run(argv)
    sys.exit(code)


def _run(argv: list[str] | None) -> int:
    from seekserve.cli.interruption import exit_code_of
    from seekserve.errors import SeekserveError

    try:
        code = cli.main(args=argv, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt) as error:  # click turns the one into the other
        click.echo("interrupted", err=True)
        return exit_code_of(error.__cause__ or error)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SeekserveError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:  # the reader has seen enough; nor may the interpreter complain when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        from seekserve.output import os_error_text

        click.echo(f"error: {os_error_text(error)}", err=True)
        return 1
