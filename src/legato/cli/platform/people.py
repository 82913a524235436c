"""Commands on users, tokens and the audit log. A secret is shown once, and never read from an argument.

The history of the shell and the list of processes would show a password or token that is typed as an argument.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer

from legato.cli.entry import Entry, enter, make_group
from legato.cli.options import read_whole
from legato.cli.platform.connecting import open_client
from legato.cli.platform.options import LimitOption, OutputOption, ServerOption
from legato.cli.terminal.columns import AUDIT_COLUMNS, TOKEN_COLUMNS
from legato.cli.terminal.formatting import render_time
from legato.cli.terminal.output import Output, make_table, write, write_list
from legato.core.errors import UsageError

_ROLES: Final = ("admin", "user", "viewer")
UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
RoleOption = Annotated[str | None, typer.Option("--role", metavar="[admin|user|viewer]", help="Role of the user.")]
PasswordOption = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from the first line of standard input.")
]

# ---------------------------------------------------------------- users

users = make_group("users", "legato users -o json")


@users.callback(invoke_without_command=True)
def list_users(context: typer.Context, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List users. To change them: add, set, password."""
    if context.invoked_subcommand is not None:
        return
    found = open_client(server).users()
    write(list(found), output, lambda: _draw_users(found, output))


def add_user(
    user: UserName, role: RoleOption = "user", password_stdin: PasswordOption = False, server: ServerOption = None
) -> None:
    """Add a user. A user without a password needs a token: 'legato tokens add NAME --user USER'. For admins."""
    password = read_secret("password") if password_stdin else None
    made = open_client(server).add_user(user, _read_role(role) or "user", password=password)
    way = (
        "can log in with the password"
        if made.has_password
        else f"needs a token: 'legato tokens add NAME --user {user}'"
    )
    typer.echo(f"User '{made.name}' is added, with the role '{made.role}', and {way}.")


def change_user(
    user: UserName,
    role: RoleOption = None,
    disable: Annotated[
        bool | None, typer.Option("--disable/--enable", help="Block the user, or allow the user again.")
    ] = None,
    server: ServerOption = None,
) -> None:
    """Change the role of a user, or disable the user. For admins."""
    if role is None and disable is None:
        raise UsageError(f"Cannot change user '{user}': no change is given. Give --role, --disable or --enable.")
    found = open_client(server).change_user(user, role=_read_role(role), is_disabled=disable)
    state = "is disabled" if found.disabled_at is not None else f"has the role '{found.role}'"
    typer.echo(f"User '{found.name}' {state}.")


def set_password(
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="The name. [default: yourself]")] = None,
    password_stdin: PasswordOption = False,
    server: ServerOption = None,
) -> None:
    """Set your password or, as an admin, that of another user. This revokes all tokens of that user."""
    client = open_client(server)
    password = read_secret("password") if password_stdin else ask_secret("New password", "--password-stdin", twice=True)
    client.set_password(password, user)
    if user is None:
        typer.echo("Your password is set, and your tokens are revoked. Log in again with 'legato login'.")
    else:
        typer.echo(f"The password of '{user}' is set. All tokens of '{user}' are revoked; log in again.")


enter(
    users,
    (
        Entry("add", add_user, "legato users add ben --role user --password-stdin < password.txt", short="Add a user."),
        Entry("set", change_user, "legato users set ben --disable", short="Change or disable a user."),
        Entry("password", set_password, "legato users password", short="Set a password."),
    ),
)

# ---------------------------------------------------------------- tokens

tokens = make_group("tokens", "legato tokens --user ben")


@tokens.callback(invoke_without_command=True)
def list_tokens(
    context: typer.Context,
    user: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Only tokens of this user; for admins. [default: all that you may see]"),
    ] = None,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """List tokens, without their secrets. To change them: add, revoke."""
    if context.invoked_subcommand is not None:
        return
    found = open_client(server).tokens(user)

    write_list(found, output, TOKEN_COLUMNS, "There are no tokens.")


