"""Small speculative models (paper, section 3): their folders, and loading them for an LLM."""

from specinfer.ssm.folder import (
    FILE,
    FORMAT,
    POOLS,
    WEIGHTS,
    compact,
    is_borrowing,
    is_recurrent,
    pool_members,
    read_weights,
    restored,
    save_recurrent,
    save_ssm,
    shipped_pool,
)
from specinfer.ssm.load import SSM, load_ssm
from specinfer.ssm.recurrent import RecurrentSSM

__all__ = [
    "FILE",
    "FORMAT",
    "POOLS",
    "SSM",
    "RecurrentSSM",
    "WEIGHTS",
    "compact",
    "is_borrowing",
    "is_recurrent",
    "load_ssm",
    "pool_members",
    "read_weights",
    "restored",
    "save_recurrent",
    "save_ssm",
    "shipped_pool",
]
