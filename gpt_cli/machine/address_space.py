"""The memory that `ulimit -v` lets this process have."""

from __future__ import annotations

from gpt_cli.errors import EnvironmentFailure


def require_address_space(num_bytes: int, who: str) -> None:
    """Raises EnvironmentFailure where `ulimit -v` gives this process less than `who` needs.

    Libraries that are refused memory while they are loaded end the process, each in its own way.
    """
    try:
        import resource  # Unix alone has it
    except ImportError:
        return
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < num_bytes:
        raise EnvironmentFailure(
            "memory",
            f"{who} needs {num_bytes / 1e6:.0f} MB of address space, and this process may have {allowed / 1e6:.0f} MB",
            hint=f"raise the limit, which ulimit -v shows, to {num_bytes // 1024} or more",
        )
