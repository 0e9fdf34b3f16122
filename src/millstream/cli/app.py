"""The commands and where each lives."""

from __future__ import annotations

import typer

from millstream.cli import (
    actions,
    checkpoint,
    engine,
    jobs,
    journal,
    keys,
    new,
    plan,
    run,
    runtime,
    scheme,
    send,
    switch,
)

app = typer.Typer(
    name="millstream",
    help="Long-lived event flows on Apache Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("send")(send.send)
app.command("engine")(engine.engine)
app.command("deploy")(jobs.deploy)
app.command("jobs")(jobs.jobs)
app.command("status")(jobs.status)
app.command("logs")(jobs.logs)
app.command("wait")(jobs.wait)
app.command("switch")(switch.switch)
app.command("drain")(jobs.drain)
app.command("resume")(jobs.resume)
app.command("undeploy")(jobs.undeploy)
app.command("stop")(jobs.stop)
app.command("runtime")(runtime.runtime)
app.command("new")(new.new)
app.add_typer(actions.app, name="actions", help="Programs that engines keep.")
app.add_typer(scheme.app, name="scheme", help="Look at schemes of runtimes.")
app.add_typer(journal.app, name="journal", help="Look into journals.")
app.add_typer(checkpoint.app, name="checkpoint", help="Look into the checkpoints of groups.")
app.add_typer(keys.app, name="keys", help="Make keys, and see whose they are.")