def add_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that says what the token is for.")],
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Owner of the token; for admins. [default: you]")
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            "--role", metavar="[admin|user|viewer]", help="Role of the token. [default: the highest that you can give]"
        ),
    ] = None,
    days: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Days until it expires. [default: set by the server]")
    ] = None,
    password: Annotated[
        bool,
        typer.Option(
            "--password", help="Ask for your password. Needed for a token that expires after your current login."
        ),
    ] = False,
    password_stdin: PasswordOption = False,
    output: OutputOption = Output.table,
    server: ServerOption = None,
) -> None:
    """Add a token and print its secret, which is shown only once. Standard output contains the secret alone."""
    number = None if days is None else float(read_whole("the days", 30, highest=366)(days))
    shown = None
    if password_stdin:
        shown = read_secret("password")
    elif password:
        shown = ask_secret("Your password", "--password-stdin")
    made = open_client(server).add_token(name, user=user, role=_read_role(role), days=number, password=shown)
    if not output.is_for_people:
        write(made, output, str)
        return
    token = made.token
    until = f"expires {render_time(token.expires_at)}"
    typer.echo(f"Token '{token.name}' ({token.id}) of '{token.user}', role '{token.role}', {until}. Keep it:", err=True)
    typer.echo(made.secret)


def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token, see 'legato tokens'.")],
    server: ServerOption = None,
) -> None:
    """Revoke a token. The server refuses it from now on."""
    ended = open_client(server).revoke_token(token)
    typer.echo(f"Token '{ended.name}' ({ended.id}) of '{ended.user}' is revoked.")


enter(
    tokens,
    (
        Entry("add", add_token, "legato tokens add ci --days 30 > token.txt", short="Add a token."),
        Entry("revoke", revoke_token, "legato tokens revoke t-37efnd0000", short="Revoke a token."),
    ),
)

# ---------------------------------------------------------------- who did what


def audit(limit: LimitOption = 100, output: OutputOption = Output.table, server: ServerOption = None) -> None:
    """List the audit log: which user did what, and when, the newest first. For admins."""
    found = open_client(server).audit(limit)

    write_list(found, output, AUDIT_COLUMNS, "The audit log is empty.")


GROUPS: Final = (users, tokens)
ENTRIES: Final = (Entry("audit", audit, "legato audit --limit 20"),)


# ---------------------------------------------------------------- secrets


def read_secret(what: str) -> str:
    """Read a secret from standard input: its first line.

    Raises:
        UsageError: standard input has no line.
    """
    found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise UsageError(f"Cannot read the {what}: standard input is empty. Write it there, on one line.")
    return found


def ask_secret(question: str, instead: str, *, twice: bool = False) -> str:
    """Ask for a secret at the terminal, without showing it.

    Args:
        question: shown to the user.
        instead: the option to use without a terminal, for the error.
        twice: ask twice and compare, against typing errors.

    Raises:
        UsageError: there is no terminal, the input is empty, or the two inputs differ.
    """
    if not sys.stdin.isatty():
        raise UsageError(f"Cannot ask for the {question.lower()}: there is no terminal. Use {instead}.")
    found: str = typer.prompt(question, hide_input=True, default="", show_default=False)
    if not found:
        raise UsageError(f"The {question.lower()} is empty. Run the command again.")
    if twice and typer.prompt("The same again", hide_input=True, default="", show_default=False) != found:
        raise UsageError("The two passwords differ. Run the command again.")
    return found


def _read_role(role: str | None) -> str | None:
    if role is not None and role not in _ROLES:
        raise UsageError(f"Cannot read the role '{role}'. Write {', '.join(_ROLES[:-1])} or {_ROLES[-1]}.")
    return role


def _draw_users(found: Any, output: Output) -> Any:
    from legato.cli.terminal.columns import USER_COLUMNS

    return make_table(USER_COLUMNS, found, is_wide=output is Output.wide)
