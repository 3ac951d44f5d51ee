"""NVIDIA's Xid numbers: mnemonic, what kind of trouble, and the first thing to do. Data, after NVIDIA's Xid Catalog.

Names are those of `nverror.h` in open-gpu-kernel-modules. A number that is not here is reported as it stands. What an
Xid is, is decided here and nowhere else.
"""

import re
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    HARDWARE = "hardware"
    """The GPU, its memory, its link, or its firmware."""
    APPLICATION = "application"
    """A fault of a kernel that the process ran."""
    CONSEQUENCE = "consequence"
    """Follows from something else, or is only news: never a cause."""


class XidEntry(NamedTuple):
    mnemonic: str
    kind: Kind
    action: str


_RESTART = "restart the server; if it repeats on one GPU only, have that GPU examined"
_RESET = "reset the GPU (nvidia-smi --gpu-reset, or reboot) before using it again"
_LINK = "reset the GPU and check the NVLink or C2C connection"
_BUS = "reboot or power-cycle the machine; check power, temperature and seating"

RECOVERY = 154
"""The driver's own advice, which goes before this table's."""

_NVLINK_5 = range(144, 151)

CATALOG: dict[int, XidEntry] = {
    8: XidEntry("FIFO_ERROR_WATCHDOG", Kind.APPLICATION, _RESTART),
    13: XidEntry("GR_EXCEPTION", Kind.APPLICATION, _RESTART),
    31: XidEntry("FIFO_ERROR_MMU_ERR_FLT", Kind.APPLICATION, _RESTART),
    32: XidEntry("PBDMA_ERROR", Kind.APPLICATION, _RESTART),
    43: XidEntry("RESETCHANNEL_VERIF_ERROR", Kind.CONSEQUENCE, "none: look for what came before"),
    45: XidEntry("PREEMPTIVE_REMOVAL", Kind.CONSEQUENCE, "none: killing a CUDA process can cause it"),
    46: XidEntry("GPU_STOPPED_PROCESSING", Kind.HARDWARE, _RESET),
    48: XidEntry("GPU_ECC_DBE", Kind.HARDWARE, _RESET),
    61: XidEntry("PMU_BREAKPOINT", Kind.HARDWARE, _RESET),
    62: XidEntry("PMU_HALT_ERROR", Kind.HARDWARE, _RESET),
    63: XidEntry("INFOROM_DRAM_RETIREMENT_EVENT", Kind.CONSEQUENCE, "none: a row was remapped as designed"),
    64: XidEntry("INFOROM_DRAM_RETIREMENT_FAILURE", Kind.HARDWARE, _RESET),
    74: XidEntry("NVLINK_ERROR", Kind.HARDWARE, _LINK),
    79: XidEntry("GPU_HAS_FALLEN_OFF_THE_BUS", Kind.HARDWARE, _BUS),
    92: XidEntry("EXCESSIVE_SBE_INTERRUPTS", Kind.CONSEQUENCE, "watch the GPU's corrected-error rate"),
    94: XidEntry("CONTAINED_ERROR", Kind.HARDWARE, "restart the server; reset the GPU at a convenient time"),
    95: XidEntry("UNCONTAINED_ERROR", Kind.HARDWARE, _RESET),
    109: XidEntry("CTX_SWITCH_TIMEOUT", Kind.HARDWARE, _RESET),
    119: XidEntry("GSP_RPC_TIMEOUT", Kind.HARDWARE, _RESET + "; update driver and firmware"),
    120: XidEntry("GSP_ERROR", Kind.HARDWARE, _RESET + "; update driver and firmware"),
    121: XidEntry("C2C_ERROR", Kind.HARDWARE, _LINK),
    136: XidEntry("ALI_TRAINING_FAIL", Kind.HARDWARE, _LINK),
    137: XidEntry("NVLINK_PRIV_ERR", Kind.APPLICATION, _RESTART),
    140: XidEntry("UNRECOVERABLE_ECC_ERROR_ESCAPE", Kind.HARDWARE, _RESET),
    143: XidEntry("GPU_INIT_ERROR", Kind.HARDWARE, _RESET),
    **{
        number: XidEntry(f"NVLINK_{unit}_ERROR", Kind.HARDWARE, _LINK)
        for number, unit in zip(_NVLINK_5, ("SAW", "RLW", "TLW", "TREX", "NVLPW_CTRL", "NETIR", "MSE"), strict=True)
    },
    RECOVERY: XidEntry("GPU_RECOVERY_ACTION_CHANGED", Kind.CONSEQUENCE, "do what the driver's line asks for"),
    156: XidEntry("RESOURCE_RETIREMENT_EVENT", Kind.HARDWARE, _RESET),
    157: XidEntry("RESOURCE_RETIREMENT_FAILURE", Kind.HARDWARE, "have the GPU replaced"),
    158: XidEntry("GPU_FATAL_TIMEOUT", Kind.HARDWARE, _RESET),
    171: XidEntry("UNCORRECTABLE_DRAM_ERROR", Kind.HARDWARE, _RESET),
    172: XidEntry("UNCORRECTABLE_SRAM_ERROR", Kind.HARDWARE, _RESET),
}

_RECOVERY = re.compile(r"[Rr]ecovery action changed from .*? to 0x[0-9a-fA-F]+ \((?P<action>[^)]{1,60})\)")
_RECOVERIES = {
    "GPU Reset Required": _RESET,
    "Node Reboot Required": "reboot the machine",
    "Drain P2P": "end whatever uses its links to other GPUs, then reset it",
    "Drain and Reset": "end whatever runs on it, then reset it (nvidia-smi --gpu-reset)",
}


def kind(number: int, message: str) -> Kind | None:
    """What an Xid is; None for a number that is not in the catalogue. The units of NVLink 5 say of each error whether
    it was fatal."""
    if number in _NVLINK_5 and " Nonfatal " in message:
        return Kind.CONSEQUENCE
    entry = CATALOG.get(number)
    return entry.kind if entry is not None else None


def recovery(message: str) -> str | None:
    """What the driver's line (Xid 154) asks for, in the words of the catalogue's actions; None when it is nothing."""
    found = _RECOVERY.search(message)
    return _RECOVERIES.get(found["action"]) if found is not None else None
